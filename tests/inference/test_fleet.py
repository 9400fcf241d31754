"""The fleet knows the workers from their heartbeats, and counts on none that cannot open its tasks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from gpu_workers.connecting import connect
from gpu_workers.messages import WORKERS_KEY, Heartbeat, encode, worker_key
from gpu_workers.sealing import fingerprint
from inference.fleet import Fleet, FleetState, Lost
from tests.services import Services

OURS, THEIRS = fingerprint(b"o" * 32), fingerprint(b"t" * 32)
PATIENCE_S = 30.0


@pytest.fixture
async def valkey(services: Services) -> AsyncIterator[Redis]:
    """A database of Valkey that nobody else uses."""
    client = connect(services.valkey.url(database=14))
    await client.flushdb()
    yield client
    await client.aclose()


@pytest.fixture
async def fleet(valkey: Redis) -> AsyncIterator[Fleet]:
    fleet = Fleet(valkey, OURS)
    fleet.start()
    yield fleet
    await fleet.stop()


async def beat(valkey: Redis, worker: str, seal: str = OURS, **more: int) -> None:
    await valkey.set(worker_key(worker), encode(Heartbeat(worker, "d", "vllm", True, False, 0, 8, seal, **more)))
    await valkey.sadd(WORKERS_KEY, worker)


async def state_with(fleet: Fleet, *names: str) -> FleetState:
    async with asyncio.timeout(PATIENCE_S):
        while set(names) != set((state := fleet.current()).workers) | set(state.foreign):
            await asyncio.sleep(0.05)
    return state


async def test_a_worker_with_another_seal_key_is_known_and_never_ready(valkey: Redis, fleet: Fleet) -> None:
    await beat(valkey, "stranger", THEIRS)
    state = await state_with(fleet, "stranger")
    assert set(state.foreign) == {"stranger"}
    assert state.ready("d") == []
    assert await fleet.wait_ready(["d"], timeout_s=0.1) is None

    await beat(valkey, "friend", OURS)
    state = await state_with(fleet, "stranger", "friend")
    assert [ready.worker for ready in state.ready("d")] == ["friend"]


async def test_a_worker_that_is_given_the_right_key_is_ready(valkey: Redis, fleet: Fleet) -> None:
    await beat(valkey, "w", THEIRS)
    await state_with(fleet, "w")
    await beat(valkey, "w", OURS)
    found = await fleet.wait_ready(["elsewhere", "d"], timeout_s=PATIENCE_S)
    assert found is not None
    assert found.worker == "w"
    assert fleet.current().foreign == {}


async def test_what_took_an_answer_with_it_is_passed_over_until_it_starts_anew(valkey: Redis, fleet: Fleet) -> None:
    await beat(valkey, "w", epoch=1)
    await state_with(fleet, "w")
    lost = [Lost("w", 1, time.monotonic() + PATIENCE_S)]
    assert await fleet.wait_ready(["d"], lost, timeout_s=0.1) is None

    await beat(valkey, "w", epoch=2)
    found = await fleet.wait_ready(["d"], lost, timeout_s=PATIENCE_S)
    assert found is not None
    assert (found.worker, found.epoch) == ("w", 2)


async def test_what_is_still_ready_when_its_heartbeat_is_fresh_has_survived(valkey: Redis, fleet: Fleet) -> None:
    await beat(valkey, "w", epoch=1)
    await state_with(fleet, "w")
    found = await fleet.wait_ready(["d"], [Lost("w", 1, time.monotonic() + 1)], timeout_s=PATIENCE_S)
    assert found is not None
    assert found.worker == "w"

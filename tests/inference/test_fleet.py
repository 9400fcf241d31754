"""The fleet knows the workers from their heartbeats, and counts on none that cannot open its tasks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from gpu_workers.messages import WORKERS_KEY, Heartbeat, encode, worker_key
from gpu_workers.runner import connect
from gpu_workers.sealing import fingerprint
from inference.fleet import Fleet, FleetState
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


async def beat(valkey: Redis, worker: str, seal: str) -> None:
    await valkey.set(worker_key(worker), encode(Heartbeat(worker, "d", "vllm", True, False, 0, 8, seal)))
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
    assert await fleet.wait_ready(["d"], without=frozenset(), timeout_s=0.1) is None

    await beat(valkey, "friend", OURS)
    state = await state_with(fleet, "stranger", "friend")
    assert [ready.worker for ready in state.ready("d")] == ["friend"]


async def test_a_worker_that_is_given_the_right_key_is_ready(valkey: Redis, fleet: Fleet) -> None:
    await beat(valkey, "w", THEIRS)
    await state_with(fleet, "w")
    await beat(valkey, "w", OURS)
    assert await fleet.wait_ready(["elsewhere", "d"], without=frozenset(), timeout_s=PATIENCE_S) == "d"
    assert fleet.current().foreign == {}

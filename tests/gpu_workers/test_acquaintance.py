"""What a host learns of a platform before it joins, from a real Valkey."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from gpu_workers.acquaintance import JoinRefused, meet_platform
from gpu_workers.connecting import connect
from gpu_workers.messages import WORKERS_KEY, owner_key, worker_key
from gpu_workers.sealing import fingerprint
from tests.gpu_workers.heartbeats import show_worker
from tests.services import Services

OURS, THEIRS = bytes(32), bytes(range(32))
DATABASE = 9  # where no other test's processes show life


@pytest.fixture
async def broker(services: Services) -> AsyncIterator[Redis]:
    client = connect(services.valkey.url(DATABASE))
    yield client
    await client.flushdb()
    await client.aclose()


@pytest.fixture
def url(services: Services, broker: Redis) -> str:
    return services.valkey.url(DATABASE)


async def test_an_empty_broker_has_nobody_to_compare_with(url: str) -> None:
    assert not await meet_platform(url, OURS)


async def test_a_web_process_with_the_same_key_is_met(broker: Redis, url: str) -> None:
    await broker.set(owner_key("web-1"), fingerprint(OURS))
    assert await meet_platform(url, OURS)


async def test_a_web_process_with_another_key_is_refused(broker: Redis, url: str) -> None:
    await broker.set(owner_key("web-1"), fingerprint(THEIRS))
    with pytest.raises(JoinRefused, match="another seal key"):
        await meet_platform(url, OURS)


async def test_workers_are_asked_where_no_web_process_runs(broker: Redis, url: str) -> None:
    await broker.set(owner_key("evaluation-1"), b"1")  # an evaluation run shows life and no fingerprint
    await broker.sadd(WORKERS_KEY, "long-gone")
    await broker.set(worker_key("garbled"), b"\xff\x00")
    await broker.sadd(WORKERS_KEY, "garbled")
    await show_worker(broker, "gpu-1", seal=fingerprint(OURS))
    assert await meet_platform(url, OURS)
    with pytest.raises(JoinRefused, match="another seal key"):
        await meet_platform(url, THEIRS)


async def test_web_processes_decide_over_workers(broker: Redis, url: str) -> None:
    await broker.set(owner_key("web-1"), fingerprint(OURS))
    await show_worker(broker, "gpu-1", seal=fingerprint(THEIRS))
    assert await meet_platform(url, OURS)
    with pytest.raises(JoinRefused):
        await meet_platform(url, THEIRS)


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("http://broker:6379", "not a redis://"),
        ("redis://broker:port", "not a redis://"),
        ("rediss://[broker", "not a redis://"),
        ("redis://:hidden@127.0.0.1:1/0", "does not answer"),
        ("unix:///nowhere/valkey.sock?password=hidden", "does not answer"),
    ],
)
async def test_a_broker_that_is_not_there_is_one_line_without_its_password(address: str, said: str) -> None:
    with pytest.raises(JoinRefused, match=said) as refused:
        await meet_platform(address, OURS)
    assert "hidden" not in str(refused.value)
    assert "\n" not in str(refused.value)


async def test_a_wrong_password_is_named_as_one(services: Services) -> None:
    with pytest.raises(JoinRefused, match="password"):
        await meet_platform(f"unix://{services.valkey.socket}?password=hidden", OURS)

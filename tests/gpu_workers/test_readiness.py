"""The probe of a host's worker, against a real Valkey."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from gpu_workers.connecting import connect
from gpu_workers.messages import worker_key
from gpu_workers.readiness import state_of
from tests.gpu_workers.heartbeats import show_worker
from tests.services import Services

DATABASE = 10


@pytest.fixture
async def broker(services: Services) -> AsyncIterator[Redis]:
    client = connect(services.valkey.url(DATABASE))
    yield client
    await client.flushdb()
    await client.aclose()


async def test_it_goes_by_the_heartbeat_of_this_host_alone(broker: Redis, services: Services) -> None:
    url = services.valkey.url(DATABASE)
    await show_worker(broker, "gpu-0-x-1", engine_ready=True)  # another pod, whose name begins as this one's
    assert await state_of(url, "gpu-0") == "no worker"
    await show_worker(broker, "gpu-0-7", engine_ready=False)
    assert await state_of(url, "gpu-0") == "the engine is not ready"
    await show_worker(broker, "gpu-0-7", engine_ready=False, fault="its engine does not honour priorities")
    assert await state_of(url, "gpu-0") == "its engine does not honour priorities"
    await show_worker(broker, "gpu-0-7", engine_ready=True)
    assert await state_of(url, "gpu-0") == ""


async def test_a_heartbeat_that_has_ended_does_not_count(broker: Redis, services: Services) -> None:
    await show_worker(broker, "gpu-0-7", engine_ready=True)
    await broker.delete(worker_key("gpu-0-7"))
    assert await state_of(services.valkey.url(DATABASE), "gpu-0") == "no worker"


@pytest.mark.parametrize("url", ["", "redis://:hidden@127.0.0.1:1/0", "unix:///nowhere?password=hidden"])
async def test_without_the_broker_it_is_not_ready_and_no_address_is_told(url: str) -> None:
    fault = await state_of(url, "gpu-0")
    assert fault.startswith("the broker does not say")
    assert "hidden" not in fault

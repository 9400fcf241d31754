"""A task pushed by the event loop is what Celery itself would have sent, where a worker's kombu looks for it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from celery import Celery
from kombu import Connection
from kombu.transport.redis import Channel
from redis.asyncio import Redis

from gpu_workers.broker import broker_url
from gpu_workers.connecting import connect
from gpu_workers.transport import GENERATE, configure_transport
from inference.dispatch import QUEUE_PRIORITIES
from inference.publishing import PRIORITY_STEPS, TaskMessages, list_of
from tests.services import Services

QUEUE = "gpu.publishing"
ARGUMENTS = ("exchange", 1, "sealed")


@pytest.fixture
def app(services: Services, monkeypatch: pytest.MonkeyPatch) -> Celery:
    monkeypatch.setenv("BURSAR_VALKEY_URL", services.valkey.url())
    app = Celery("test", set_as_current=False)
    configure_transport(app)
    return app


@pytest.fixture
async def valkey(services: Services) -> AsyncIterator[Redis]:
    client = connect(services.valkey.url())
    await client.delete(*(list_of(QUEUE, step) for step in PRIORITY_STEPS))
    yield client
    await client.aclose()


def build(messages: TaskMessages, task_id: str, priority: int = 0) -> str:
    return messages.build(GENERATE, task_id=task_id, args=ARGUMENTS, queue=QUEUE, priority=priority)


def without_delivery(message: str | bytes) -> dict[str, Any]:
    """What differs between any two messages left out."""
    fields: dict[str, Any] = json.loads(message)
    fields["properties"].pop("delivery_tag")
    fields["properties"].pop("reply_to")
    return fields


@pytest.mark.parametrize("priority", PRIORITY_STEPS)
async def test_it_is_the_message_that_celery_sends(app: Celery, valkey: Redis, priority: int) -> None:
    ours = build(TaskMessages(app), "t", priority)
    app.send_task(
        GENERATE, args=ARGUMENTS, queue=QUEUE, task_id="t", argsrepr="sealed", kwargsrepr="", priority=priority
    )
    theirs = await valkey.rpop(list_of(QUEUE, priority))
    assert without_delivery(ours) == without_delivery(theirs)


async def test_a_worker_takes_them_by_priority_and_then_in_order(app: Celery, valkey: Redis) -> None:
    messages = TaskMessages(app)
    for number in range(2):
        for name in ("batch", "standard", "interactive"):
            priority = QUEUE_PRIORITIES[name]
            await valkey.lpush(list_of(QUEUE, priority), build(messages, f"{name}-{number}", priority))

    with Connection(broker_url(app.conf.broker_url), transport_options=app.conf.broker_transport_options) as broker:
        queue = broker.SimpleQueue(QUEUE)
        taken = [queue.get(timeout=5).headers["id"] for _ in range(6)]
    assert taken == [f"{name}-{number}" for name in ("interactive", "standard", "batch") for number in range(2)]


def test_messages_are_not_kept_and_no_two_share_a_delivery_tag(app: Celery) -> None:
    messages = TaskMessages(app)
    built = [json.loads(build(messages, f"t{number}")) for number in range(3)]
    assert [message["headers"]["id"] for message in built] == ["t0", "t1", "t2"]
    assert len({message["properties"]["delivery_tag"] for message in built}) == 3


def test_each_class_of_requests_has_a_list_that_workers_read() -> None:
    assert set(QUEUE_PRIORITIES.values()) <= set(Channel.priority_steps)

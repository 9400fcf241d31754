"""A worker that was enrolled with another seal key: requests are refused at once, and readiness says why."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterator

import httpx
import pytest

from tests.client import ChatClient
from tests.stack import Stack, is_ready, wait_for


@pytest.fixture
def foreign_worker(live_stack: Stack) -> Iterator[str]:
    """The stack's only worker has another seal key than its web processes; the key, as hexadecimal digits."""
    key, environment = secrets.token_hex(32), live_stack.environment
    live_stack.stop("worker")
    live_stack.environment = environment | {"BURSAR_SEAL_KEY": key}
    live_stack.start("worker")
    live_stack.environment = environment
    yield key
    live_stack.stop("worker")
    live_stack.start("worker")
    live_stack.wait_ready()


def engine(stack: Stack, web: int = 0) -> str:
    return str(httpx.get(f"{stack.urls()[web]}/readyz").json()["checks"]["engine"])


async def test_readiness_names_the_worker_and_requests_are_refused_at_once(
    live_stack: Stack, foreign_worker: str, connect: Callable[..., object]
) -> None:
    for web in range(2):
        named = "readiness names the worker"
        await asyncio.to_thread(wait_for, lambda web=web: "another seal key" in engine(live_stack, web), named)
        assert engine(live_stack, web).startswith("worker ")
        assert not is_ready(live_stack.urls()[web])

    client = await connect()
    assert isinstance(client, ChatClient)
    refused = await client.answer()

    # At once: nothing was started, where a task that nobody opens is only missed after seconds.
    assert [event["type"] for event in refused] == ["error"]
    assert refused[0]["error"]["code"] == "overloaded"
    models = httpx.get(f"{live_stack.url}/api/models", headers={"Authorization": f"Bearer {live_stack.api_key}"})
    assert [model["ready"] for model in models.json()["models"]] == [False]
    logs = "".join(live_stack.log(name).read_text() for name in live_stack.commands if name != "scheduler")
    assert "worker_has_another_seal_key" in logs
    assert foreign_worker not in logs


async def test_the_worker_that_is_given_the_right_key_is_used(
    live_stack: Stack, connect: Callable[..., object]
) -> None:
    client = await connect()
    assert isinstance(client, ChatClient)
    assert (await client.answer(parameters={"max_tokens": 4}))[-1]["type"] == "answer.finished"

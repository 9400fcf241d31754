"""A version's life through the whole product: promoted it is served, retired it is refused, everywhere."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.client import ChatClient
from tests.e2e.people import shell
from tests.stack import DEPLOYMENT, Stack

NAME = "promoted-model"


@pytest.fixture
async def draft(live_stack: Stack) -> AsyncIterator[None]:
    before = await shell(live_stack, f"versions.create({NAME!r}, {DEPLOYMENT!r})")
    yield
    await shell(live_stack, f"versions.put_back({before!r}, {DEPLOYMENT!r})")


async def until_answered(client: ChatClient, *, served: bool) -> dict[str, Any]:
    """Processes follow a change by themselves; the number of tries bounds a hang."""
    for _ in range(100):
        event = (await client.answer("why is the sky blue", model=NAME, parameters={"max_tokens": 4}))[-1]
        if (event["type"] != "error") is served:
            return event
        await asyncio.sleep(0.1)
    raise AssertionError(f"it never became {'served' if served else 'refused'}")


@pytest.mark.usefixtures("draft")
async def test_a_promoted_version_is_served_and_a_retired_one_refused(live_stack: Stack, connect: Any) -> None:
    clients = [await connect(web=web) for web in range(2)]
    for client in clients:
        assert (await until_answered(client, served=False))["error"]["code"] == "model_not_found"

    promoted = await shell(live_stack, f"versions.step({NAME!r}, *['propose', 'approve'] * 3)")
    assert promoted == "live"
    for client in clients:
        assert (await until_answered(client, served=True))["usage"]["completion_tokens"] == 4

    assert await shell(live_stack, f"versions.step({NAME!r}, 'retire')") == "retired"
    for client in clients:
        assert (await until_answered(client, served=False))["error"]["code"] == "model_not_found"

    assert await shell(live_stack, f"versions.step({NAME!r}, 'revert')") == "live"
    for client in clients:
        await until_answered(client, served=True)

"""A version's life through the whole product: promoted it is served, retired it is refused, everywhere."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from tests.client import ChatClient
from tests.e2e.people import shell
from tests.stack import DEPLOYMENT, MODEL, Stack, wait_for

NAME, EVALUATED = "promoted-model", "evaluated-model"


@pytest.fixture
async def draft(live_stack: Stack) -> AsyncIterator[None]:
    before = await shell(live_stack, f"versions.create({NAME!r}, {DEPLOYMENT!r})")
    yield
    await put_back(live_stack, before)


@pytest.fixture
async def evaluated(live_stack: Stack) -> AsyncIterator[None]:
    before = await shell(live_stack, f"versions.create({EVALUATED!r}, {DEPLOYMENT!r})")
    live_stack.start("scheduler")
    yield
    live_stack.stop("scheduler")
    await put_back(live_stack, before)


async def put_back(stack: Stack, before: str) -> None:
    """Leave the stack as it was found: every process serves the model again."""
    await shell(stack, f"versions.put_back({before!r}, {DEPLOYMENT!r})")

    def served(url: str) -> bool:
        listed = httpx.get(f"{url}/v1/models", headers={"Authorization": f"Bearer {stack.api_key}"}).json()
        return MODEL in [model["id"] for model in listed["data"]]

    for url in stack.urls():
        await asyncio.to_thread(wait_for, lambda url=url: served(url), f"{url} serves {MODEL} again")


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


@pytest.mark.usefixtures("evaluated")
async def test_a_version_is_evaluated_on_its_deployment_before_it_may_go_live(live_stack: Stack) -> None:
    await shell(live_stack, f"versions.evaluate_by({EVALUATED!r}, threshold=60)")
    assert await shell(live_stack, f"versions.step({EVALUATED!r}, *['propose', 'approve'] * 2)") == "canary"
    with pytest.raises(AssertionError, match="has not been run as it is now"):
        await shell(live_stack, f"versions.step({EVALUATED!r}, 'propose')")

    done = await asyncio.to_thread(live_stack.manage, "evaluate", EVALUATED, "1")
    assert done.returncode == 0, done.stderr
    for line in ("1    regex         passed", "2    number        failed: no_number", "1 of 2 passed"):
        assert line in done.stdout
    with pytest.raises(AssertionError, match="passed 1 of 2 prompts; 60"):
        await shell(live_stack, f"versions.step({EVALUATED!r}, 'propose')")

    await shell(live_stack, f"versions.evaluate_by({EVALUATED!r}, threshold=50)")
    assert await shell(live_stack, f"versions.step({EVALUATED!r}, 'propose', 'approve')") == "live"

    # And so does the platform's worker, for an administrator who asks in the console.
    await shell(live_stack, f"versions.ask_for_run({EVALUATED!r})")
    for _ in range(30):
        state = await shell(live_stack, f"versions.run_state({EVALUATED!r})")
        if not state.startswith(("waiting", "running")):
            break
    assert state == "finished 1 2"

"""A canary that burns its objective is taken back by the scheduler, and nobody's answer fails for it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tests.client import ChatClient
from tests.e2e.people import shell
from tests.e2e.test_fallback_mirror import Rows
from tests.services import running_services
from tests.stack import DEPLOYMENT, Stack, running_stack

CANARY = "canary"
SLOW_MS = "1500"


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """With a scheduler, and a second engine whose first token comes later than a canary's may."""
    with (
        running_services() as services,
        running_stack(services, tmp_path_factory.mktemp("canary"), scheduler=True) as running,
    ):
        url = running.start_engine("engine2", CANARY, SIMULATED_TTFT_MS=SLOW_MS)
        running.start_worker("worker2", CANARY, BURSAR_ENGINE_URL=url)
        yield running


async def ask_until_it_is_taken_back(stack: Stack, rows: Rows) -> int:
    """Several people ask all the time; how many answers it took. A bound on hanging, not a claim about speed."""
    answered = 0
    state = "SELECT lifecycle FROM inference_modelversion WHERE version = 'canary'"

    async def person() -> None:
        nonlocal answered
        async with ChatClient.open(stack.url, {"Authorization": f"Bearer {stack.api_key}"}) as client:
            while rows.all(state)[0][0] == "canary":
                last = (await client.answer(parameters={"max_tokens": 2}))[-1]
                assert last["type"] == "answer.finished", last
                answered += 1

    async with asyncio.timeout(240):
        await asyncio.gather(*(person() for _ in range(4)))
    return answered


async def test_a_slow_canary_is_taken_back_and_live_answers_everything_from_then_on(stack: Stack) -> None:
    rows = Rows(stack)
    assert await shell(stack, f"versions.add_canary({CANARY!r})") == "canary"
    route = {
        "candidates": [{"deployment": DEPLOYMENT, "weight": 2}, {"deployment": CANARY, "weight": 1}],
        "strategy": "weighted",
    }
    with rows.route(route):
        await ask_until_it_is_taken_back(stack, rows)

        assert rows.all("SELECT lifecycle FROM inference_modelversion WHERE version = 'canary'") == [("validated",)]
        steps = rows.all(
            "SELECT s.kind, s.proposed_by_id, s.figures FROM inference_lifecyclestep s WHERE s.figures IS NOT NULL"
        )
        assert [(kind, by) for kind, by, _ in steps] == [("revert", None)]
        figures = steps[0][2]
        assert figures["bad"] >= 3
        assert figures["of"] >= 20
        assert figures["live_bad"] * 2 < figures["bad"] or figures["live_of"] < 20
        recorded = rows.all("SELECT facts -> 'figures' FROM audit_entry WHERE facts ->> 'about' = 'lifecycle'")
        assert (figures,) in recorded

        async with ChatClient.open(stack.url, {"Authorization": f"Bearer {stack.api_key}"}) as client:
            await asyncio.sleep(2)  # processes follow the configuration by themselves
            for _ in range(10):
                last = (await client.answer(parameters={"max_tokens": 2}))[-1]
                assert rows.attempts(last["exchange"]) == [(1, DEPLOYMENT, "finished")]

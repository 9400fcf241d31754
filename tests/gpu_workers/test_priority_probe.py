"""The probe tells an engine that goes by priority from one that does not, and leaves nothing running in it."""

from __future__ import annotations

import asyncio

import pytest

from gpu_workers.engines.latency import Timing
from gpu_workers.engines.openai import OpenAIEngine
from gpu_workers.messages import Sampling
from gpu_workers.priority_probe import honours_priority
from tests.gpu_workers.engines.test_openai import engine_at, simulated
from tests.gpu_workers.tasks import task

STEADY = Timing(ttft_ms=20, itl_ms=20, sigma=0.1, seed=0)
PATIENCE_S = 30.0
CONTEXT = 2048


async def is_idle(engine: OpenAIEngine) -> bool:
    async with asyncio.timeout(PATIENCE_S):
        while (load := await engine.load()).running or load.waiting:
            await asyncio.sleep(0.02)
    return True


@pytest.mark.parametrize("by_priority", [True, False])
@pytest.mark.parametrize("places", [1, 6])
async def test_what_the_engine_does_is_what_the_probe_says(by_priority: bool, places: int) -> None:
    async with (
        simulated(STEADY, places=places, by_priority=by_priority) as url,
        engine_at(url, vllm=True) as engine,
    ):
        assert await honours_priority(engine, places, CONTEXT) is by_priority
        assert await is_idle(engine)


async def test_an_engine_that_is_at_work_is_not_disturbed() -> None:
    async with simulated(STEADY, places=1, by_priority=False) as url, engine_at(url, vllm=True) as engine:
        working = asyncio.create_task(anext(engine.stream(task(sampling=Sampling(max_tokens=90)))))
        while not (await engine.load()).running:
            await asyncio.sleep(0.01)
        assert await honours_priority(engine, 1, CONTEXT)
        await working


async def test_nothing_is_tried_where_nothing_can_be_told(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(*_: object) -> None:
        raise AssertionError("it was asked")

    monkeypatch.setattr(OpenAIEngine, "occupy", refuse)
    async with simulated(STEADY, by_priority=False) as url:
        async with engine_at(url, vllm=True) as engine:
            assert await honours_priority(engine, 0, CONTEXT)
        async with engine_at(url, vllm=False) as engine:
            assert await honours_priority(engine, 6, CONTEXT)


@pytest.mark.parametrize("by_priority", [True, False])
async def test_a_small_context_holds_places_too(by_priority: bool) -> None:
    async with (
        simulated(STEADY, places=2, by_priority=by_priority, context=128) as url,
        engine_at(url, vllm=True) as engine,
    ):
        assert await honours_priority(engine, 2, 128) is by_priority


async def test_places_that_cannot_be_held_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpu_workers.priority_probe.TRY_TIMEOUT_S", 10 * PATIENCE_S)
    async with (
        simulated(STEADY, places=2, by_priority=False, context=128) as url,
        engine_at(url, vllm=True) as engine,
        asyncio.timeout(PATIENCE_S),
    ):
        assert await honours_priority(engine, 2, CONTEXT)  # which the engine refuses

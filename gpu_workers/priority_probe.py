"""Whether an engine lets the more urgent request go first, tried out: what it was started with it tells nobody."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

import structlog

from gpu_workers.engines.base import Engine, EngineBroken
from gpu_workers.engines.metrics import EngineLoad
from gpu_workers.engines.openai import OpenAIEngine

log = structlog.get_logger(__name__)

URGENT, PATIENT = 0, 20  # as vLLM counts: lower goes first
TRIES = 3
POLL_S = 0.02
TRY_TIMEOUT_S = 20.0
PAUSE_S = 1.0
# Long enough to hold a place until the probe is over; it ends with the probe.
FILLER_TOKENS = 512


async def honours_priority(engine: Engine, places: int, context_length: int) -> bool:
    """False where an engine that works on `places` requests at once took a patient one before an urgent one.

    True where it did not, and where nothing can be tried: the engine is no vLLM, its places are not known, or it is
    at work already, so that another worker has tried it.
    """
    if not isinstance(engine, OpenAIEngine) or not engine.takes_priorities or not places:
        return True
    for _ in range(TRIES):
        began = time.monotonic()
        load = await engine.load()
        if load.running or load.waiting:
            return True
        with suppress(EngineBroken, TimeoutError):
            async with asyncio.timeout(TRY_TIMEOUT_S):
                urgent_first = await _try(engine, places, min(FILLER_TOKENS, context_length // 2))
            if urgent_first is not None:
                log.info("priority_tried", honoured=urgent_first, after_ms=round((time.monotonic() - began) * 1000))
                return urgent_first
        await asyncio.sleep(PAUSE_S)
    log.warning("priority_not_asserted")
    return True


async def _try(engine: OpenAIEngine, places: int, filler_tokens: int) -> bool | None:
    """Fill every place, have a patient and then an urgent request wait, free one place: which ends first.

    None where both ended, so that nothing is known. Raises `EngineBroken`.
    """
    fillers = [asyncio.create_task(engine.occupy(URGENT, filler_tokens)) for _ in range(places)]
    waiting: list[asyncio.Task[None]] = []
    try:
        await _until(engine, fillers, lambda load: load.running == places)
        for number, priority in enumerate((PATIENT, URGENT), start=1):
            waiting.append(asyncio.create_task(engine.occupy(priority, 1)))
            await _until(engine, fillers, lambda load, number=number: load.waiting == number)  # type: ignore[misc]
        fillers[0].cancel()
        done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        return None if len(done) == len(waiting) else waiting[1] in done
    finally:
        for task in (*fillers, *waiting):
            task.cancel()
        await asyncio.gather(*fillers, *waiting, return_exceptions=True)


async def _until(
    engine: OpenAIEngine, fillers: Sequence[asyncio.Task[None]], condition: Callable[[EngineLoad], bool]
) -> None:
    while not condition(await engine.load()):
        if any(filler.done() for filler in fillers):
            raise EngineBroken("A request that was to hold a place ended before its time.")
        await asyncio.sleep(POLL_S)

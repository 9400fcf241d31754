"""Attempts: whatever happens to one, its owner is told once, with the count so far and without what was said."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable

import pytest
from redis.asyncio import Redis

from gpu_workers.attempts import Attempts
from gpu_workers.engines.base import End, EngineBroken, EngineRefused, Piece
from gpu_workers.engines.metrics import EngineLoad
from gpu_workers.messages import Claimed, Done, Failed, Frame, GenerateTask, Usage, cancelled_key
from tests.gpu_workers.replies import frames_of, text_of
from tests.gpu_workers.tasks import PROMPT, SEAL_KEY, task

PATIENCE_S = 30.0
Step = str | float | Exception | End


class ScriptedEngine:
    """Says what it was told to: a text, a pause in seconds, the end, or a failure."""

    simulated = True

    def __init__(self, *steps: Step) -> None:
        self._steps = steps
        self.asked = 0
        self.closed = 0

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def is_ready(self) -> bool:
        return True

    async def load(self) -> EngineLoad:
        return EngineLoad()

    async def stream(self, task: GenerateTask) -> AsyncIterator[Piece | End]:
        self.asked += 1
        try:
            for step in self._steps:
                if isinstance(step, Exception):
                    raise step
                if isinstance(step, float):
                    await asyncio.sleep(step)
                else:
                    yield Piece(step, None) if isinstance(step, str) else step
        finally:
            self.closed += 1


async def run(valkey: Redis, engine: ScriptedEngine, asked: GenerateTask) -> list[Frame]:
    async with asyncio.timeout(PATIENCE_S):
        await Attempts(valkey, engine, SEAL_KEY, "worker-1").run(asked)
    return await frames_of(valkey, asked)


async def cut(
    valkey: Redis, engine: ScriptedEngine, asked: GenerateTask, how: Callable[[Attempts], object], after: int
) -> list[Frame]:
    """The frames of an attempt to which `how` is done once `after` frames have come."""
    attempts = Attempts(valkey, engine, SEAL_KEY, "worker-1")
    running = asyncio.create_task(attempts.run(asked))
    async with asyncio.timeout(PATIENCE_S):
        while len(await frames_of(valkey, asked)) < after:
            await asyncio.sleep(0.005)
        how(attempts)
        await running
        await attempts.settled()
    assert attempts.running == 0
    return await frames_of(valkey, asked)


def estimated(pieces: int) -> Usage:
    return Usage(prompt_tokens=0, cached_tokens=0, completion_tokens=pieces, estimated=True)


async def test_an_attempt_is_claimed_streamed_and_ended_with_the_engines_count(valkey: Redis) -> None:
    usage = Usage(5, 2, 3)
    frames = await run(valkey, ScriptedEngine("a", " b", " c", End("stop", usage)), asked := task())

    assert frames[0] == Claimed("worker-1", 1)
    assert text_of(frames) == "a b c"
    assert frames[-1] == Done("stop", usage)
    assert asked.reply_to


async def test_a_cancel_before_the_first_token_ends_it_with_nothing(valkey: Redis) -> None:
    engine = ScriptedEngine(60.0, "late", End("stop", None))
    asked = task()
    frames = await cut(valkey, engine, asked, lambda attempts: attempts.cancel(f"{asked.exchange}:1"), after=1)

    assert frames == [Claimed("worker-1", 1), Done("cancelled", estimated(0))]
    assert engine.closed == engine.asked


async def test_a_cancel_after_the_first_token_counts_what_was_made(valkey: Redis) -> None:
    engine = ScriptedEngine("a", " b", 60.0, "late", End("stop", None))
    asked = task()
    frames = await cut(valkey, engine, asked, lambda attempts: attempts.cancel(f"{asked.exchange}:1"), after=3)

    assert text_of(frames) == "a b"
    assert frames[-1] == Done("cancelled", estimated(2))
    assert engine.closed == 1


async def test_a_cancel_that_came_before_the_task_ends_it_while_the_engine_still_thinks(valkey: Redis) -> None:
    engine, asked = ScriptedEngine(60.0, "late", End("stop", None)), task()
    await valkey.set(cancelled_key(asked.exchange, 1), b"1", ex=60)

    assert await run(valkey, engine, asked) == [Claimed("worker-1", 1), Done("cancelled", estimated(0))]
    assert engine.closed == engine.asked


async def test_a_cancel_of_another_attempt_changes_nothing(valkey: Redis) -> None:
    engine, asked = ScriptedEngine("a", 0.05, " b", End("stop", None)), task()
    frames = await cut(valkey, engine, asked, lambda attempts: attempts.cancel(f"{asked.exchange}:2"), after=2)
    assert frames[-1] == Done("stop", estimated(2))


@pytest.mark.parametrize("late_by_s", [0.0, 3600.0])
async def test_a_deadline_that_has_passed_is_said_and_the_engine_is_not_asked(valkey: Redis, late_by_s: float) -> None:
    engine = ScriptedEngine("a", End("stop", None))
    frames = await run(valkey, engine, task(deadline=time.time() - late_by_s))
    assert isinstance(frames[-1], Failed)
    assert frames[-1].code == "deadline_exceeded"
    assert engine.asked == 0


async def test_a_deadline_that_passes_cuts_the_generation(valkey: Redis) -> None:
    engine = ScriptedEngine("a", 60.0, "late", End("stop", None))
    frames = await run(valkey, engine, task(deadline=time.time() + 0.5))
    assert text_of(frames) == "a"
    assert frames[-1] == Failed("deadline_exceeded", "The deadline passed.", estimated(1))
    assert engine.closed == 1


async def test_the_death_of_an_owner_ends_its_attempts_and_no_others(valkey: Redis) -> None:
    engine = ScriptedEngine("a", 0.3, " b", End("stop", None))
    attempts = Attempts(valkey, engine, SEAL_KEY, "worker-1")
    dead, alive = [task(owner="dead") for _ in range(3)], task(owner="alive")
    running = [asyncio.create_task(attempts.run(asked)) for asked in (*dead, alive)]
    await asyncio.sleep(0.1)

    assert attempts.owners() == {"dead", "alive"}
    assert attempts.cancel_owner("dead") == 3
    await asyncio.gather(*running)

    assert [(await frames_of(valkey, asked))[-1] for asked in dead] == [Done("cancelled", estimated(1))] * 3
    assert (await frames_of(valkey, alive))[-1] == Done("stop", estimated(2))


async def test_a_worker_that_shuts_down_tells_owners_to_go_elsewhere(valkey: Redis) -> None:
    asked = task()
    frames = await cut(valkey, ScriptedEngine("a", 60.0), asked, lambda attempts: attempts.drain(), after=2)
    assert frames[-1] == Failed("worker_draining", "The worker is shutting down.", estimated(1))


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (EngineBroken("The engine answered with status 500."), "engine_failed"),
        (EngineRefused("context_length_exceeded", "It does not fit."), "context_length_exceeded"),
        (KeyError(PROMPT), "engine_failed"),
        (RuntimeError(f"cannot tokenize {PROMPT}"), "engine_failed"),
    ],
)
async def test_a_failure_reaches_the_owner_as_a_code_and_quotes_nothing(
    valkey: Redis, failure: Exception, code: str, capfd: pytest.CaptureFixture[str]
) -> None:
    frames = await run(valkey, ScriptedEngine("a", failure), task())

    last = frames[-1]
    assert isinstance(last, Failed)
    assert last.code == code
    assert PROMPT not in last.message
    assert PROMPT not in "".join(capfd.readouterr())


async def test_an_engine_that_ends_without_an_end_has_failed(valkey: Redis) -> None:
    last = (await run(valkey, ScriptedEngine("a"), task()))[-1]
    assert isinstance(last, Failed)
    assert last.code == "engine_failed"


async def test_an_engine_that_ignores_max_tokens_is_cut(valkey: Redis) -> None:
    engine = ScriptedEngine(*["word "] * 10_000)

    *_, last = await run(valkey, engine, task())

    assert isinstance(last, Done)
    assert last.finish_reason == "length"
    assert last.usage.completion_tokens < 100
    assert engine.closed == 1

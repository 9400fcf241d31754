"""Measures an engine that serves: its first token by prompt length, and the next ones by requests at once."""

from __future__ import annotations

import asyncio
import secrets
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import cycle, islice
from uuid import uuid4

from gpu_workers.engines.base import End, Engine, EngineBroken, Piece
from gpu_workers.engines.latency import Measured, Profile
from gpu_workers.messages import ChatMessage, GenerateTask, Sampling

# Prose, as long as is wanted: small models end their answer at once after one word said many times.
FILLING = (
    "The tide was low and the boats lay on the sand. An old sailor told the children about a storm that had taken the"
    " lighthouse, and about the summer in which they built it again, stone by stone, from what the sea gave back."
)
QUESTION = "Write a very long story about the sea, with many chapters, and do not end it."
DEADLINE_S = 600.0
# A first token may be none that is text, such as half a character: a few are asked for.
FIRST_TOKENS = 4
# A small model may end its answer before it says anything: it is asked again, and not for ever.
TRIES = 5


@dataclass(frozen=True)
class Plan:
    """`words` of the prompts whose first token is timed, `repeats` times each; `at_once` requests of `answer_tokens`,
    `rounds` times each."""

    words: tuple[int, ...] = (8, 64, 256, 1024)
    repeats: int = 10
    at_once: tuple[int, ...] = (1, 2, 4, 8)
    rounds: int = 3
    answer_tokens: int = 64


@dataclass(frozen=True)
class Timed:
    """One answer, in milliseconds. `gaps_ms` has one for each token after the first."""

    prompt_tokens: int
    ttft_ms: float
    gaps_ms: list[float]


async def measure(engine: Engine, plan: Plan, *, name: str, model: str, host: str) -> Profile:
    """Raises `EngineBroken` and `EngineRefused`, and `EngineBroken` where it does not count its tokens."""
    await answer(engine, 8, plan.answer_tokens)  # what an engine prepares for its first request is no latency of it
    return Profile(
        version=1,
        engine=name,
        model=model,
        host=host,
        measured_on=datetime.now(UTC).date().isoformat(),
        ttft=await _first_tokens(engine, plan),
        itl=tuple([await _next_tokens(engine, plan, at_once) for at_once in sorted(set(plan.at_once))]),
    )


async def _first_tokens(engine: Engine, plan: Plan) -> tuple[Measured, ...]:
    by_length: dict[int, list[float]] = {}
    for words in plan.words:
        timed = [await answer(engine, words, FIRST_TOKENS) for _ in range(plan.repeats)]
        # Prompts of one length differ by a token or two: what was said is told apart, not counted.
        middle = sorted(one.prompt_tokens for one in timed)[len(timed) // 2]
        by_length.setdefault(middle, []).extend(one.ttft_ms for one in timed)
    return tuple(Measured.of(length, by_length[length]) for length in sorted(by_length))


async def _next_tokens(engine: Engine, plan: Plan, at_once: int) -> Measured:
    gaps: list[float] = []
    for _ in range(plan.rounds):
        timed = await asyncio.gather(*(answer(engine, 8, plan.answer_tokens) for _ in range(at_once)))
        gaps += [gap for one in timed for gap in one.gaps_ms]
    if not gaps:
        raise EngineBroken("The engine's answers had no second token.")
    return Measured.of(at_once, gaps)


async def answer(engine: Engine, words: int, answer_tokens: int) -> Timed:
    """Ask in words that the engine has not in its cache, until it says something."""
    for _ in range(TRIES):
        timed = await _ask(engine, words, answer_tokens)
        if timed is not None:
            return timed
    raise EngineBroken("The engine's answers have no text.")


async def _ask(engine: Engine, words: int, answer_tokens: int) -> Timed | None:
    """None where the answer has no text."""
    started = before = time.perf_counter()
    ttft_ms, counted, gaps, prompt_tokens = 0.0, 0, [], 0
    async for item in engine.stream(_task(words, answer_tokens)):
        now = time.perf_counter()
        if isinstance(item, Piece):
            tokens = max((item.usage.completion_tokens if item.usage else counted + 1) - counted, 1)
            if counted:
                gaps += [(now - before) * 1000 / tokens] * tokens
            else:
                ttft_ms = (now - started) * 1000
            counted, before = counted + tokens, now
        elif isinstance(item, End) and item.usage:
            prompt_tokens = item.usage.prompt_tokens
    if not prompt_tokens:
        raise EngineBroken("The engine does not count the prompt's tokens.")
    return Timed(prompt_tokens, ttft_ms, gaps) if counted else None


def _task(words: int, answer_tokens: int) -> GenerateTask:
    salt = secrets.token_hex(8)
    filling = " ".join(islice(cycle(FILLING.split()), words))
    return GenerateTask(
        exchange=uuid4(),
        attempt=1,
        request_id=f"profile-{salt}",
        reply_to="",
        owner="",
        deadline=time.time() + DEADLINE_S,
        priority=0,
        cache_salt=salt,
        messages=(ChatMessage("user", f"{salt} {filling} {QUESTION}"),),
        sampling=Sampling(max_tokens=answer_tokens, temperature=1.0),
    )

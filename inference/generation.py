"""Generation: one exchange's answer as it comes back, over as many attempts as it takes.

Recovery is decided here and nowhere else (docs/decisions/0003): this module watches the worker's heartbeat, the
deadline and the stream, and tries once more where nothing has been generated yet.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from decimal import Decimal

import msgspec
import structlog

from gpu_workers.messages import Claimed, Delta, Done, Failed, FinishReason, Frame, Usage, decode_frame
from gpu_workers.sealing import SealBroken, Sealer, frame_place
from inference.admission import broker_gone
from inference.catalog import Candidate
from inference.dispatch import Dispatcher, Prompt
from inference.errors import CODES, Refusal
from inference.metering import cost_of
from inference.models import AttemptStatus
from inference.replies import BrokerLost, CancelAsked, Inbox, Sealed

log = structlog.get_logger(__name__)

MAX_ATTEMPTS = 2
WATCH_S = 0.5
# How long a task may lie in the queue while ready workers exist, and how long a lost one waits for another worker.
CLAIM_TIMEOUT_S = 5.0
RETRY_WAIT_S = 5.0
# How long a cancelled attempt is waited for, to learn what it used.
CANCEL_WAIT_S = 1.0
NOT_CLAIMED = "not_claimed"


class AttemptLost(Exception):
    """The attempt ended without an answer and without the request's fault."""

    def __init__(self, status: AttemptStatus, code: str) -> None:
        super().__init__(code)
        self.status = status
        self.code = code


@dataclass
class AttemptRun:
    """What is known of one attempt; it becomes a row when the exchange ends. Times in milliseconds."""

    number: int
    candidate: Candidate
    started: float = field(default_factory=time.monotonic)
    worker: str = ""
    status: AttemptStatus = AttemptStatus.LOST
    error_code: str = ""
    queued_ms: float | None = None
    ttft_ms: float | None = None
    usage: Usage | None = None
    looks_without_heartbeat: int = 0

    def elapsed_ms(self) -> float:
        return (time.monotonic() - self.started) * 1000


# Told where the next attempt goes and by which code the one before it was lost.
Moved = Callable[[Candidate, str], None]


class Generation:
    """One exchange's generation over as many attempts as it takes: start it, then iterate `text`.

    `candidate` is where the latest attempt went; `fallbacks` are where another may go, in order.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        candidate: Candidate,
        prompt: Prompt,
        *,
        fallbacks: tuple[Candidate, ...] = (),
        moved: Moved | None = None,
        max_attempts: int = MAX_ATTEMPTS,
    ) -> None:
        self._dispatcher = dispatcher
        self.candidate = candidate
        self._fallbacks = fallbacks
        self._moved = moved
        self._max_attempts = max_attempts
        self._prompt = prompt
        self._inbox: Inbox | None = None
        self._produced = False
        self._cancelled = False
        self._ended = False
        self.attempts: list[AttemptRun] = []
        self.finish_reason: FinishReason = "stop"

    @property
    def usage(self) -> Usage:
        """What all attempts used together."""
        used = [attempt.usage for attempt in self.attempts if attempt.usage is not None]
        return Usage(
            prompt_tokens=sum(usage.prompt_tokens for usage in used),
            cached_tokens=sum(usage.cached_tokens for usage in used),
            completion_tokens=sum(usage.completion_tokens for usage in used),
            estimated=any(usage.estimated for usage in used) or len(used) < len(self.attempts),
        )

    @property
    def cost(self) -> Decimal:
        """USD: each attempt's usage at the prices of where it went."""
        used = [attempt for attempt in self.attempts if attempt.usage is not None]
        return sum((cost_of(attempt.usage, attempt.candidate.prices) for attempt in used if attempt.usage), Decimal(0))

    async def start(self) -> None:
        """Send the first attempt. Raises `Refusal`."""
        if not self._cancelled:
            await self._send_attempt()

    def cancel(self) -> None:
        """End the answer with what there is; `text` then ends with `finish_reason` cancelled."""
        self._cancelled = True
        if self._inbox is not None:
            self._inbox.put_nowait(CancelAsked())

    async def close(self) -> None:
        """Stop whatever still runs: for an exchange that ends before its answer does."""
        if self.attempts and not self._ended:
            await self._give_up(self.attempts[-1])

    async def text(self) -> AsyncIterator[str]:
        """The answer's text as it comes. Raises `Refusal`."""
        lost_on: frozenset[str] = frozenset()
        while not self._cancelled or self.attempts:
            attempt = self.attempts[-1]
            try:
                async for text in self._read(attempt):
                    yield text
                return
            except AttemptLost as lost:
                attempt.status, attempt.error_code = lost.status, lost.code
                self._dispatcher.replies.close(self._prompt.exchange_id, attempt.number)
                lost_on |= {attempt.worker}
                await self._prepare_retry(lost, lost_on)
                await self._send_attempt()
        self.finish_reason = "cancelled"
        self._ended = True

    async def _prepare_retry(self, lost: AttemptLost, lost_on: frozenset[str]) -> None:
        log.warning("attempt_lost", request_id=self._prompt.request_id, attempt=len(self.attempts), code=lost.code)
        failed = Refusal("engine_failed", "The engine failed and no other attempt was possible.")
        if lost.code == NOT_CLAIMED:
            failed = Refusal("overloaded", "No worker took the request in time.", retry_after_s=5)
        if lost.code == "broker_lost":
            self._ended = True
            raise broker_gone()
        if self._produced or len(self.attempts) >= self._max_attempts or self._left_s() <= 0:
            self._ended = True
            raise failed
        places = self._places(lost)
        wait_s = min(RETRY_WAIT_S, self._left_s())
        found = await self._dispatcher.fleet.wait_ready(list(places), without=lost_on, timeout_s=wait_s)
        if found is None:
            self._ended = True
            raise failed
        self.candidate = places[found]
        if self._moved is not None:
            self._moved(self.candidate, lost.code)

    def _places(self, lost: AttemptLost) -> dict[str, Candidate]:
        """Where another attempt may go, in order: the same deployment first, unless nobody there took the task."""
        others = [place for place in self._fallbacks if place.deployment != self.candidate.deployment]
        places = [*others, self.candidate] if lost.code == NOT_CLAIMED else [self.candidate, *others]
        return {place.deployment: place for place in places}

    async def _send_attempt(self) -> None:
        attempt = AttemptRun(number=len(self.attempts) + 1, candidate=self.candidate)
        self._inbox = self._dispatcher.replies.open(self._prompt.exchange_id, attempt.number)
        self.attempts.append(attempt)
        await self._dispatcher.publish(self.candidate, self._prompt, attempt.number)

    async def _read(self, attempt: AttemptRun) -> AsyncIterator[str]:
        sealer = self._dispatcher.sealer(self._prompt.exchange_id)
        expected = 0
        cancel_until: float | None = None
        if self._cancelled and self._inbox is not None:
            self._inbox.put_nowait(CancelAsked())
        while True:
            item = await self._next(attempt, cancel_until)
            if isinstance(item, BrokerLost):
                raise AttemptLost(AttemptStatus.LOST, "broker_lost")
            if isinstance(item, CancelAsked):
                if cancel_until is None:
                    cancel_until = time.monotonic() + CANCEL_WAIT_S
                    await self._dispatcher.cancel(self._prompt.exchange_id, attempt.number)
                    if not attempt.worker:  # nobody has begun: there is nothing to wait for
                        cancel_until = time.monotonic()
                continue
            if item is None:
                self._end(attempt, "cancelled", attempt.usage)
                return
            if item.sequence != expected:
                raise AttemptLost(AttemptStatus.LOST, "reply_gap")
            expected += 1
            frame = self._open(sealer, attempt, item.sequence, item.data)
            if isinstance(frame, Delta):
                if cancel_until is None:
                    yield self._note_text(attempt, frame.text)
            elif self._note_frame(attempt, frame):
                return

    async def _next(self, attempt: AttemptRun, cancel_until: float | None) -> Sealed | BrokerLost | CancelAsked | None:
        """The inbox's next item; None when a cancelled attempt has been waited for long enough."""
        assert self._inbox is not None  # noqa: S101 - opened before it is read
        while True:
            try:
                async with asyncio.timeout(self._patience_s(cancel_until)):
                    return await self._inbox.get()
            except TimeoutError:
                if cancel_until is not None:
                    if time.monotonic() >= cancel_until:
                        return None
                    continue
                await self._look_after(attempt)

    def _patience_s(self, cancel_until: float | None) -> float:
        until = WATCH_S if cancel_until is None else cancel_until - time.monotonic()
        return max(0.0, min(WATCH_S, until, max(self._left_s(), 0.01)))

    async def _look_after(self, attempt: AttemptRun) -> None:
        """Called while nothing comes. Raises `Refusal` past the deadline, `AttemptLost` when nobody works on it."""
        if self._left_s() <= 0:
            await self._give_up(attempt)
            attempt.status, attempt.error_code = AttemptStatus.FAILED, "deadline_exceeded"
            raise Refusal("deadline_exceeded", "The deadline passed before the answer was whole.")
        state = self._dispatcher.fleet.current()
        if attempt.worker:
            if state.broker and attempt.worker not in state.workers:
                # Twice: the fleet is polled, and a worker that has just come may not be in it yet.
                attempt.looks_without_heartbeat += 1
            if attempt.looks_without_heartbeat >= 2:
                raise AttemptLost(AttemptStatus.LOST, "worker_lost")
        elif attempt.elapsed_ms() > CLAIM_TIMEOUT_S * 1000:
            # It may lie in a queue that nobody reads, or with a worker that died before it said anything.
            await self._dispatcher.cancel(self._prompt.exchange_id, attempt.number)
            raise AttemptLost(AttemptStatus.LOST, NOT_CLAIMED)

    async def _give_up(self, attempt: AttemptRun) -> None:
        self._ended = True
        self._dispatcher.replies.close(self._prompt.exchange_id, attempt.number)
        await self._dispatcher.cancel(self._prompt.exchange_id, attempt.number)

    def _left_s(self) -> float:
        return self._prompt.deadline_at.timestamp() - time.time()

    @staticmethod
    def _open(sealer: Sealer, attempt: AttemptRun, sequence: int, data: bytes) -> Frame:
        try:
            return decode_frame(sealer.open(data, place=frame_place(attempt.number, sequence)))
        except (SealBroken, msgspec.MsgspecError):
            raise AttemptLost(AttemptStatus.LOST, "reply_broken") from None

    def _note_text(self, attempt: AttemptRun, text: str) -> str:
        self._produced = True
        if attempt.ttft_ms is None:
            attempt.ttft_ms = attempt.elapsed_ms()
        return text

    def _note_frame(self, attempt: AttemptRun, frame: Claimed | Done | Failed) -> bool:
        """True when the answer has ended. Raises `AttemptLost`, `Refusal`."""
        if isinstance(frame, Claimed):
            attempt.worker = frame.worker
            attempt.queued_ms = attempt.elapsed_ms()
            return False
        if isinstance(frame, Done):
            self._end(attempt, frame.finish_reason, frame.usage)
            return True
        attempt.usage = frame.usage
        attempt.error_code = frame.code
        attempt.status = AttemptStatus.FAILED
        if self._cancelled:
            self._end(attempt, "cancelled", frame.usage)
            return True
        if frame.code in ("engine_failed", "worker_draining") or frame.code not in CODES:
            raise AttemptLost(AttemptStatus.FAILED, frame.code)
        self._ended = True
        param = "messages" if frame.code == "context_length_exceeded" else None
        raise Refusal(frame.code, frame.message, param=param)

    def _end(self, attempt: AttemptRun, reason: FinishReason, usage: Usage | None) -> None:
        self._ended = True
        self._dispatcher.replies.close(self._prompt.exchange_id, attempt.number)
        attempt.usage = usage
        attempt.status = AttemptStatus.CANCELLED if reason == "cancelled" else AttemptStatus.FINISHED
        self.finish_reason = reason


def ending(generation: Generation) -> tuple[str, int]:
    """How the last attempt ended, empty where the answer came to its end; and the tokens of that answer."""
    last = generation.attempts[-1] if generation.attempts else None
    tokens = last.usage.completion_tokens if last and last.usage else 0
    if last is not None and last.status is AttemptStatus.FINISHED:
        return "", tokens
    return (last.error_code if last else "") or "cancelled", tokens

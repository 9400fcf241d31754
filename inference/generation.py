"""Generation: one exchange's answer as it comes back, over as many attempts as it takes.

Recovery is decided here and nowhere else (docs/decisions/0003): this module watches the worker's heartbeat, the
deadline and the stream, and has another worker go on where one was lost.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from decimal import Decimal

import msgspec
import structlog

from gpu_workers.messages import Claimed, Delta, Done, Failed, FinishReason, Frame, Heartbeat, Usage, decode_frame
from gpu_workers.sealing import SealBroken, Sealer, frame_place
from inference.admission import broker_gone
from inference.attempts import AttemptLost, AttemptRun, billed, completion_tokens, total_cost, usage_of
from inference.catalog import Candidate
from inference.dispatch import Dispatcher, Prompt
from inference.errors import CODES, Refusal
from inference.exchange_models import AttemptStatus
from inference.fleet import Lost
from inference.replies import BrokerLost, CancelAsked, Inbox, Sealed
from inference.seam import AnswersDiffer, Seam

log = structlog.get_logger(__name__)

# A prompt that takes engines with it is not given to one after the other: so many attempts in all, and so many that
# brought the answer no further.
MAX_ATTEMPTS, MAX_WITHOUT_PROGRESS = 8, 4
WATCH_S = 0.5
# How long a task may lie in the queue while ready workers exist.
CLAIM_TIMEOUT_S = 5.0
# How long another worker is waited for: by an answer that nobody has seen anything of, which is better refused and
# asked again; and by one that has begun, for which even an engine that starts anew is worth it.
RETRY_WAIT_S = 5.0
RESUME_WAIT_S = 90.0
# How long a cancelled attempt is waited for, to learn what it used.
CANCEL_WAIT_S = 1.0
NOT_CLAIMED = "not_claimed"

# Told where the next attempt goes, and of the one before it, which was lost.
Moved = Callable[[Candidate, AttemptRun], None]


class Generation:
    """One exchange's generation over as many attempts as it takes: start it, then iterate `text`.

    `candidate` is where the latest attempt went; `fallbacks` are where another may go, in order. `worker` is the one
    that the first attempt is for, None for whichever of the deployment's takes it.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        candidate: Candidate,
        prompt: Prompt,
        *,
        worker: str | None = None,
        fallbacks: tuple[Candidate, ...] = (),
        moved: Moved | None = None,
        max_attempts: int = MAX_ATTEMPTS,
    ) -> None:
        self._dispatcher = dispatcher
        self.candidate = candidate
        self._worker = worker
        self._fallbacks = fallbacks
        self._moved = moved
        self._max_attempts = max_attempts
        self._prompt = prompt
        self._inbox: Inbox | None = None
        self._said: list[str] = []
        self._seam = Seam("", repeats=False)
        self._lost: list[Lost] = []
        self._cancelled = asyncio.Event()
        self._ended = False
        self.attempts: list[AttemptRun] = []
        self.finish_reason: FinishReason = "stop"

    @property
    def usage(self) -> Usage:
        """What all attempts are billed for together."""
        return usage_of(self.attempts)

    @property
    def cost(self) -> Decimal:
        """USD."""
        return total_cost(self.attempts)

    async def start(self) -> None:
        """Send the first attempt. Raises `Refusal`."""
        if not self._cancelled.is_set():
            await self._send_attempt()

    def cancel(self) -> None:
        """End the answer with what there is; `text` then ends with `finish_reason` cancelled."""
        self._cancelled.set()
        if self._inbox is not None:
            self._inbox.put_nowait(CancelAsked())

    async def close(self) -> None:
        """Stop whatever still runs: for an exchange that ends before its answer does."""
        if self.attempts and not self._ended:
            await self._give_up(self.attempts[-1])

    async def text(self) -> AsyncIterator[str]:
        """The answer's text as it comes, however many attempts it takes. Raises `Refusal`."""
        while self.attempts and not self._ended:
            attempt = self.attempts[-1]
            try:
                async for piece in self._read(attempt):
                    if text := self._seam.join(piece):
                        self._said.append(text)
                        yield text
                if not self._cancelled.is_set():
                    self._seam.end()
                return
            except AttemptLost as lost:
                await self._move(attempt, lost)
            except AnswersDiffer:
                attempt.status, attempt.error_code = AttemptStatus.FAILED, "answers_differ"
                await self._give_up(attempt)
                raise _engine_failed() from None
        if not self.attempts:
            self.finish_reason = "cancelled"
            self._ended = True

    async def _move(self, attempt: AttemptRun, lost: AttemptLost) -> None:
        """Have another worker go on. Raises `Refusal` where none can; returns with the answer ended or under way."""
        log.warning("attempt_lost", request_id=self._prompt.request_id, attempt=attempt.number, code=lost.code)
        attempt.status, attempt.error_code = lost.status, lost.code
        self._dispatcher.replies.close(self._prompt.exchange_id, attempt.number)
        if lost.code == "broker_lost":
            self._ended = True
            raise broker_gone()
        # It may be late and not dead: its place in the engine is somebody else's now.
        await self._dispatcher.cancel(self._prompt.exchange_id, attempt.number)
        after = completion_tokens(billed(self.attempts)) if self._said else 0
        if after >= self._prompt.sampling.max_tokens:
            self._end(attempt, "length", attempt.usage)  # it was whole: only its last frame is missing
            return
        if await self._find_place(attempt, lost):
            await self._send_attempt(after)

    async def _find_place(self, attempt: AttemptRun, lost: AttemptLost) -> bool:
        """False where the caller cancels meanwhile: the answer has ended then. Raises `Refusal`."""
        wait_s = min(RESUME_WAIT_S if self._said else RETRY_WAIT_S, self._left_s())
        if attempt.place:
            self._lost.append(Lost.now(attempt.place, attempt.epoch))
        if self._may_try_again() and wait_s > 0:
            places = self._places(lost)
            found = await self._wait(self._dispatcher.fleet.wait_ready(list(places), self._lost, timeout_s=wait_s))
            if self._cancelled.is_set():
                self._end(attempt, "cancelled", attempt.usage)
                return False
            if found is not None:
                self.candidate, self._worker = places[found.deployment], found.worker
                if self._moved is not None:
                    self._moved(self.candidate, attempt)
                return True
        self._ended = True
        if self._left_s() <= 0:
            raise _deadline_exceeded()
        if lost.code == NOT_CLAIMED:
            raise Refusal("overloaded", "No worker took the request in time.", retry_after_s=5)
        raise _engine_failed()

    def _may_try_again(self) -> bool:
        latest = self.attempts[-MAX_WITHOUT_PROGRESS:]
        stands_still = len(latest) == MAX_WITHOUT_PROGRESS and all(attempt.ttft_ms is None for attempt in latest)
        return len(self.attempts) < self._max_attempts and not stands_still

    async def _wait(self, ready: Coroutine[None, None, Heartbeat | None]) -> Heartbeat | None:
        """What `ready` finds; None as soon as the caller cancels."""
        finding, cancelled = asyncio.create_task(ready), asyncio.create_task(self._cancelled.wait())
        try:
            await asyncio.wait({finding, cancelled}, return_when=asyncio.FIRST_COMPLETED)
            return finding.result() if finding.done() else None
        finally:
            finding.cancel()
            cancelled.cancel()

    def _places(self, lost: AttemptLost) -> dict[str, Candidate]:
        """Where another attempt may go, in order: the same deployment first, unless nobody there took the task."""
        others = [place for place in self._fallbacks if place.deployment != self.candidate.deployment]
        places = [*others, self.candidate] if lost.code == NOT_CLAIMED else [self.candidate, *others]
        return {place.deployment: place for place in places}

    async def _send_attempt(self, after_tokens: int = 0) -> None:
        # Some engines cannot be told how their answer begins, and a schema is met from its first character on.
        repeats = bool(self._said) and (not self.candidate.continues or bool(self._prompt.sampling.response_format))
        attempt = AttemptRun(len(self.attempts) + 1, self.candidate, after_tokens, repeats, self._worker)
        self._seam = Seam("".join(self._said), repeats=repeats)
        self._inbox = self._dispatcher.replies.open(self._prompt.exchange_id, attempt.number)
        self.attempts.append(attempt)
        prompt = self._prompt if repeats else self._prompt.after(self._seam.told, after_tokens)
        await self._dispatcher.publish(self.candidate, prompt, attempt.number, self._worker)

    async def _read(self, attempt: AttemptRun) -> AsyncIterator[str]:
        sealer = self._dispatcher.sealer(self._prompt.exchange_id)
        expected = 0
        cancel_until: float | None = None
        if self._cancelled.is_set() and self._inbox is not None:
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
                attempt.usage = frame.usage or attempt.usage
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
            raise _deadline_exceeded()
        state = self._dispatcher.fleet.current()
        if attempt.place:
            if state.broker and attempt.place not in state.workers:
                # Twice: the fleet is polled, and a worker that has just come may not be in it yet.
                attempt.looks_without_heartbeat += 1
            if attempt.looks_without_heartbeat >= 2:
                raise AttemptLost(AttemptStatus.LOST, "worker_lost")
        if not attempt.worker and attempt.elapsed_ms() > CLAIM_TIMEOUT_S * 1000:
            # It may lie in a queue that nobody reads, or with a worker that died before it said anything.
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

    @staticmethod
    def _note_text(attempt: AttemptRun, text: str) -> str:
        if attempt.ttft_ms is None:
            attempt.ttft_ms = attempt.elapsed_ms()
        return text

    def _note_frame(self, attempt: AttemptRun, frame: Claimed | Done | Failed) -> bool:
        """True when the answer has ended. Raises `AttemptLost`, `Refusal`."""
        if isinstance(frame, Claimed):
            attempt.worker, attempt.epoch = frame.worker, frame.epoch
            attempt.queued_ms = attempt.elapsed_ms()
            return False
        if isinstance(frame, Done):
            self._end(attempt, frame.finish_reason, frame.usage)
            return True
        attempt.usage = frame.usage or attempt.usage
        attempt.error_code = frame.code
        attempt.status = AttemptStatus.FAILED
        if self._cancelled.is_set():
            self._end(attempt, "cancelled", attempt.usage)
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


def _engine_failed() -> Refusal:
    return Refusal("engine_failed", "The engine failed and no other attempt was possible.")


def _deadline_exceeded() -> Refusal:
    return Refusal("deadline_exceeded", "The deadline passed before the answer was whole.")

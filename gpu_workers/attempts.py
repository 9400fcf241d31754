"""Attempts as a worker runs them: claim, stream from the engine to the reply, end in one last frame."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass

import structlog
from redis.asyncio import Redis
from redis.exceptions import RedisError

from gpu_workers.engines.base import End, Engine, EngineBroken, EngineRefused, Piece
from gpu_workers.messages import Claimed, Done, Failed, Frame, GenerateTask, Usage, cancelled_key
from gpu_workers.replies import ReplyChannel, ReplyWriter
from gpu_workers.sealing import Sealer

log = structlog.get_logger(__name__)

# An engine may split a character over pieces; twice the tokens and a few is far past any that counts.
SLACK_PIECES = 16


@dataclass
class _Running:
    owner: str
    work: asyncio.Task[Frame]
    draining: bool = False


class Attempts:
    """The attempts of one worker process. Lives on the runner's loop; nothing here is called from a thread."""

    def __init__(
        self, valkey: Redis, engine: Engine, seal_key: bytes, worker: str, on_broken: Callable[[], None] | None = None
    ) -> None:
        """`on_broken` is called whenever an attempt finds the engine broken."""
        self._valkey = valkey
        self._replies = ReplyChannel(valkey)
        self._engine = engine
        self._seal_key = seal_key
        self._worker = worker
        self._on_broken = on_broken
        # Starts of the engine that were seen; whoever watches it counts them up.
        self.epoch = 1
        self._running: dict[str, _Running] = {}
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def running(self) -> int:
        return len(self._running)

    def owners(self) -> set[str]:
        return {entry.owner for entry in self._running.values()}

    def cancel(self, name: str) -> None:
        """Cancel the attempt called `<exchange>:<attempt>`, if it runs here."""
        if entry := self._running.get(name):
            entry.work.cancel()

    def cancel_owner(self, owner: str) -> int:
        gone = [entry for entry in self._running.values() if entry.owner == owner]
        for entry in gone:
            entry.work.cancel()
        return len(gone)

    def drain(self) -> None:
        """End every attempt with a failure that tells its owner to try elsewhere."""
        for entry in self._running.values():
            entry.draining = True
            entry.work.cancel()

    async def settled(self) -> None:
        await self._idle.wait()

    async def run(self, task: GenerateTask) -> None:
        """Run `task` to its last frame. Raises nothing: what goes wrong is told to the owner."""
        name = f"{task.exchange}:{task.attempt}"
        reply = ReplyWriter(self._replies, Sealer(self._seal_key, task.exchange), task)
        counted = _Counted()
        work = asyncio.create_task(self._work(task, name, reply, counted))
        entry = self._running[name] = _Running(task.owner, work)
        self._idle.clear()
        try:
            last = await self._last_frame(entry, counted)
            await reply.frame(last)
            _log_end(task, last, counted)
        except RedisError as error:
            log.warning("reply_lost", request_id=task.request_id, error=type(error).__name__)
        finally:
            del self._running[name]
            if not self._running:
                self._idle.set()

    async def _last_frame(self, entry: _Running, counted: _Counted) -> Frame:
        try:
            return await entry.work
        except asyncio.CancelledError:
            if entry.draining:
                return Failed("worker_draining", "The worker is shutting down.", counted.usage())
            return Done("cancelled", counted.usage())
        except EngineRefused as error:
            return Failed(error.code, error.message)
        except EngineBroken as error:
            if self._on_broken is not None:
                self._on_broken()
            return Failed("engine_failed", str(error), counted.usage())
        except TimeoutError:
            return Failed("deadline_exceeded", "The deadline passed.", counted.usage())
        except RedisError:
            raise
        except Exception as error:
            # Without its text, which could quote what was said.
            log.error("attempt_broken", error=type(error).__name__)
            return Failed("engine_failed", "The worker failed.", counted.usage())

    async def _work(self, task: GenerateTask, name: str, reply: ReplyWriter, counted: _Counted) -> Frame:
        left = task.deadline - time.time()
        if left <= 0:
            raise TimeoutError
        async with asyncio.timeout(left):
            reply.now(Claimed(self._worker, self.epoch))
            # The attempt is registered before this look, so that a cancel is seen by one of the two. The engine begins
            # meanwhile: a round trip is a tenth of what the platform adds to a first token.
            look = asyncio.create_task(self._cancel_if_asked_before(task, name))
            try:
                return await self._stream(task, reply, counted)
            finally:
                look.cancel()

    async def _cancel_if_asked_before(self, task: GenerateTask, name: str) -> None:
        try:
            if await self._valkey.exists(cancelled_key(task.exchange, task.attempt)):
                self.cancel(name)
        except (RedisError, OSError) as error:
            # The attempt's own frames cannot arrive either; it ends with the first of them that fails.
            log.warning("cancel_not_looked_for", request_id=task.request_id, error=type(error).__name__)

    async def _stream(self, task: GenerateTask, reply: ReplyWriter, counted: _Counted) -> Frame:
        async with aclosing(self._engine.stream(task)) as stream:  # type: ignore[type-var]
            async for item in stream:
                if isinstance(item, End):
                    return Done(item.finish_reason, item.usage or counted.usage())
                counted.add(item)
                reply.delta(item.text, counted.usage())
                if counted.pieces >= 2 * task.sampling.max_tokens + SLACK_PIECES:
                    # A piece is a token or more: this engine ignores what it was asked for.
                    return Done("length", counted.usage())
        raise EngineBroken("The engine closed the answer before its end.")


@dataclass
class _Counted:
    """The count of an answer that is cut: the engine's last word on it, or one token for each piece."""

    pieces: int = 0
    last: Usage | None = None

    def add(self, piece: Piece) -> None:
        self.pieces += 1
        self.last = piece.usage or self.last

    def usage(self) -> Usage:
        return self.last or Usage(prompt_tokens=0, cached_tokens=0, completion_tokens=self.pieces, estimated=True)


def _log_end(task: GenerateTask, last: Frame, counted: _Counted) -> None:
    how = last.finish_reason if isinstance(last, Done) else getattr(last, "code", "")
    log.info(
        "attempt_ended",
        request_id=task.request_id,
        exchange=str(task.exchange),
        attempt=task.attempt,
        ended=how,
        tokens=counted.usage().completion_tokens,
    )

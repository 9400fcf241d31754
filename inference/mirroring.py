"""Mirrors: a copy of a request for another deployment, measured and kept as an attempt, and shown to nobody."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

import structlog

from compliance.audit.writer import GroupWriter
from gpu_workers.identifiers import uuid7
from inference.attempts import ending
from inference.catalog import Candidate
from inference.dispatch import Dispatcher, Prompt
from inference.errors import Refusal, log_unexpected
from inference.events import DEADLINE_S
from inference.exchange_models import MIRROR_NUMBER
from inference.exchanges import insert_attempt
from inference.generation import Generation
from inference.routing.live import LiveState

log = structlog.get_logger(__name__)

MAX_AT_ONCE = 32


class Mirrors:
    """A copy leaves after the answer's last event: it cannot delay what it copies. Copies go where nobody else is
    paid: an external deployment's tokens would be on no budget."""

    def __init__(self, dispatcher: Dispatcher, writer: GroupWriter, live: LiveState) -> None:
        self._dispatcher = dispatcher
        self._writer = writer
        self._live = live
        self._running: set[asyncio.Task[None]] = set()

    def send(self, exchange: UUID, place: Candidate | None, prompt: Prompt) -> None:
        """Copy the request to `place`, unless there is none or too many copies are under way."""
        if place is None or place.external or len(self._running) >= MAX_AT_ONCE:
            return
        task = asyncio.create_task(self._copy(exchange, place, prompt), name=f"mirror-{exchange}")
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def stop(self) -> None:
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    async def _copy(self, exchange: UUID, place: Candidate, prompt: Prompt) -> None:
        copy = replace(
            prompt,
            exchange_id=uuid7(),
            deadline_at=datetime.now(UTC) + timedelta(seconds=DEADLINE_S),
            priority="batch",
        )
        generation = Generation(self._dispatcher, place, copy, max_attempts=1)
        if not self._live.begin(copy.exchange_id, place.deployment, 0, 0.0, time.monotonic()):
            return  # its breaker is open
        try:
            await generation.start()
            await self._read(generation, copy.exchange_id)
        except Refusal as refusal:
            log.info("mirror_refused", exchange=str(exchange), code=refusal.code)
        except Exception as error:
            log_unexpected("mirror_failed", error, exchange=str(exchange))
        finally:
            await generation.close()
            self._live.ended(copy.exchange_id, *ending(generation.attempts), time.monotonic())
        for attempt in generation.attempts:
            self._writer.submit([insert_attempt(exchange, MIRROR_NUMBER, attempt)])

    async def _read(self, generation: Generation, copy: UUID) -> None:
        """The text is nobody's: it is counted by the engine and forgotten here."""
        first = True
        async for _ in generation.text():
            if first:
                self._live.first_token(copy, time.monotonic())
                first = False

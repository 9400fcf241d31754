"""Answers in progress in this process. Each runs in a task of its own, so that a transport that goes away
cancels the generation but never the record of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress

import structlog

from inference.cancellation import Cancellation
from inference.events import Ask, Caller, Event
from inference.pipeline import Pipeline

log = structlog.get_logger(__name__)

SHUTDOWN_TIMEOUT_S = 5.0


class Answers:
    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._running: dict[asyncio.Task[None], Cancellation] = {}

    def start(self, ask: Ask, caller: Caller, on_event: Callable[[Event], None]) -> Cancellation:
        """Serve `ask` and hand every event to `on_event`, which must not block."""
        return self._start(ask, caller, on_event)[1]

    def _start(
        self, ask: Ask, caller: Caller, on_event: Callable[[Event], None]
    ) -> tuple[asyncio.Task[None], Cancellation]:
        cancellation = Cancellation()
        task = asyncio.create_task(self._run(ask, caller, cancellation, on_event), name=f"answer-{ask.exchange_id}")
        self._running[task] = cancellation
        task.add_done_callback(lambda done: self._running.pop(done, None))
        return task, cancellation

    async def events(self, ask: Ask, caller: Caller) -> AsyncGenerator[Event, None]:
        """The same as an iterator; closing it early cancels the answer, whose outcome is recorded all the same."""
        queue: asyncio.Queue[Event | None] = asyncio.Queue()
        task, cancellation = self._start(ask, caller, queue.put_nowait)
        task.add_done_callback(lambda _: queue.put_nowait(None))
        try:
            while (event := await queue.get()) is not None:
                yield event
        finally:
            cancellation.cancel()

    async def stop(self) -> None:
        """Cancel what runs and wait until its outcomes are recorded."""
        for cancellation in self._running.values():
            cancellation.cancel()
        if self._running:
            with suppress(TimeoutError):
                await asyncio.wait(set(self._running), timeout=SHUTDOWN_TIMEOUT_S)

    async def _run(
        self, ask: Ask, caller: Caller, cancellation: Cancellation, on_event: Callable[[Event], None]
    ) -> None:
        async for event in self._pipeline.serve(ask, caller, cancellation):
            on_event(event)

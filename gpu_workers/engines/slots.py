"""A deployment's engines on one host: one is active, and another may stand by, loaded, and take over when it dies.

Which is active is decided by a lock of the kernel's, which the active engine itself holds: there are never two, not
even of two supervisors, and it is free the moment that its holder is gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import structlog

from gpu_workers.engine_events import EventSender, Kind
from gpu_workers.engine_state import EngineState, write_state
from gpu_workers.engines.process import EngineCommand, EngineProcess
from gpu_workers.engines.watching import Watch

log = structlog.get_logger(__name__)

CHECK_S = 0.05
WAKE_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Patience:
    """Seconds: until an engine counts as silent or stuck, and for which answers may go on when it is shut down."""

    silent_s: float
    stuck_s: float
    drain_s: float


class Slots:
    """Runs the engines and says which is active. `sleeps` puts the one that stands by to sleep (vLLM's sleep mode)."""

    def __init__(
        self,
        engines: Sequence[EngineCommand],
        lock: Path,
        state: Path,
        patience: Patience,
        *,
        sleeps: bool = False,
        events: EventSender | None = None,
        model_checksum: str = "",
    ) -> None:
        self._state_file = state
        self._patience = patience
        self._sleeps = sleeps
        self._changed = asyncio.Event()
        self._events = events
        self._model_checksum = model_checksum
        self._telling: set[asyncio.Task[None]] = set()
        self._processes = [
            EngineProcess(engine, lock, partial(self._on_exit, number)) for number, engine in enumerate(engines)
        ]
        self._watches = [
            Watch(
                process,
                silent_s=patience.silent_s,
                stuck_s=patience.stuck_s,
                tell=partial(self._tell_platform, number),
            )
            for number, process in enumerate(self._processes)
        ]
        self._active: int | None = None
        self._asleep: dict[int, int] = {}
        self._put_down: dict[int, int] = {}
        self._epoch = 0
        self._untold: str | None = None

    async def run(self, stop: asyncio.Event) -> None:
        """Until `stop` is set; then the active engine is drained and all are ended.

        Raises what any of its parts raises, an engine that cannot be started at all for instance, with all ended too.
        """
        self._tell("")
        running = [asyncio.create_task(process.run()) for process in self._processes]
        choosing = asyncio.create_task(self._choose())
        beside: list[asyncio.Task[Any]] = [choosing, asyncio.create_task(stop.wait())]
        beside += [asyncio.create_task(watch.run()) for watch in self._watches]
        try:
            done, _ = await asyncio.wait({*running, *beside}, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
            choosing.cancel()
            await self._drain()
        finally:
            await asyncio.gather(*(process.stop() for process in self._processes))
            await asyncio.gather(*running, return_exceptions=True)
            for task in beside:
                task.cancel()
            await asyncio.gather(*beside, *self._telling, return_exceptions=True)

    def _on_exit(self, number: int, code: int) -> None:
        """Called by a process whose engine is gone; the lock that it held is free."""
        self._watches[number].forget()
        if self._active == number:
            self._active = None
            self._tell("")
        self._changed.set()
        self._tell_platform(number, "exited", code)

    def _tell_platform(self, number: int, kind: Kind, exit_code: int | None = None) -> None:
        if self._events is None:
            return
        process = self._processes[number]
        lines = tuple(process.last_lines) if kind == "exited" else ()
        task = asyncio.create_task(self._events.send(process.engine.url, kind, exit_code=exit_code, lines=lines))
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)

    async def _choose(self) -> None:
        """Whenever no engine is active, make the first that is ready so; put the others to sleep."""
        while True:
            self._changed.clear()
            if self._untold is not None:
                self._tell(self._untold)
            for number, watch in enumerate(self._watches):
                if watch.ready.is_set() and self._active is None and self._processes[number].try_lock():
                    await self._activate(number)
                elif watch.ready.is_set() and self._active not in (None, number):
                    await self._put_to_sleep(number)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), CHECK_S)

    async def _activate(self, number: int) -> None:
        process = self._processes[number]
        if self._asleep.pop(number, None) == process.starts and not await _ask(process.engine.url, "/wake_up"):
            process.kill()  # it does not wake: another start of it will do
            return
        if process.pid is None:
            return
        self._active = number
        self._epoch += 1
        log.info("engine_active", url=process.engine.url, epoch=self._epoch)
        self._tell(process.engine.url)
        self._tell_platform(number, "active")

    async def _put_to_sleep(self, number: int) -> None:
        process = self._processes[number]
        if not self._sleeps or self._put_down.get(number) == process.starts:
            return
        self._put_down[number] = process.starts  # once for each start: one that refuses goes on refusing
        if await _ask(process.engine.url, "/sleep?level=1"):
            self._asleep[number] = process.starts
        else:
            log.warning("engine_does_not_sleep", url=process.engine.url)

    async def _drain(self) -> None:
        """Take nothing new, and let what is being answered go on for a while; the rest goes on elsewhere."""
        self._tell("")
        if self._active is None:
            return
        watch = self._watches[self._active]
        with suppress(TimeoutError):
            async with asyncio.timeout(self._patience.drain_s):
                while watch.load.running or watch.load.waiting:  # noqa: ASYNC110 - what is polled anyway
                    await asyncio.sleep(CHECK_S)

    def _tell(self, url: str) -> None:
        """Where the file cannot be written, on a full disk, it is tried again until it can."""
        state = EngineState(f"{url}/v1" if url else "", self._epoch, self._model_checksum)
        try:
            write_state(self._state_file, state)
            self._untold = None
        except OSError as error:
            if self._untold is None:
                log.error("engine_state_not_written", error=type(error).__name__)
            self._untold = url


async def _ask(url: str, path: str) -> bool:
    """POST to vLLM's own endpoints for sleeping and waking; whether it did."""
    try:
        timeout = aiohttp.ClientTimeout(total=WAKE_TIMEOUT_S)
        async with aiohttp.ClientSession(timeout=timeout) as session, session.post(f"{url}{path}") as response:
            return response.status == 200
    except (aiohttp.ClientError, TimeoutError, OSError):
        return False

"""Whether an engine that runs also works: it answers, and while it has requests it makes tokens."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import aiohttp
import structlog

from gpu_workers.engine_events import Kind
from gpu_workers.engines.metrics import EngineLoad, parse_load
from gpu_workers.engines.process import EngineProcess

log = structlog.get_logger(__name__)

EVERY_S = 0.5
ANSWER_TIMEOUT_S = 2.0
MAX_PAGE_BYTES = 1_048_576


class Watch:
    """Looks at one engine process, start after start, and kills one that stands still."""

    def __init__(
        self, process: EngineProcess, *, silent_s: float, stuck_s: float, tell: Callable[[Kind], None] | None = None
    ) -> None:
        """An engine that answers nothing for `silent_s`, or makes no token of what it has for `stuck_s`, is dead.

        `tell` hears that it is ready, silent or stuck.
        """
        self._tell = tell or (lambda kind: None)
        self.ready = asyncio.Event()
        self.load = EngineLoad()
        self._process = process
        self._silent_s = silent_s
        self._stuck_s = stuck_s
        self._start = -1
        self._answered_at = 0.0
        self._moved_at = 0.0

    def forget(self) -> None:
        """The engine has ended: another start has to show itself."""
        self.ready.clear()
        self.load = EngineLoad()

    async def run(self) -> None:
        timeout = aiohttp.ClientTimeout(total=ANSWER_TIMEOUT_S)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            while True:
                if self._process.pid is not None:
                    await self._look(session)
                await asyncio.sleep(EVERY_S)

    async def _look(self, session: aiohttp.ClientSession) -> None:
        start = self._process.starts
        load = await _load(session, self._process.engine.url)
        at_s = time.monotonic()
        if start != self._process.starts or self._process.pid is None:
            return  # it ended meanwhile
        if start != self._start:
            self._start, self._answered_at, self._moved_at = start, at_s, at_s
        if load is None:
            if self.ready.is_set() and at_s - self._answered_at > self._silent_s:
                self._end("silent", self._silent_s)
            return
        self._answered_at = at_s
        if not self.ready.is_set():
            log.info("engine_ready", pid=self._process.pid, url=self._process.engine.url)
            self._process.was_ready = True
            self.ready.set()
            self._tell("ready")
        before, self.load = self.load, load
        if not load.running or (load.generated, load.read) != (before.generated, before.read):
            self._moved_at = at_s
        elif at_s - self._moved_at > self._stuck_s:
            self._end("stuck", self._stuck_s)

    def _end(self, how: Kind, after_s: float) -> None:
        log.error("engine_stalled", how=how, after_s=after_s, pid=self._process.pid)
        self.forget()
        self._tell(how)
        self._process.kill()


async def _load(session: aiohttp.ClientSession, url: str) -> EngineLoad | None:
    """What the engine says of itself; None where it does not answer as a healthy one."""
    try:
        async with session.get(f"{url}/health") as response:
            if response.status != 200:
                return None
        async with session.get(f"{url}/metrics") as response:
            page = await response.content.read(MAX_PAGE_BYTES)
            return parse_load(page.decode(errors="replace")) if response.status == 200 else EngineLoad()
    except (aiohttp.ClientError, TimeoutError, OSError):
        return None

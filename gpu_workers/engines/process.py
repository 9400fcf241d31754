"""An engine as a child process: started, watched, restarted with back-off, and never left behind."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
from collections.abc import Mapping, Sequence

import aiohttp
import structlog

log = structlog.get_logger(__name__)

FIRST_BACKOFF_S = 1.0
LONGEST_BACKOFF_S = 30.0
# A process that lived this long is not in a crash loop: its next restart is immediate again.
STEADY_AFTER_S = 60.0
STOP_TIMEOUT_S = 10.0
PR_SET_PDEATHSIG = 1


def _die_with_parent() -> None:
    """Runs in the child before exec: a supervisor that is killed takes its engine with it (Linux prctl)."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


class EngineProcess:
    """Keeps one engine process running until `stop`."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], health_url: str) -> None:
        self._command = list(command)
        self._environment = dict(environment)
        self._health_url = health_url
        self._process: asyncio.subprocess.Process | None = None
        self._stopping = asyncio.Event()

    async def run(self) -> None:
        """Start the engine and restart it whenever it exits, until `stop` is called."""
        backoff = FIRST_BACKOFF_S
        loop = asyncio.get_running_loop()
        while not self._stopping.is_set():
            started = loop.time()
            code = await self._run_once()
            if self._stopping.is_set():
                return
            if loop.time() - started > STEADY_AFTER_S:
                backoff = FIRST_BACKOFF_S
            log.error("engine_exited", exit_code=code, restart_in_s=backoff)
            await self._pause(backoff)
            backoff = min(backoff * 2, LONGEST_BACKOFF_S)

    async def _run_once(self) -> int:
        self._process = await asyncio.create_subprocess_exec(
            *self._command, env=self._environment, start_new_session=True, preexec_fn=_die_with_parent
        )
        log.info("engine_started", pid=self._process.pid)
        if self._stopping.is_set():  # asked for while the process was being made
            self._signal_group(signal.SIGKILL)
        watcher = asyncio.create_task(self._announce_health())
        try:
            return await self._process.wait()
        finally:
            watcher.cancel()
            # Engines start helpers of their own; what is left of the group would keep the port and the memory.
            self._signal_group(signal.SIGKILL)

    async def _announce_health(self) -> None:
        loop = asyncio.get_running_loop()
        started = loop.time()
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=2)) as session:
            while True:
                try:
                    async with session.get(self._health_url) as response:
                        if response.status == 200:
                            log.info("engine_ready", after_s=round(loop.time() - started, 1))
                            return
                except (aiohttp.ClientError, TimeoutError):
                    pass  # not up yet: this is what is being waited for
                await asyncio.sleep(0.5)

    async def _pause(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._stopping.wait(), seconds)
        except TimeoutError:
            return

    async def stop(self) -> None:
        """Ask the engine to end, and make it after `STOP_TIMEOUT_S`."""
        self._stopping.set()
        process = self._process
        if process is None or process.returncode is not None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(process.wait(), STOP_TIMEOUT_S)
        except TimeoutError:
            self._signal_group(signal.SIGKILL)

    def _signal_group(self, number: signal.Signals) -> None:
        if self._process is None:
            return
        try:
            os.killpg(self._process.pid, number)
        except ProcessLookupError:
            return


def passed_on_environment() -> dict[str, str]:
    """This process's environment without what an engine has no business with: keys, passwords, addresses."""
    return {name: value for name, value in os.environ.items() if not name.startswith("BURSAR_")}

"""An engine as a child process: started, watched, restarted with back-off, and never left behind."""

from __future__ import annotations

import asyncio
import ctypes
import fcntl
import os
import signal
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import structlog

log = structlog.get_logger(__name__)

FIRST_BACKOFF_S = 1.0
LONGEST_BACKOFF_S = 30.0
# A process that lived this long is not in a crash loop: its next restart is immediate again.
STEADY_AFTER_S = 60.0
STOP_TIMEOUT_S = 10.0
PR_SET_PDEATHSIG = 1
LAST_LINES, LINE_CHARS = 50, 300
LAST_WORDS_S = 0.5


@dataclass(frozen=True)
class EngineCommand:
    """How one engine is started. `url` is where it then answers; `cores` are those it may run on, all if empty."""

    command: Sequence[str]
    environment: Mapping[str, str]
    url: str
    cores: frozenset[int] = field(default_factory=frozenset)


class EngineProcess:
    """Keeps one engine running until `stop`.

    Every start has an open file of its own on `lock`, which the engine inherits: what is locked through it is locked
    until the engine and this process have both let go of it, whichever way they end.
    """

    def __init__(self, engine: EngineCommand, lock: Path | None = None, on_exit: Callable[[int], None] | None = None):
        """`on_exit` is called with the exit code when the engine has ended, and nothing of it is left."""
        self.engine = engine
        self.last_lines: deque[str] = deque(maxlen=LAST_LINES)
        self.starts = 0
        # Whoever watches it sets this: what has worked and was killed is no crash loop.
        self.was_ready = False
        self._lock = lock
        self._lock_file: int | None = None
        self._on_exit = on_exit
        self._process: asyncio.subprocess.Process | None = None
        self._stopping = asyncio.Event()

    @property
    def pid(self) -> int | None:
        process = self._process
        return process.pid if process is not None and process.returncode is None else None

    async def run(self) -> None:
        """Start the engine and restart it whenever it exits, until `stop` is called."""
        backoff = FIRST_BACKOFF_S
        loop = asyncio.get_running_loop()
        while not self._stopping.is_set():
            started = loop.time()
            code = await self._run_once()
            if self._on_exit is not None:
                self._on_exit(code)
            if self._stopping.is_set():
                return
            if self.was_ready or loop.time() - started > STEADY_AFTER_S:
                backoff = FIRST_BACKOFF_S
            log.error("engine_exited", exit_code=code, restart_in_s=backoff)
            await self._pause(backoff)
            backoff = min(backoff * 2, LONGEST_BACKOFF_S)

    async def _run_once(self) -> int:
        self._open_lock()
        output, input_end = os.pipe()
        try:
            self._process = await self._start(input_end)
        except BaseException:
            os.close(output)
            self._close_lock()
            raise
        finally:
            os.close(input_end)
        self.starts += 1
        self.was_ready = False
        log.info("engine_started", pid=self._process.pid, url=self.engine.url)
        if self._stopping.is_set():  # asked for while the process was being made
            self._signal_group(signal.SIGKILL)
        reader = asyncio.create_task(self._keep_lines(output))
        try:
            return await self._process.wait()
        finally:
            # Engines start helpers of their own; what is left of the group would keep the port and the memory.
            self._signal_group(signal.SIGKILL)
            await asyncio.wait({reader}, timeout=LAST_WORDS_S)  # what it said at its end is what matters
            reader.cancel()
            self._close_lock()

    async def _start(self, output: int) -> asyncio.subprocess.Process:
        """Raises OSError where there is no such program, or no room for one more process."""
        engine = self.engine
        return await asyncio.create_subprocess_exec(
            *engine.command,
            env=engine.environment,
            stdout=output,
            stderr=output,
            start_new_session=True,
            preexec_fn=lambda: _prepare_child(engine.cores),
            pass_fds=[self._lock_file] if self._lock_file is not None else [],
        )

    def try_lock(self) -> bool:
        """Take the deployment's lock for the engine that runs now. False while another engine has it."""
        if self._lock_file is None:
            return self._lock is None
        try:
            fcntl.flock(self._lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

    def _open_lock(self) -> None:
        if self._lock is not None:
            self._lock_file = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def _close_lock(self) -> None:
        if self._lock_file is not None:
            os.close(self._lock_file)
            self._lock_file = None

    async def _keep_lines(self, output: int) -> None:
        """Pass on what the engine says, and keep the end of it for whoever asks why it ended.

        Over a pipe of our own: asyncio's would wait for its helpers, too, which live until they are killed.
        """
        reader = asyncio.StreamReader()
        pipe = os.fdopen(output, "rb")
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), pipe
        )
        try:
            while True:
                try:
                    line = await reader.readline()
                except ValueError:  # longer than the reader's buffer: the rest of it follows
                    continue
                if not line:
                    return
                text = line.decode(errors="replace").rstrip()
                print(text, file=sys.stderr, flush=True)  # noqa: T201 - the engine's own output, in its own form
                self.last_lines.append(text[:LINE_CHARS])
        finally:
            transport.close()

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), seconds)

    def kill(self) -> None:
        """End the engine as it is; it is started again."""
        self._signal_group(signal.SIGKILL)

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
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)


def _prepare_child(cores: frozenset[int]) -> None:
    """Runs in the child before exec: a supervisor that is killed takes its engine with it (Linux prctl)."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if cores:
        os.sched_setaffinity(0, cores)


def passed_on_environment() -> dict[str, str]:
    """This process's environment without what an engine has no business with: keys, passwords, addresses."""
    return {name: value for name, value in os.environ.items() if not name.startswith("BURSAR_")}

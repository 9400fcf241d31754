"""The web process's side of its detector: texts out, findings back, restarted when it dies, never bypassed."""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence
from pathlib import Path

import msgspec
import structlog

from compliance.pii.detector import LENGTH, READY, Request, Response, frame
from compliance.pii.findings import Finding, InspectionUnavailable
from compliance.pii.windows import WINDOW, merged, moved, windows

log = structlog.get_logger(__name__)

ROOT = Path(__file__).resolve().parents[2]
# A detector that says nothing at all for this long while texts wait for it hangs.
SILENCE_TIMEOUT_S = 5.0
LOOKS = 5
# How long one text (of a window's length) waits behind others in a detector that works.
INSPECTION_TIMEOUT_S = 20.0
RESTART_AFTER_S = 1.0
MAX_RESPONSE_BYTES = 16 * 1_048_576

_responses = msgspec.msgpack.Decoder(Response)


class Inspector:
    """Finds personal data in texts. Fails closed: what was not inspected raises `InspectionUnavailable`."""

    def __init__(self, silence_timeout_s: float = SILENCE_TIMEOUT_S) -> None:
        self._silence_timeout_s = silence_timeout_s
        self._heard = 0
        self._numbers = itertools.count(READY + 1)
        self._waiting: dict[int, asyncio.Future[list[Finding] | None]] = {}
        self._process: Process | None = None
        self._keeper: asyncio.Task[None] | None = None
        self.ready = False

    def start(self) -> None:
        self._keeper = asyncio.create_task(self._keep_running(), name="inspector")

    async def stop(self) -> None:
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
        if self._process is not None:
            await self._process.wait()

    async def find(self, text: str) -> list[Finding]:
        """The findings in `text`, in order and without overlaps. Raises `InspectionUnavailable`."""
        if len(text) <= WINDOW:
            return await self._find(text)
        findings: list[Finding] = []
        # One window after the other: the texts of others get their turn in between.
        for offset, window in windows(text):
            findings += moved(await self._find(window), offset)
        return merged(findings)

    async def _find(self, text: str) -> list[Finding]:
        process = self._process
        if process is None or process.stdin is None or not self.ready:
            raise InspectionUnavailable("The detector is not running.")
        number = next(self._numbers)
        request = _request(number, text)
        waiter: asyncio.Future[list[Finding] | None]
        waiter = self._waiting[number] = asyncio.get_running_loop().create_future()
        try:
            process.stdin.write(request)
            async with asyncio.timeout(INSPECTION_TIMEOUT_S):
                await process.stdin.drain()
                found = await waiter
        except TimeoutError:
            raise InspectionUnavailable("The detector did not answer in time.") from None
        except OSError:
            raise InspectionUnavailable("The detector stopped.") from None
        finally:
            self._waiting.pop(number, None)
        if found is None:
            raise InspectionUnavailable("The detector could not inspect the text.")
        return found

    async def find_all(self, texts: Sequence[str]) -> list[list[Finding]]:
        return list(await asyncio.gather(*(self.find(text) for text in texts)))

    async def _keep_running(self) -> None:
        while True:
            try:
                await self._run_once()
            except OSError as error:  # no memory or no descriptors for a process now: there may be later
                log.error("detector_not_started", error=type(error).__name__, restart_in_s=RESTART_AFTER_S)
            await asyncio.sleep(RESTART_AFTER_S)

    async def _run_once(self) -> None:
        process = self._process = await self._spawn()
        watcher = asyncio.create_task(self._kill_when_silent(process), name="detector-watch")
        try:
            await self._read(process)
        finally:
            watcher.cancel()
            self.ready = False
            self._kill(process)
            self._fail_waiting()
        code = await process.wait()
        log.error("detector_exited", exit_code=code, restart_in_s=RESTART_AFTER_S)

    async def _kill_when_silent(self, process: Process) -> None:
        """A detector that hangs is killed: the next one may not. One that answers others is only busy."""
        looks, heard = 0, self._heard
        while looks < LOOKS:
            await asyncio.sleep(self._silence_timeout_s / LOOKS)
            looks = looks + 1 if self._waiting and self._heard == heard else 0
            heard = self._heard
        log.error("detector_silent", pid=process.pid)
        self._kill(process)

    async def _spawn(self) -> Process:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("BURSAR_")}
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "compliance.pii.detector"),
            cwd=ROOT,
            env=environment,
            stdin=PIPE,
            stdout=PIPE,
        )

    async def _read(self, process: Process) -> None:
        assert process.stdout is not None  # noqa: S101 - it was asked for with PIPE
        while True:
            try:
                head = await process.stdout.readexactly(LENGTH.size)
                size = LENGTH.unpack(head)[0]
                if size > MAX_RESPONSE_BYTES:
                    return
                response = _responses.decode(await process.stdout.readexactly(size))
            except (asyncio.IncompleteReadError, msgspec.MsgspecError):
                return
            self._heard += 1
            if response.number == READY:
                self.ready = True
                log.info("detector_ready", pid=process.pid)
            elif (waiter := self._waiting.get(response.number)) and not waiter.done():
                waiter.set_result(response.findings)

    def _fail_waiting(self) -> None:
        for waiter in self._waiting.values():
            if not waiter.done():
                waiter.set_exception(InspectionUnavailable("The detector stopped."))

    @staticmethod
    def _kill(process: Process) -> None:
        if process.returncode is None:
            process.kill()


def _request(number: int, text: str) -> bytes:
    try:
        return frame(Request(number, text))
    except UnicodeEncodeError:
        raise InspectionUnavailable("The text holds characters that are none.") from None

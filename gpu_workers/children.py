"""Several programs that run as one: what ends one of them ends all, in order, and so does a signal to us."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
from collections.abc import Mapping, Sequence

import structlog

log = structlog.get_logger(__name__)

STOP_TIMEOUT_S = 30.0
PR_SET_PDEATHSIG = 1


def _die_with_parent() -> None:
    """Runs in the child before exec: whoever kills us leaves nothing behind (Linux prctl)."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


async def run_together(programs: Mapping[str, Sequence[str]], environment: Mapping[str, str]) -> int:
    """Run `programs` until one ends or we are told to stop; then stop all, the first named first.

    Returns 0 where we were told to stop, and else what the one that ended first returned (1 instead of 0: it was not
    meant to end).
    """
    told = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, told.set)
    running: dict[str, asyncio.subprocess.Process] = {}
    try:
        for name, command in programs.items():
            running[name] = await start_child(command, environment)
            log.info("started", program=name, pid=running[name].pid)
        ended = await _first_end(running, told)
    finally:
        for name, process in running.items():
            await stop_child(name, process)
    if ended is None:
        return 0
    log.error("ended", program=ended, exit_code=running[ended].returncode)
    code = running[ended].returncode or 0
    return code if code > 0 else 1


async def start_child(command: Sequence[str], environment: Mapping[str, str]) -> asyncio.subprocess.Process:
    """It ends when we do. In a session of its own: Ctrl-C reaches us alone, who stop everything in order."""
    return await asyncio.create_subprocess_exec(
        *command, env=environment, stdin=asyncio.subprocess.DEVNULL, start_new_session=True, preexec_fn=_die_with_parent
    )


async def _first_end(running: Mapping[str, asyncio.subprocess.Process], told: asyncio.Event) -> str | None:
    """The name of the program that ended first; None when we were told to stop before."""
    ends = {asyncio.create_task(process.wait(), name=name) for name, process in running.items()}
    stop = asyncio.create_task(told.wait())
    done, waiting = await asyncio.wait({*ends, stop}, return_when=asyncio.FIRST_COMPLETED)
    for task in waiting:
        task.cancel()
    return None if stop in done else next(iter(done)).get_name()


async def stop_child(name: str, process: asyncio.subprocess.Process) -> None:
    """Ask it to end, and make it after a while."""
    if process.returncode is not None:
        return
    process.terminate()
    try:
        await asyncio.wait_for(process.wait(), STOP_TIMEOUT_S)
    except TimeoutError:
        log.error("did_not_stop", program=name)
        os.killpg(process.pid, signal.SIGKILL)
        await process.wait()

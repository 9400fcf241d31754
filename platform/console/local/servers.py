"""What PostgreSQL and Valkey have in common: how such a private server is started, waited for and stopped."""

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Protocol

from console.local.errors import CannotRunError
from console.local.places import Places, passable_directory


class Server(Protocol):
    """A private server: prepared once, then run in the foreground by whoever supervises it."""

    @property
    def name(self) -> str: ...

    @property
    def stop_signal(self) -> signal.Signals: ...

    def prepare(self) -> None:
        """Create what the server needs and clear what a crash left. Raises CannotRunError."""

    def command(self) -> list[str]:
        """The command line that runs the server in the foreground until `stop_signal`."""

    def is_ready(self) -> bool:
        """Whether the server answers now."""


def start(server: Server, log: IO[bytes] | int = subprocess.DEVNULL) -> "subprocess.Popen[bytes]":
    """Start a prepared server in a process group of its own and wait until it answers."""
    process = subprocess.Popen(
        server.command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
    )
    wait_ready(server, lambda: process.poll() is None)
    return process


def wait_ready(server: Server, alive: Callable[[], bool], timeout_s: float = 600) -> None:
    """Wait until `server` answers; after a crash it may read a long log first. Raises CannotRunError when it ends or
    takes longer than `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while not server.is_ready():
        if not alive() or time.monotonic() > deadline:
            raise CannotRunError(f"{server.name} did not start: see its log")
        time.sleep(0.05)


def stop(server: Server, process: "subprocess.Popen[bytes]", timeout_s: float = 20) -> None:
    """Stop a started server in order, by force when it takes longer than `timeout_s`."""
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(server.stop_signal)
    try:
        process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def reachable_copy(sources: Sequence[Path], places: Places, version: str) -> Path:
    """The first of `sources`, or as root a copy that the servers' account can reach without opening any directory.

    All sources lie in one directory and stay side by side in the copy: programs find their libraries that way.
    """
    if places.account is None:
        return sources[0]
    target = places.binaries / f"{sources[0].name}-{version}"
    if not target.exists():
        partial = passable_directory(target.with_name(f"{target.name}.{os.getpid()}"))
        for source in sources:
            shutil.copytree(source, partial / source.name, symlinks=True, dirs_exist_ok=True)
        with contextlib.suppress(OSError):  # another run was quicker
            partial.rename(target)
        shutil.rmtree(partial, ignore_errors=True)
    return target / sources[0].name

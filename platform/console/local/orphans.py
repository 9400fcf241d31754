"""Processes that lost their parent come to us instead of to init, so that none outlives a run."""

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent ends (Linux: child subreaper)."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def stop_with_parent() -> None:
    """Get SIGTERM when our parent ends: a killed `make` leaves nothing running."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)


def end_orphans(*known: int) -> None:
    """End and reap each child of ours but `known`: what it was working for is gone."""
    for pid in _children():
        if pid not in known:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)


def end_all(timeout_s: float = 10) -> None:
    """End every descendant, generation by generation, until none is left."""
    deadline = time.monotonic() + timeout_s
    while any(_children()) and time.monotonic() < deadline:
        end_orphans()


def _children() -> Iterator[int]:
    own = os.getpid()
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            # The name in parentheses may hold anything; the parent's pid is the second field behind it.
            parent = int(status.read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            continue
        if parent == own:
            yield int(status.parent.name)

"""What the person at the terminal sees: progress lines, and errors as one sentence."""

import contextlib
import os
import select
import signal
import sys
import time
from typing import TextIO


def show(text: str, stream: TextIO | None = None) -> None:
    """Write lines at once. A terminal that is gone must not keep us from stopping in order."""
    with contextlib.suppress(OSError):
        print(text, file=stream or sys.stdout, flush=True)


def say(text: str) -> None:
    """One line on standard output."""
    show(f"bursar: {text}")


def complain(text: str) -> None:
    """One line on standard error."""
    show(f"bursar: {text}", sys.stderr)


class Hangup:
    """Notices that the terminal we were started from is gone.

    The kernel tells only the first process of the terminal's session; under `ssh -t host make run` that is make, which
    does not pass it on.
    """

    def __init__(self, descriptor: int = 0) -> None:
        wanted = signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN  # `nohup` says to go on
        self._descriptor = descriptor if wanted and os.isatty(descriptor) else None

    def happened(self) -> bool:
        if self._descriptor is None:
            return False
        poll = select.poll()
        poll.register(self._descriptor, 0)
        return bool(poll.poll(0))


class Progress:
    """Says what is being done and, every ten seconds, for how long it has been going on."""

    def __init__(self, title: str, expectation: str, every_s: float = 10) -> None:
        self._title, self._every_s = title, every_s
        self._begin = self._last = time.monotonic()
        say(f"{title} ({expectation})")

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self._begin

    def tick(self, detail: str = "") -> None:
        """Called often; says something when the last line is old enough."""
        if time.monotonic() - self._last >= self._every_s:
            self._last = time.monotonic()
            say(f"{self._title}: {self.elapsed_s:.0f} s{', ' + detail if detail else ''}")

    def done(self) -> None:
        say(f"{self._title}: done in {self.elapsed_s:.0f} s")

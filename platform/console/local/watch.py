"""Notices processes that end, and says so once instead of each time."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path

from console.local.supervision import State
from console.local.terminal import complain

# So many ends within so long are a failure that does not go away by itself.
MANY_ENDS = 3
WITHIN_S = 120


class Watch:
    """Compares what the supervisor says now with what it said before."""

    def __init__(self, logs: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._logs, self._clock = logs, clock
        self._started: dict[str, int] = {}
        self._ends: dict[str, list[float]] = defaultdict(list)

    def look(self, states: Iterable[State]) -> None:
        """Say which processes ended and were started again since the last look."""
        for state in states:
            before = self._started.get(state.name, 0)
            self._started[state.name] = state.started
            if before and state.started != before:
                self._ended(state.name)

    def failing(self) -> str:
        """The name of a process that keeps ending, or nothing."""
        now = self._clock()
        for name, ends in self._ends.items():
            if sum(now - end < WITHIN_S for end in ends) >= MANY_ENDS:
                return name
        return ""

    def where(self, name: str) -> str:
        """The place of the last line that a process logged."""
        log = self._logs / f"{name}.log"
        try:
            with log.open("rb") as file:
                return f"{log}:{sum(1 for _ in file)}"
        except OSError:
            return str(log)

    def _ended(self, name: str) -> None:
        now = self._clock()
        recent = [end for end in self._ends[name] if now - end < WITHIN_S]
        self._ends[name] = [*recent, now]
        if not recent:
            complain(f"{name} ended and was started again: {self.where(name)}")
        elif len(recent) + 1 == MANY_ENDS:
            complain(f"{name} keeps ending and is started again, less and less often: {self.where(name)}")

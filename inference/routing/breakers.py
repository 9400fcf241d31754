"""A circuit breaker for each deployment: what keeps failing is left alone for a while, then tried with a few probes.

Closed → open after too many failures → half-open when the cool-off is over → closed when every probe came back well,
or open again for longer. Time is passed in as monotonic seconds.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import StrEnum

WINDOW_S = 10.0
MAX_CALLS = 500  # remembered; more in one window say nothing more
MIN_CALLS = 10
ERROR_SHARE = 0.5
CONSECUTIVE_FAILURES = 5
PROBES = 3
# Probes are few and cost little: even what was down for an hour is looked at every few seconds.
COOL_OFF_S, MAX_COOL_OFF_S, GROWTH = 1.0, 10.0, 2.0
# A probe that is never heard of again gives its place back.
PROBE_TIMEOUT_S = 30.0
# Closed for this long, what was before is forgiven: the next cool-off is the shortest again.
FORGIVEN_AFTER_S = 10.0


class State(StrEnum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half-open"


@dataclass
class Breaker:
    """Ask `admit` before each call and tell `succeeded`, `failed` or `abandoned` after it."""

    calls: deque[tuple[float, bool]] = field(default_factory=lambda: deque(maxlen=MAX_CALLS))
    consecutive: int = 0
    cool_off_s: float = COOL_OFF_S
    opened_at_s: float | None = None
    closed_at_s: float = 0.0
    probes: list[float] = field(default_factory=list)
    probes_well: int = 0

    def state(self, at_s: float) -> State:
        if self.opened_at_s is None:
            return State.CLOSED
        return State.HALF_OPEN if at_s >= self.opened_at_s + self.cool_off_s else State.OPEN

    def permits(self, at_s: float) -> bool:
        """Whether `admit` would let a call through now. Changes nothing."""
        state = self.state(at_s)
        return state is State.CLOSED or (state is State.HALF_OPEN and self._probes_out(at_s) < self._probes_left())

    def admit(self, at_s: float) -> bool:
        """Let a call through, or not. While half-open, at most `PROBES` are out at once."""
        if not self.permits(at_s):
            return False
        if self.opened_at_s is not None:
            self.probes = [*self._living_probes(at_s), at_s]
        return True

    def succeeded(self, began_s: float, at_s: float) -> None:
        """The call that began then came back well."""
        if self.opened_at_s is None:
            self._note(at_s, failed=False)
        elif self._take_probe(began_s):
            self.probes_well += 1
            if self.probes_well >= PROBES:
                self._close(at_s)

    def failed(self, began_s: float, at_s: float) -> None:
        """The call that began then failed by the deployment's fault."""
        if self.opened_at_s is not None:
            if self._take_probe(began_s):
                self._open(at_s, self.cool_off_s * GROWTH)
            return  # sent before it opened: what it says is known
        self._note(at_s, failed=True)
        if self.consecutive >= CONSECUTIVE_FAILURES or self._failing_share(at_s) >= ERROR_SHARE:
            forgiven = at_s - self.closed_at_s > FORGIVEN_AFTER_S
            self._open(at_s, COOL_OFF_S if forgiven else self.cool_off_s)

    def abandoned(self, began_s: float) -> None:
        """The call ended without saying anything of the deployment: it was cancelled, or never sent."""
        if self.opened_at_s is not None:
            self._take_probe(began_s)

    def _note(self, at_s: float, *, failed: bool) -> None:
        self.calls.append((at_s, failed))
        self.consecutive = self.consecutive + 1 if failed else 0

    def _failing_share(self, at_s: float) -> float:
        recent = [failed for called_at_s, failed in self.calls if called_at_s > at_s - WINDOW_S]
        return sum(recent) / len(recent) if len(recent) >= MIN_CALLS else 0.0

    def _open(self, at_s: float, cool_off_s: float) -> None:
        self.opened_at_s = at_s
        self.cool_off_s = min(cool_off_s, MAX_COOL_OFF_S)
        self.probes, self.probes_well = [], 0

    def _close(self, at_s: float) -> None:
        # It has failed not long ago: should it open again soon, it stays open for longer.
        self.cool_off_s = min(self.cool_off_s * GROWTH, MAX_COOL_OFF_S)
        self.opened_at_s, self.closed_at_s = None, at_s
        self.calls.clear()
        self.consecutive = 0
        self.probes, self.probes_well = [], 0

    def _probes_left(self) -> int:
        return PROBES - self.probes_well

    def _living_probes(self, at_s: float) -> list[float]:
        return [began_s for began_s in self.probes if at_s - began_s < PROBE_TIMEOUT_S]

    def _probes_out(self, at_s: float) -> int:
        return len(self._living_probes(at_s))

    def _take_probe(self, began_s: float) -> bool:
        if began_s not in self.probes:
            return False
        self.probes.remove(began_s)
        return True

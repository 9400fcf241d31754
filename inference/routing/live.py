"""What one process has measured of deployments: their latency, their failures, and what is under way to them."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from uuid import UUID

from inference.routing.breakers import Breaker, State
from inference.routing.latency import LatencyModel

# Endings that are the deployment's fault; others are the caller's, the broker's or the record's.
FAULTS = frozenset({"engine_failed", "worker_lost", "not_claimed", "deadline_exceeded", "reply_gap", "reply_broken"})


# Longer than any attempt runs.
FORGET_S = 600.0

_shared: LiveState | None = None


def share(live: LiveState) -> None:
    """Let the console of this process see what the process has measured."""
    global _shared
    _shared = live


def shared() -> LiveState:
    """What this process has measured; nothing in one that serves no requests."""
    return _shared or LiveState()


@dataclass(frozen=True, slots=True)
class _Sent:
    deployment: str
    at_s: float


class LiveState:
    """Told of every attempt; asked by decisions, which change nothing in it. Times are monotonic seconds."""

    def __init__(self) -> None:
        self.latency = LatencyModel()
        self._breakers: dict[str, Breaker] = {}
        self._sent: dict[UUID, _Sent] = {}
        self._failed_at_s: dict[str, float] = {}

    def outstanding(self, deployment: str) -> int:
        return len(self.latency.of(deployment).outstanding)

    def permits(self, deployment: str, at_s: float) -> bool:
        breaker = self._breakers.get(deployment)
        return breaker is None or breaker.permits(at_s)

    def breaker_state(self, deployment: str, at_s: float) -> State:
        breaker = self._breakers.get(deployment)
        return State.CLOSED if breaker is None else breaker.state(at_s)

    def begin(self, exchange: UUID, deployment: str, prompt_tokens: int, queue_ms: float, at_s: float) -> bool:
        """An attempt leaves for the deployment now. False where its breaker lets nothing through."""
        if not self._breakers.setdefault(deployment, Breaker()).admit(at_s):
            return False
        self._sent[exchange] = _Sent(deployment, at_s)
        self.latency.begin(deployment, exchange, prompt_tokens, queue_ms, at_s)
        return True

    def first_token(self, exchange: UUID, at_s: float) -> None:
        if sent := self._sent.get(exchange):
            self.latency.first_token(sent.deployment, exchange, at_s)
            breaker = self._breakers[sent.deployment]
            if breaker.state(at_s) is State.HALF_OPEN:
                breaker.succeeded(sent.at_s, at_s)  # a probe need not be read to its end: it answers

    def ended(self, exchange: UUID, error_code: str, answer_tokens: int, at_s: float, *, source: str = "") -> None:
        """The exchange is over: `error_code` is empty for an answer that came to its end.

        `source` names the start of the engine that it was on. All that were there when it died say one thing once.
        """
        if not error_code:
            self.succeeded(exchange, answer_tokens, at_s)
        elif error_code in FAULTS and not self._is_known(exchange, source, at_s):
            self.failed(exchange, at_s)
        else:
            self.abandoned(exchange, at_s)

    def _is_known(self, exchange: UUID, source: str, at_s: float) -> bool:
        """Whether this source has failed since the attempt left for it: one event, and no new evidence."""
        sent = self._sent.get(exchange)
        if not source or sent is None:
            return False
        known = self._failed_at_s.get(source, -inf) > sent.at_s
        if not known:
            self._failed_at_s = {name: when for name, when in self._failed_at_s.items() if when > at_s - FORGET_S}
            self._failed_at_s[source] = at_s
        return known

    def succeeded(self, exchange: UUID, answer_tokens: int, at_s: float) -> None:
        if sent := self._sent.pop(exchange, None):
            self.latency.end(sent.deployment, exchange, answer_tokens, at_s)
            self._breakers[sent.deployment].succeeded(sent.at_s, at_s)

    def failed(self, exchange: UUID, at_s: float) -> None:
        """By the deployment's fault: an engine or worker that failed, or a deadline that passed."""
        if sent := self._sent.pop(exchange, None):
            self.latency.end(sent.deployment, exchange, 0, at_s)
            self._breakers[sent.deployment].failed(sent.at_s, at_s)

    def abandoned(self, exchange: UUID, at_s: float) -> None:
        """By nobody's fault: the caller cancelled, or the request was at fault. Calls after an end change nothing."""
        if sent := self._sent.pop(exchange, None):
            self.latency.end(sent.deployment, exchange, 0, at_s)
            self._breakers[sent.deployment].abandoned(sent.at_s)

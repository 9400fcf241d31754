"""Why a request went where it went, as plain values that are kept with the exchange and shown in the console.

An explanation says which condition of a rule failed and never what the request had there: it lies in clear.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct


class RuleTrace(Struct, frozen=True, omit_defaults=True):
    """One rule that was looked at. `failed` names the first condition that the request did not meet."""

    name: str
    failed: str | None = None


class CandidateTrace(Struct, frozen=True, omit_defaults=True):
    """One candidate: the filter that excluded it, or its score. Times are predictions in milliseconds.

    `ttft_high_ms` and `e2e_high_ms` are met by about nine answers in ten and are what is held against the objective;
    `cost_usd` is the price that is expected, and `samples` how many fresh measurements the prediction rests on.
    """

    deployment: str
    model: str = ""
    weight: float = 1.0
    filter: str | None = None
    ready: int = 0
    in_flight: int = 0
    capacity: int = 0
    queue_ms: float | None = None
    ttft_ms: float | None = None
    ttft_high_ms: float | None = None
    e2e_ms: float | None = None
    e2e_high_ms: float | None = None
    cost_usd: str | None = None
    meets_objective: bool | None = None
    samples: float = 0.0
    is_fallback: bool = False


class Explanation(Struct, frozen=True, omit_defaults=True):
    """`rule_set` is the version that was active, None where the default rule was the only one.

    `replica` is the worker that the conversation stays with, None where any of the deployment's may take it.
    """

    rule_set: int | None
    rule: str
    model: str
    strategy: str
    rules: tuple[RuleTrace, ...] = ()
    candidates: tuple[CandidateTrace, ...] = ()
    alias: str | None = None
    chosen: str | None = None
    replica: str | None = None
    why: str = ""
    explored: bool = False
    fallbacks: tuple[str, ...] = ()
    mirror: str | None = None
    deadline_s: float | None = None
    clamped: tuple[str, ...] = ()

    def __str__(self) -> str:
        """In a sentence, for people."""
        if self.chosen is None:
            return f"rule {self.rule} ({self.strategy}): no deployment of {self.model} could take it"
        return f"rule {self.rule} ({self.strategy}): {self.chosen} of {self.model}, {self.why}{self._stays()}"

    def _stays(self) -> str:
        return f", where the conversation stays with {self.replica}" if self.replica else ""

    def as_facts(self) -> dict[str, Any]:
        """Built-in types only, ready for JSON."""
        facts: dict[str, Any] = msgspec.to_builtins(self)
        return facts


def parse_explanation(facts: Any) -> Explanation | None:
    """An explanation as it was kept; None for an exchange that was recorded before there were any."""
    try:
        return msgspec.convert(facts, Explanation)
    except msgspec.ValidationError:
        return None

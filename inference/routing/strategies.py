"""How one of the usable candidates is chosen. All chance comes from a generator seeded by the exchange."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from uuid import UUID

from inference.routing.candidates import OBJECTIVES, Assessed
from inference.routing.facts import RequestFacts
from inference.routing.replicas import rank
from inference.routing.rules import Strategy

# Of the traffic; 2 % are promised, and chance must not exceed them.
EXPLORATION = 0.015


@dataclass(frozen=True, slots=True)
class Choice:
    assessed: Assessed
    why: str
    explored: bool = False


def choose(strategy: Strategy, usable: Sequence[Assessed], facts: RequestFacts, rng: Random) -> Choice:
    """One of `usable`, which is in the rule's order and not empty."""
    return _STRATEGIES[strategy](usable, facts, rng)


def _adaptive(usable: Sequence[Assessed], facts: RequestFacts, rng: Random) -> Choice:
    """The cheapest that meets the objective, else the fastest; now and then one of which too little is known."""
    explores = rng.random() < EXPLORATION
    meeting = [assessed for assessed in usable if assessed.meets]
    # What has answered lately is believed; a guess is good enough only where nothing better is known.
    trusted = [assessed for assessed in meeting if assessed.prediction.is_trusted]
    unknown = [assessed for assessed in meeting if not assessed.prediction.is_trusted]
    if explores and trusted and unknown:
        return Choice(rng.choice(unknown), "explored: it meets the objective as far as is known", explored=True)
    if kept := _kept(trusted, facts):
        return Choice(kept, "the conversation stays where it was")
    if eligible := trusted or unknown:
        cheapest = min(assessed.cost for assessed in eligible)
        ties = [assessed for assessed in eligible if assessed.cost == cheapest]
        promised = "that meets the objective" if OBJECTIVES[facts.priority] else "of all"
        return Choice(_among(ties, facts, rng), f"the cheapest {promised}{_tie(ties, facts)}")
    fastest = min(usable, key=lambda assessed: (assessed.ttft_high_ms, assessed.e2e_high_ms))
    return Choice(fastest, "none meets the objective: the fastest")


def _kept(eligible: Sequence[Assessed], facts: RequestFacts) -> Assessed | None:
    """Where the conversation's last answer came from: its prompt's beginning may be in that engine's cache."""
    for assessed in eligible:
        if assessed.candidate.deployment == facts.previous_deployment and not assessed.load.is_overloaded:
            return assessed
    return None


def _among(ties: Sequence[Assessed], facts: RequestFacts, rng: Random) -> Assessed:
    if len(ties) == 1:
        return ties[0]
    if facts.conversation is not None:
        calm = [assessed for assessed in ties if not assessed.load.is_overloaded] or list(ties)
        return rendezvous(calm, facts.conversation)
    return min(rng.sample(list(ties), 2), key=lambda assessed: (assessed.load.share, assessed.ttft_ms))


def _tie(ties: Sequence[Assessed], facts: RequestFacts) -> str:
    if len(ties) == 1:
        return ""
    return ", by its conversation" if facts.conversation is not None else ", the better of two"


def rendezvous(candidates: Sequence[Assessed], conversation: UUID) -> Assessed:
    """The same one for a conversation, as long as it is among them; others coming and going move few conversations."""
    return max(candidates, key=lambda assessed: rank(conversation, assessed.candidate.deployment))


def _weighted(usable: Sequence[Assessed], facts: RequestFacts, rng: Random) -> Choice:
    chosen = rng.choices(usable, weights=[assessed.weight for assessed in usable])[0]
    return Choice(chosen, "by weight")


def _least_outstanding(usable: Sequence[Assessed], facts: RequestFacts, rng: Random) -> Choice:
    fewest = min(assessed.load.in_flight for assessed in usable)
    ties = [assessed for assessed in usable if assessed.load.in_flight == fewest]
    return Choice(rng.choice(ties), f"fewest answers under way ({fewest})")


def _priority_order(usable: Sequence[Assessed], facts: RequestFacts, rng: Random) -> Choice:
    return Choice(usable[0], f"first in order with a ready worker ({usable[0].load.ready} ready)")


def _cheapest(usable: Sequence[Assessed], facts: RequestFacts, rng: Random) -> Choice:
    cheapest = min(assessed.cost for assessed in usable)
    ties = [assessed for assessed in usable if assessed.cost == cheapest]
    return Choice(_among(ties, facts, rng), f"the cheapest{_tie(ties, facts)}")


_STRATEGIES: dict[Strategy, Callable[[Sequence[Assessed], RequestFacts, Random], Choice]] = {
    "adaptive": _adaptive,
    "weighted": _weighted,
    "least_outstanding": _least_outstanding,
    "priority_order": _priority_order,
    "cheapest": _cheapest,
}

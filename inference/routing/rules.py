"""Routing rules: ordered, immutable, the first match wins. They are kept as JSON; unknown fields are refused."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Literal, get_args

from msgspec import Struct, structs

from gpu_workers.messages import Sampling
from inference.events import Priority
from inference.routing.facts import RequestFacts

Strategy = Literal["adaptive", "weighted", "least_outstanding", "priority_order", "cheapest"]
STRATEGIES: tuple[Strategy, ...] = get_args(Strategy)
# The rungs of a budget's ladder, as a request meets them.
BUDGET_STATES = ("calm", "warned", "degraded", "batch_refused", "spent")
DAYS, HOURS = range(7), range(24)


class TimeWindow(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Hours of weekdays in UTC: Monday is 0, `until_hour` is not inside, and 22 to 6 goes over midnight.

    The hours after midnight belong to the weekday that they lie on.
    """

    weekdays: frozenset[int] | None = None
    from_hour: int = 0
    until_hour: int = 24

    def holds(self, at: datetime) -> bool:
        return self.has(at.weekday(), at.hour)

    def has(self, day: int, hour: int) -> bool:
        if self.weekdays is not None and day not in self.weekdays:
            return False
        if self.from_hour <= self.until_hour:
            return self.from_hour <= hour < self.until_hour
        return hour >= self.from_hour or hour < self.until_hour

    def slots(self) -> frozenset[tuple[int, int]]:
        """Every (weekday, hour) inside."""
        return frozenset((day, hour) for day in DAYS for hour in HOURS if self.has(day, hour))


class Conditions(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """What a request must be for the rule to fire. None asks nothing; a set asks for one of its members.

    `findings` asks for at least one of these entity types in the prompt, `without_findings` for none of them;
    token bounds are inclusive.
    """

    organisations: frozenset[str] | None = None
    teams: frozenset[str] | None = None
    keys: frozenset[str] | None = None
    roles: frozenset[str] | None = None
    models: frozenset[str] | None = None
    tags: frozenset[str] | None = None
    languages: frozenset[str] | None = None
    min_prompt_tokens: int | None = None
    max_prompt_tokens: int | None = None
    priorities: frozenset[Priority] | None = None
    findings: frozenset[str] | None = None
    without_findings: frozenset[str] | None = None
    residency: frozenset[str] | None = None
    window: TimeWindow | None = None
    budget_states: frozenset[str] | None = None


# Conditions that ask for one value of the request, each with the fact that it looks at.
VALUES = {
    "organisations": "organisation",
    "teams": "team",
    "keys": "key",
    "roles": "role",
    "tags": "tag",
    "languages": "language",
    "priorities": "priority",
    "residency": "residency",
    "budget_states": "budget_state",
}


class WeightedCandidate(Struct, frozen=True, forbid_unknown_fields=True):
    deployment: str
    weight: float = 1.0


class Mirror(Struct, frozen=True, forbid_unknown_fields=True):
    """A deployment that is sent a copy of this share of the requests; nobody is told its answers."""

    deployment: str
    share: float


class Clamps(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Bounds on what a caller may ask for. What lies outside is moved to the nearest bound."""

    max_tokens: int | None = None
    min_temperature: float | None = None
    max_temperature: float | None = None

    def apply(self, sampling: Sampling) -> Sampling:
        """A temperature that was left to the engine stays left to it."""
        tokens, temperature = sampling.max_tokens, sampling.temperature
        if self.max_tokens is not None:
            tokens = min(tokens, self.max_tokens)
        if temperature is not None:
            if self.min_temperature is not None:
                temperature = max(temperature, self.min_temperature)
            if self.max_temperature is not None:
                temperature = min(temperature, self.max_temperature)
        return structs.replace(sampling, max_tokens=tokens, temperature=temperature)


class Route(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """What happens with a request that matches. Without candidates: any live deployment of the model asked for."""

    candidates: tuple[WeightedCandidate, ...] = ()
    strategy: Strategy = "adaptive"
    fallbacks: tuple[str, ...] = ()
    mirror: Mirror | None = None
    deadline_s: float | None = None
    clamps: Clamps | None = None


class Rule(Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    conditions: Conditions = Conditions()
    route: Route = Route()


# Holds where no rule set is active, and where none of its rules matches.
DEFAULT_RULE = Rule("default", route=Route(strategy="priority_order"))


class RuleSet(Struct, frozen=True, forbid_unknown_fields=True):
    """`aliases` maps a name that callers may use to a model, or to another alias."""

    version: int
    rules: tuple[Rule, ...] = ()
    aliases: dict[str, str] = {}


def resolve_alias(name: str, aliases: Mapping[str, str]) -> str:
    """The model that a name stands for. A chain that loops ends where it began to; validation refuses such sets."""
    seen = {name}
    while name in aliases and aliases[name] not in seen:
        name = aliases[name]
        seen.add(name)
    return name


def failing_condition(conditions: Conditions, facts: RequestFacts, names: frozenset[str]) -> str | None:
    """The first condition that the request does not meet; None when it meets all.

    `names` are the name asked for and the model that it stands for.
    """
    for condition, fact in VALUES.items():
        wanted = getattr(conditions, condition)
        if wanted is not None and getattr(facts, fact) not in wanted:
            return condition
    if conditions.models is not None and not conditions.models & names:
        return "models"
    if conditions.min_prompt_tokens is not None and facts.prompt_tokens < conditions.min_prompt_tokens:
        return "min_prompt_tokens"
    if conditions.max_prompt_tokens is not None and facts.prompt_tokens > conditions.max_prompt_tokens:
        return "max_prompt_tokens"
    return _failing_finding_or_time(conditions, facts)


def _failing_finding_or_time(conditions: Conditions, facts: RequestFacts) -> str | None:
    if conditions.findings is not None and not conditions.findings & facts.findings:
        return "findings"
    if conditions.without_findings is not None and conditions.without_findings & facts.findings:
        return "without_findings"
    if conditions.window is not None and not conditions.window.holds(facts.at):
        return "window"
    return None

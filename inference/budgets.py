"""Budgets as the request's way sees them: money in nano-USD, periods in UTC, and what changes as one fills up."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import ROUND_CEILING, Decimal
from enum import IntEnum
from typing import Any, Literal
from uuid import UUID

from gpu_workers.messages import ChatMessage
from inference.catalog import Candidate
from inference.events import Ask

NANO = 1_000_000_000
# Lua counts in doubles, which are exact up to 2**53: nine million dollars in nano-USD, twice over for what is held.
MAX_CAP_USD = 4_000_000
NO_CAP = 2**53
# Tokens that a chat template puts around one message, and around all of them (some add instructions of their own where
# there are none), generously.
TEMPLATE_TOKENS = 16
PREAMBLE_TOKENS = 128
# What one token stands for in a limit by tokens until the engine has counted them.
CHARS_PER_TOKEN = 4

Scope = Literal["platform", "organisation", "team", "key"]
Period = Literal["month", "year"]


class Stage(IntEnum):
    """How full a budget is, by its own thresholds; each stage includes those below it."""

    CALM = 0
    WARNED = 1
    DEGRADED = 2
    BATCH_REFUSED = 3
    SPENT = 4


def nano(usd: Decimal) -> int:
    """Nano-USD, rounded up: what is held is never less than what is meant."""
    return int((usd * NANO).to_integral_value(ROUND_CEILING))


def period_label(period: Period, at: datetime) -> str:
    at = at.astimezone(UTC)
    return f"{at:%Y-%m}" if period == "month" else f"{at:%Y}"


def period_start(period: Period, at: datetime) -> datetime:
    at = at.astimezone(UTC)
    return datetime(at.year, at.month if period == "month" else 1, 1, tzinfo=UTC)


def period_end(period: Period, at: datetime) -> datetime:
    """The first moment of the next period: when the budget renews."""
    start = period_start(period, at)
    if period == "year" or start.month == 12:
        return datetime(start.year + 1, 1, 1, tzinfo=UTC)
    return datetime(start.year, start.month + 1, 1, tzinfo=UTC)


def key_of(budget: UUID, period: Period, at: datetime) -> str:
    return f"bursar:budget:{budget}:{period_label(period, at)}"


@dataclass(frozen=True, slots=True)
class Budget:
    """What a scope may spend in a period. `cap` is in nano-USD, `percents` of it in the order of `Stage`."""

    id: UUID
    scope: Scope
    scope_id: UUID | None
    organisation_id: UUID | None
    period: Period
    cap: int
    percents: tuple[Decimal, Decimal, Decimal, Decimal]
    cheaper_model: str = ""
    # One that is switched off refuses nothing and is counted all the same: it may be switched on again.
    is_enabled: bool = True

    def key(self, at: datetime) -> str:
        """Where Valkey counts the budget's period that `at` lies in."""
        return key_of(self.id, self.period, at)

    def thresholds(self) -> list[int]:
        return [int(self.cap * percent / 100) for percent in self.percents] if self.is_enabled else []

    def stage_of(self, amount: int) -> Stage:
        """The highest stage that this many nano-USD reach."""
        return Stage(sum(amount >= threshold for threshold in self.thresholds()))

    def cap_for(self, priority: str) -> int:
        """Nano-USD up to which a request of this class may reserve."""
        if not self.is_enabled:
            return NO_CAP
        percent = self.percents[2] if priority == "batch" else self.percents[3]
        return int(self.cap * percent / 100)


@dataclass(frozen=True, slots=True)
class BudgetBook:
    """The budgets, those that are switched off included."""

    by_scope: dict[tuple[Scope, UUID | None], tuple[Budget, ...]] = field(default_factory=dict)
    by_id: dict[UUID, Budget] = field(default_factory=dict)

    def for_scopes(self, organisation: UUID, team: UUID | None, api_key: UUID | None) -> tuple[Budget, ...]:
        """All that hold at once, from the widest to the narrowest."""
        scopes: list[tuple[Scope, UUID | None]] = [("platform", None), ("organisation", organisation)]
        scopes += [("team", team)] if team is not None else []
        scopes += [("key", api_key)] if api_key is not None else []
        return tuple(budget for scope in scopes for budget in self.by_scope.get(scope, ()))


def book_of(rows: Iterable[Sequence[Any]]) -> BudgetBook:
    """From rows of id, organisation, team, key, period, amount (USD), the four steps (%), cheaper model, enabled."""
    by_scope: dict[tuple[Scope, UUID | None], tuple[Budget, ...]] = {}
    by_id = {}
    for budget_id, organisation, team, api_key, period, amount, *percents, cheaper, enabled in rows:
        scope, scope_id = _scope_of(organisation, team, api_key)
        steps = tuple(percents)
        budget = Budget(budget_id, scope, scope_id, organisation, period, nano(amount), steps, cheaper, enabled)
        by_scope[scope, scope_id] = (*by_scope.get((scope, scope_id), ()), budget)
        by_id[budget_id] = budget
    return BudgetBook(by_scope, by_id)


def _scope_of(organisation: UUID | None, team: UUID | None, api_key: UUID | None) -> tuple[Scope, UUID | None]:
    if api_key is not None:
        return "key", api_key
    if team is not None:
        return "team", team
    return ("platform", None) if organisation is None else ("organisation", organisation)


@dataclass(frozen=True, slots=True)
class Demand:
    """What an exchange may use: `tokens` as a limit counts them at first, `cost` and `external_cost` in nano-USD at
    most. The platform's own budget counts tokens of external deployments alone: its own are paid by the hour."""

    tokens: int
    cost: int
    external_cost: int

    def for_budget(self, budget: Budget) -> int:
        return self.external_cost if budget.scope == "platform" else self.cost


def demand_of(ask: Ask, candidates: Iterable[Candidate]) -> Demand:
    """The worst case over all deployments that could answer."""
    messages = (*ask.history, *ask.messages)
    answer = ask.sampling.max_tokens
    costs = {candidate: nano(_worst_cost(messages, answer, candidate)) for candidate in candidates}
    return Demand(
        tokens=sum(len(message.content) for message in messages) // CHARS_PER_TOKEN + answer,
        cost=max(costs.values()),
        external_cost=max((cost for candidate, cost in costs.items() if candidate.external), default=0),
    )


def _worst_cost(messages: tuple[ChatMessage, ...], answer_tokens: int, candidate: Candidate) -> Decimal:
    # A byte-level vocabulary makes no more tokens than there are bytes.
    prompt = PREAMBLE_TOKENS + sum(len(message.content.encode()) + TEMPLATE_TOKENS for message in messages)
    prices = candidate.prices
    input_price = max(prices.input, prices.cached)
    # The context bounds both together; where they do not fit, an engine or a rule may shorten the answer.
    excess = max(0, prompt + answer_tokens - candidate.context_length)
    if input_price > prices.output:
        answer_tokens = max(0, answer_tokens - excess)
        prompt = min(prompt, candidate.context_length)
    else:
        prompt = max(0, prompt - excess)
    return (prompt * input_price + answer_tokens * prices.output) / 1_000_000

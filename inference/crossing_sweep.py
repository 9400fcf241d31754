"""Steps of budgets that no request noticed: found in the ledger's days, beside the request's way.

A request notices the step that it reaches when it settles, unless the budget was being counted anew just then. The
last request of all would leave its step unnoticed.
"""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Literal, cast

from django.db import connection, transaction
from django.db.models import Q, Sum
from psycopg.types.json import Jsonb

from compliance.audit.models import EntryKind
from gpu_workers.identifiers import uuid7
from inference.budget_models import Budget, LedgerDay
from inference.budget_queries import counted_by
from inference.budgets import Stage, period_end, period_label, period_start
from inference.crossings import RECORD

HUNDRED = Decimal(100)


def note_steps_of_the_ledger(now: datetime) -> int:
    """Record every step that the days of this period have reached and nobody has recorded; how many."""
    budgets = Budget.objects.filter(is_enabled=True)
    return sum(_note(budget, Stage(stage), now) for budget in budgets for stage in _reached(budget, now))


def _reached(budget: Budget, now: datetime) -> list[int]:
    period = cast(Literal["month", "year"], budget.period)
    days = Q(day__gte=period_start(period, now).date(), day__lt=period_end(period, now).date())
    spent = LedgerDay.objects.filter(days, counted_by(budget)).aggregate(Sum("amount"))["amount__sum"]
    if not spent:
        return []
    ladder = (budget.warn_at, budget.degrade_at, budget.refuse_batch_at, budget.refuse_at)
    return [stage for stage, percent in enumerate(ladder, start=1) if spent >= budget.amount * percent / HUNDRED]


def _note(budget: Budget, stage: Stage, now: datetime) -> bool:
    """False where it is recorded already: the table holds a step of a period once."""
    period = period_label(cast(Literal["month", "year"], budget.period), now)
    facts = {"budget": str(budget.pk), "scope": _scope(budget), "period": period, "step": stage.name.lower()}
    at = now.astimezone(UTC)
    crossing = (uuid7(), budget.pk, period, int(stage), at)
    entry: tuple[Any, ...] = (uuid7(), budget.organisation_id, EntryKind.BUDGET.value, at, Jsonb(facts))
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(RECORD, (*crossing, *entry))
        return bool(cursor.rowcount > 0)


def _scope(budget: Budget) -> str:
    if budget.api_key_id is not None:
        return "key"
    if budget.team_id is not None:
        return "team"
    return "organisation" if budget.organisation_id is not None else "platform"

"""Reads of the ledger for the console: what a budget's period has spent."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Literal, cast

from django.db.models import Q, Sum

from inference.budget_models import Budget, Transfer, TransferKind
from inference.budgets import period_end, period_start


@dataclass(frozen=True, slots=True)
class Standing:
    """`spent` in USD, as the ledger has it; `renews` is when the next period begins."""

    spent: Decimal
    renews: datetime


def standing_of(budget: Budget, at: datetime) -> Standing:
    period = cast(Literal["month", "year"], budget.period)
    begin, end = period_start(period, at), period_end(period, at)
    rows = Transfer.objects.filter(counted_by(budget), at__gte=begin, at__lt=end)
    return Standing(rows.aggregate(spent=Sum("amount"))["spent"] or Decimal(0), end)


def counted_by(budget: Budget) -> Q:
    """The transfers that inference.restoring counts, or the days that they add up to."""
    if budget.api_key_id is not None:
        return Q(api_key_id=budget.api_key_id)
    if budget.team_id is not None:
        return Q(team_id=budget.team_id)
    if budget.organisation_id is not None:
        return Q(organisation_id=budget.organisation_id, kind=TransferKind.ANSWER)
    return Q(kind=TransferKind.ENGINE_HOURS) | Q(external=True)

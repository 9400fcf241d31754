"""Days add up to the ledger, however often and whenever they are added up."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from django.db.models import Sum

from console.accounts.models import Organisation
from gpu_workers.identifiers import uuid7
from inference.budget_models import LedgerDay, Transfer
from inference.rollups import roll_up
from tests.console import people

pytestmark = pytest.mark.django_db
NOON = datetime(2026, 12, 15, 12, tzinfo=UTC)


def spend(of: Organisation, usd: str, at: datetime, **fields: object) -> None:
    values = {"kind": "answer", "model": "m", "prompt_tokens": 3, "completion_tokens": 5} | fields
    Transfer.objects.create(organisation=of, deployment=people.deployment(), amount=Decimal(usd), at=at, **values)


def by_day() -> dict[str, tuple[Decimal, int]]:
    rows = LedgerDay.objects.values_list("day").annotate(Sum("amount"), Sum("transfers"))
    return {str(day): (amount, count) for day, amount, count in rows}


def test_no_transfer_is_no_day() -> None:
    assert roll_up(NOON) == 0
    assert by_day() == {}


def test_days_are_utc_and_add_up_to_the_ledger() -> None:
    acme, other, key = people.organisation("Acme"), people.organisation("Other"), uuid7()
    midnight = NOON.replace(hour=0)
    spend(acme, "0.000000000001", midnight - timedelta(microseconds=1))
    spend(acme, "1.5", midnight)
    spend(acme, "2.5", NOON, api_key_id=key)
    spend(other, "4", NOON)
    spend(acme, "7", NOON - timedelta(days=9))

    assert roll_up(NOON) == 10

    assert by_day() == {
        "2026-12-06": (Decimal(7), 1),
        "2026-12-14": (Decimal("0.000000000001"), 1),
        "2026-12-15": (Decimal(8), 3),
    }
    (of_key,) = LedgerDay.objects.filter(api_key_id=key)
    assert (of_key.amount, of_key.prompt_tokens, of_key.completion_tokens) == (Decimal("2.5"), 3, 5)
    ledger = Transfer.objects.aggregate(Sum("amount"))["amount__sum"]
    assert LedgerDay.objects.aggregate(Sum("amount"))["amount__sum"] == ledger


def test_it_is_the_same_however_often_it_runs_and_takes_up_what_comes_late() -> None:
    acme = people.organisation("Acme")
    spend(acme, "1", NOON)
    for _ in range(3):
        roll_up(NOON)
    assert by_day() == {"2026-12-15": (Decimal(1), 1)}

    spend(acme, "2", NOON)  # an outcome that was recorded late
    spend(acme, "5", NOON + timedelta(days=1))
    assert roll_up(NOON + timedelta(days=1)) == 4
    assert by_day() == {"2026-12-15": (Decimal(3), 2), "2026-12-16": (Decimal(5), 1)}


def test_a_day_to_come_hides_none_that_is_due() -> None:
    acme = people.organisation("Acme")
    spend(acme, "1", NOON)
    spend(acme, "2", NOON + timedelta(days=1))  # by a clock that was ahead
    roll_up(NOON + timedelta(days=1))
    for late in range(4):
        spend(acme, "4", NOON + timedelta(days=late))
    LedgerDay.objects.filter(day__gt=NOON.date()).delete()
    LedgerDay.objects.create(
        day=NOON.date() + timedelta(days=30),
        kind="answer",
        deployment=people.deployment(),
        external=False,
        model="m",
        amount=0,
        prompt_tokens=0,
        cached_tokens=0,
        completion_tokens=0,
        transfers=0,
    )
    roll_up(NOON + timedelta(days=29))
    assert by_day()["2026-12-18"] == (Decimal(4), 1)
    assert by_day()["2026-12-16"] == (Decimal(6), 2)

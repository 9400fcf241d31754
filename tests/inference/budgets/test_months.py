"""Months add up to the ledger, are shown to whom they concern, and leave as a table that computes nothing."""

from __future__ import annotations

import csv
import io
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from django.db.models import Sum
from django.test import Client

from console.accounts.models import Organisation, Role
from gpu_workers.identifiers import uuid7
from inference.budget_models import LedgerMonth, Transfer
from inference.ledger_csv import HEAD, safe_cell
from inference.rollups import roll_up
from tests.console import people
from tests.inference.budgets.test_rollups import NOON, spend

pytestmark = pytest.mark.django_db
CSV = "/admin/inference/ledgermonth/csv/"


@pytest.fixture
def acme() -> Organisation:
    acme, other, key = people.organisation("=Acme"), people.organisation("Other"), uuid7()
    first = datetime(2026, 12, 1, tzinfo=UTC)
    spend(acme, "0.000000000001", first - timedelta(microseconds=1))
    spend(acme, "1.5", first, api_key_id=key)
    spend(acme, "2.25", NOON, api_key_id=key)
    spend(acme, "4", NOON)
    spend(other, "8", NOON)
    roll_up(NOON)
    return acme


def enter(user: object) -> Client:
    client = Client()
    client.force_login(user)  # type: ignore[arg-type]
    return client


def table(client: Client, path: str = CSV) -> list[dict[str, str]]:
    response = client.get(path)
    assert response["Content-Type"] == "text/csv; charset=utf-8"
    return list(csv.DictReader(io.StringIO(response.content.decode())))


def test_months_add_up_to_the_ledger_to_the_last_digit(acme: Organisation) -> None:
    months = LedgerMonth.objects.filter(organisation=acme).values_list("month").annotate(Sum("amount"))
    assert {f"{month:%Y-%m}": amount for month, amount in months} == {
        "2026-11": Decimal("0.000000000001"),
        "2026-12": Decimal("7.75"),
    }
    ledger = Transfer.objects.aggregate(Sum("amount"), Sum("prompt_tokens"))
    assert LedgerMonth.objects.aggregate(Sum("amount"), Sum("prompt_tokens")) == ledger
    assert LedgerMonth.objects.count() == LedgerMonth.objects.values("id").distinct().count() == 4


def test_the_table_has_every_row_that_is_theirs_and_no_other(acme: Organisation) -> None:
    theirs = table(enter(people.member(acme, Role.ADMINISTRATOR)))
    assert tuple(theirs[0]) == HEAD
    assert {row["organisation"] for row in theirs} == {"'=Acme"}
    assert sum(Decimal(row["amount_usd"]) for row in theirs) == Decimal("7.750000000001")
    everything = table(enter(people.superuser(acme)))
    assert {row["organisation"] for row in everything} == {"'=Acme", "Other"}


def test_who_may_not_see_it_does_not_get_it(acme: Organisation) -> None:
    assert enter(people.member(acme, Role.END_USER)).get(CSV).status_code == 302
    assert Client().get(CSV).status_code == 302
    page = enter(people.member(acme, Role.OFFICER)).get("/admin/inference/ledgermonth/").content.decode()
    assert "2026-12" in page
    assert "Other" not in page


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "\uff1d1+1", "\uff201"])
def test_no_cell_is_a_formula(text: str) -> None:
    assert safe_cell(text) == f"'{text}"


def test_values_stay_as_they_are() -> None:
    assert safe_cell("a=1") == "a=1"
    assert safe_cell(Decimal("-1E-12")) == "-0.000000000001"
    assert safe_cell(None) == ""

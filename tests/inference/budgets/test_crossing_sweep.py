"""Steps that no request noticed are found in the ledger's days: each once, in the period that is now."""

from __future__ import annotations

from datetime import timedelta

import pytest

from compliance.audit.models import Entry, EntryKind
from console.accounts.models import Organisation
from gpu_workers.identifiers import uuid7
from inference.budget_models import Budget, BudgetCrossing
from inference.crossing_sweep import note_steps_of_the_ledger
from inference.rollups import roll_up
from tests.console import people
from tests.inference.budgets.test_rollups import NOON, spend

pytestmark = pytest.mark.django_db


@pytest.fixture
def acme() -> Organisation:
    return people.organisation("Acme")


def steps(budget: Budget) -> list[int]:
    return sorted(BudgetCrossing.objects.filter(budget=budget, period="2026-12").values_list("stage", flat=True))


def test_each_step_that_was_reached_is_recorded_once(acme: Organisation) -> None:
    budget = Budget.objects.create(organisation=acme, amount=10)
    spend(acme, "7.99", NOON)
    roll_up(NOON)
    assert note_steps_of_the_ledger(NOON) == 0

    spend(acme, "1.01", NOON)
    roll_up(NOON)
    assert note_steps_of_the_ledger(NOON) == 2
    assert note_steps_of_the_ledger(NOON) == 0
    assert steps(budget) == [1, 2]
    entries = Entry.objects.filter(kind=EntryKind.BUDGET, organisation_id=acme.pk).values_list("facts", flat=True)
    assert sorted(facts["step"] for facts in entries) == ["degraded", "warned"]


def test_what_a_request_has_noticed_is_not_recorded_again(acme: Organisation) -> None:
    budget = Budget.objects.create(organisation=acme, amount=1)
    BudgetCrossing.objects.create(budget=budget, period="2026-12", stage=1)
    spend(acme, "0.85", NOON)
    roll_up(NOON)
    assert note_steps_of_the_ledger(NOON) == 0


def test_each_budget_counts_its_own(acme: Organisation) -> None:
    key, _ = people.api_key(acme)
    of_key = Budget.objects.create(organisation=acme, api_key=key, amount=1)
    platform, empty = Budget.objects.create(amount=1), Budget.objects.create(organisation=acme, amount=0)
    other = Budget.objects.create(organisation=people.organisation("Other"), amount=1)
    spend(acme, "0.9", NOON, api_key_id=key.pk)
    spend(acme, "5", NOON, api_key_id=uuid7())
    spend(acme, "5", NOON - timedelta(days=15), api_key_id=key.pk)  # in November
    spend(acme, "0.96", NOON, external=True)
    roll_up(NOON)
    note_steps_of_the_ledger(NOON)

    assert steps(of_key) == [1, 2]
    assert steps(platform) == [1, 2, 3]
    assert steps(empty) == [1, 2, 3, 4]
    assert steps(other) == []

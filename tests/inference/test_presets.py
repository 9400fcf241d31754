"""Presets: what they put into the catalog is valid, serves nobody yet, and says which numbers are assumed."""

from __future__ import annotations

from io import StringIO

import pytest
from django.core.management import call_command

from inference.budget_models import Budget
from inference.lifecycle.queries import served_deployments
from inference.models import Deployment, ModelVersion
from inference.presets import PRESETS

pytestmark = pytest.mark.django_db


def adopt(*names: str) -> str:
    out = StringIO()
    call_command("adopt_preset", *names, stdout=out)
    return out.getvalue()


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_a_draft_that_serves_nobody_and_names_its_assumptions(name: str) -> None:
    said = adopt(name)
    version = ModelVersion.objects.get()
    assert version.lifecycle == "draft"
    assert not version.deployments.get().is_enabled
    assert not served_deployments().exists()
    preset = PRESETS[name]
    for field in preset.assumed:
        assert field in said
        assert hasattr(version, field) or hasattr(version.deployments.get(), field)


def test_adopting_again_changes_nothing_that_somebody_set() -> None:
    adopt("small-instruct")
    ModelVersion.objects.update(input_price=7)
    adopt("small-instruct")
    assert ModelVersion.objects.get().input_price == 7
    assert Deployment.objects.count() == 1


def test_without_a_name_it_shows_what_there_is() -> None:
    assert [line.split()[0] for line in adopt().splitlines()] == list(PRESETS)


def test_the_platform_gets_the_workloads_cap_and_keeps_one_that_it_has() -> None:
    assert "The platform's budget: 50000.00 USD a month." in adopt("small-instruct")
    adopt("qwen3.8-2.4t-a95b-nvfp4")
    caps = Budget.objects.filter(organisation=None).values_list("period", "amount")
    assert sorted(caps) == [("month", 50_000), ("year", 500_000)]

    Budget.objects.filter(period="month").update(amount=7)
    assert "7.00 USD a month" in adopt("small-instruct")

"""Canaries that burn are taken back once, with their figures; others, and what is not their fault, are left alone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.test import Client
from django.urls import reverse

from compliance.audit.models import Entry, EntryKind
from console.accounts.models import Organisation, User
from gpu_workers.identifiers import uuid7
from inference.exchange_models import Attempt, Exchange
from inference.lifecycle import actions
from inference.lifecycle.canary import watch_canaries
from inference.lifecycle.canary_policy import CanaryPolicy
from inference.models import Deployment, ModelVersion
from tests.inference.lifecycle.test_steps import promote, state_of

pytestmark = pytest.mark.django_db

NOW = datetime.now(UTC)
MINUTE = timedelta(minutes=1)


@pytest.fixture
def canary(version: ModelVersion, one: User, other: User) -> ModelVersion:
    """For ten minutes."""
    promote(version, one, other, "canary", NOW - 10 * MINUTE)
    return version


def answers(version: ModelVersion, organisation: Organisation, count: int, **attempt: Any) -> None:
    """Attempts at the version's deployment, a minute ago unless `ago` says otherwise."""
    opened = NOW - attempt.pop("ago", MINUTE)
    deployment = version.deployments.get()
    usual = {"number": 1, "status": "finished", "ttft_ms": 100.0, "worker": "w"}
    for _ in range(count):
        exchange = Exchange.objects.create(
            id=uuid7(),
            organisation=organisation,
            request_id="r",
            channel="http",
            model=version.name,
            deployment=deployment,
            status="finished",
            owner="web",
            configuration=1,
            opened_at=opened,
            deadline_at=opened + 2 * MINUTE,
        )
        Attempt.objects.create(exchange=exchange, deployment=deployment, **usual | attempt)


BROKEN = {"status": "failed", "error_code": "engine_failed", "ttft_ms": None}


def test_one_that_fails_is_taken_back_with_its_figures(canary: ModelVersion, organisation: Organisation) -> None:
    answers(canary, organisation, 17)
    answers(canary, organisation, 3, **BROKEN)
    assert watch_canaries(NOW) == 1

    assert state_of(canary) == "validated"
    step = canary.steps.first()
    assert (step.kind, step.state, step.proposed_by, step.approved_by) == ("revert", "in_force", None, None)
    assert (step.figures["bad"], step.figures["of"]) == (3, 20)
    assert "3 of 20 bad in 5 minutes" in step.why
    entry = Entry.objects.filter(kind=EntryKind.CONFIGURATION, facts__step=str(step.pk)).get()
    assert entry.facts["figures"] == step.figures
    assert entry.facts["by"] is None
    assert watch_canaries(NOW) == 0


@pytest.mark.parametrize(
    "bad",
    [
        {"status": "lost", "error_code": "worker_lost", "ttft_ms": None},
        {"ttft_ms": 1_001.0},
        {"status": "failed", "error_code": "deadline_exceeded"},
    ],
)
def test_what_is_lost_or_late_is_bad(canary: ModelVersion, organisation: Organisation, bad: dict[str, Any]) -> None:
    answers(canary, organisation, 17)
    answers(canary, organisation, 3, **bad)
    assert watch_canaries(NOW) == 1


@pytest.mark.parametrize(
    "not_counted",
    [
        {"status": "cancelled", "ttft_ms": 9_000.0},
        {"status": "failed", "error_code": "context_length_exceeded"},
        {"status": "failed", "error_code": "worker_draining"},
        {**BROKEN, "number": 100},  # a mirror's copy
        {**BROKEN, "ago": 11 * MINUTE},  # before it was a canary
    ],
)
def test_what_is_not_its_fault_is_not_counted(
    canary: ModelVersion, organisation: Organisation, not_counted: dict[str, Any]
) -> None:
    answers(canary, organisation, 20)
    answers(canary, organisation, 20, **not_counted)
    assert watch_canaries(NOW) == 0
    assert state_of(canary) == "canary"


def test_few_answers_decide_nothing(canary: ModelVersion, organisation: Organisation) -> None:
    answers(canary, organisation, 19, **BROKEN)
    assert watch_canaries(NOW) == 0
    answers(canary, organisation, 1)
    assert watch_canaries(NOW) == 1


def test_what_has_stopped_burning_stays(canary: ModelVersion, organisation: Organisation) -> None:
    answers(canary, organisation, 20, **BROKEN, ago=8 * MINUTE)
    answers(canary, organisation, 20)
    assert watch_canaries(NOW) == 0


def test_it_is_not_blamed_for_what_happens_to_live_as_well(
    canary: ModelVersion, organisation: Organisation, one: User, other: User
) -> None:
    live = ModelVersion.objects.create(name=canary.name, version="0", context_length=4096)
    Deployment.objects.create(slug="old", model_version=live, engine="simulated")
    promote(live, one, other, "live", NOW - 60 * MINUTE)
    answers(canary, organisation, 14)
    answers(canary, organisation, 6, **BROKEN)
    answers(live, organisation, 16)
    answers(live, organisation, 4, **BROKEN)
    assert watch_canaries(NOW) == 0

    answers(live, organisation, 20)
    assert watch_canaries(NOW) == 1
    assert canary.steps.first().figures["live_of"] == 40


def test_its_own_objective_decides(canary: ModelVersion, organisation: Organisation) -> None:
    policy = CanaryPolicy.objects.create(model_version=canary, is_enabled=False, good_percent=97, ttft_ms=50)
    answers(canary, organisation, 20)  # in 100 ms
    assert watch_canaries(NOW) == 0
    policy.is_enabled = True
    policy.save()
    assert watch_canaries(NOW) == 1


@pytest.mark.parametrize(("field", "value"), [("good_percent", 94), ("good_percent", 100), ("ttft_ms", 0)])
def test_an_objective_without_sense_is_refused(canary: ModelVersion, field: str, value: int) -> None:
    with pytest.raises(ValidationError) as refused:
        CanaryPolicy(model_version=canary, **{field: value}).full_clean()
    assert field in refused.value.message_dict


def test_one_that_was_promoted_or_taken_back_is_left_alone(
    canary: ModelVersion, organisation: Organisation, one: User, other: User
) -> None:
    answers(canary, organisation, 20, **BROKEN)
    promote(canary, one, other, "live", NOW)
    assert watch_canaries(NOW) == 0
    assert state_of(canary) == "live"


def test_what_was_proposed_for_it_is_withdrawn(canary: ModelVersion, organisation: Organisation, one: User) -> None:
    step = actions.propose(one, canary.pk, now=NOW)
    answers(canary, organisation, 20, **BROKEN)
    watch_canaries(NOW)
    step.refresh_from_db()
    assert step.state == "withdrawn"


def test_the_page_says_why_and_takes_another_objective(
    canary: ModelVersion, organisation: Organisation, one: User, client: Client
) -> None:
    answers(canary, organisation, 20, **BROKEN)
    watch_canaries(NOW)
    client.force_login(one)
    page = client.get(reverse("admin:inference_modelversion_change", args=[canary.pk])).content.decode()
    assert "taken back by itself: 20 of 20 bad in 5 minutes, 20 of 20 in an hour; live 0 of 0" in page
    assert "What it must keep to as a canary" in page

    objective = {"is_enabled": "", "good_percent": "97.50", "ttft_ms": "800", "at_least": "50"}
    forms = {
        "canary_policy": {"TOTAL_FORMS": "1", "INITIAL_FORMS": "0"},
        "steps": {"TOTAL_FORMS": "0", "INITIAL_FORMS": "0"},
    }
    body = {f"{prefix}-{name}": value for prefix, form in forms.items() for name, value in form.items()}
    body |= {f"canary_policy-0-{name}": value for name, value in objective.items()}
    body |= {"input_price": "0", "cached_price": "0", "output_price": "0"}
    saved = client.post(reverse("admin:inference_modelversion_change", args=[canary.pk]), body)
    assert saved.status_code == 302, saved.content.decode()
    assert str(CanaryPolicy.objects.get(model_version=canary)) == "97.50 % good, TTFT 800 ms"

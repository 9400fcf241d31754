"""The life of a version: each step proposed by one and approved by another, for a time, and taken back in one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from auditlog.models import LogEntry
from django.core.exceptions import PermissionDenied
from django.db import IntegrityError, transaction

from compliance.audit.models import Entry, EntryKind
from console.accounts.history import acting
from console.accounts.models import Organisation, User
from inference.evaluation.models import EvaluationSet
from inference.four_eyes import SecondPersonNeeded
from inference.lifecycle import actions
from inference.lifecycle.effect import apply_due_steps
from inference.lifecycle.models import LifecycleStep
from inference.lifecycle.queries import served_deployments
from inference.models import ModelVersion
from tests.console import people

pytestmark = pytest.mark.django_db

NOON = datetime(2027, 3, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def promote(version: ModelVersion, one: User, other: User, to_state: str = "live", now: datetime = NOON) -> None:
    while state_of(version) != to_state:
        actions.propose(one, version.pk, now=now)
        actions.approve(other, version.pk, now=now)


def state_of(version: ModelVersion) -> str:
    version.refresh_from_db()
    return version.lifecycle


def events(version: ModelVersion) -> list[Any]:
    entries = Entry.objects.filter(kind=EntryKind.CONFIGURATION, facts__model_version=str(version.pk)).order_by("id")
    return [(entry.facts["event"], entry.facts["to"]) for entry in entries]


def test_a_version_goes_one_state_at_a_time_to_live(version: ModelVersion, one: User, other: User) -> None:
    promote(version, one, other)
    steps = list(version.steps.order_by("id").values_list("from_state", "to_state", "state"))
    assert steps == [
        ("draft", "validated", "in_force"),
        ("validated", "canary", "in_force"),
        ("canary", "live", "in_force"),
    ]
    with pytest.raises(actions.WrongState, match="is live: there is no next state"):
        actions.propose(one, version.pk, now=NOON)


def test_who_proposed_does_not_approve(version: ModelVersion, one: User, other: User) -> None:
    actions.propose(one, version.pk, now=NOON)
    with pytest.raises(SecondPersonNeeded):
        actions.approve(one, version.pk, now=NOON)
    assert state_of(version) == "draft"
    step = actions.approve(other, version.pk, now=NOON)
    assert (step.proposed_by, step.approved_by, step.effective_from) == (one, other, NOON)
    assert state_of(version) == "validated"


def test_one_person_is_enough_where_the_organisation_says_so(version: ModelVersion, one: User) -> None:
    Organisation.objects.update(four_eyes=False)
    actions.propose(one, version.pk, now=NOON)
    actions.approve(User.objects.get(pk=one.pk), version.pk, now=NOON)
    assert state_of(version) == "validated"


def test_what_is_approved_for_later_holds_from_then_on(version: ModelVersion, one: User, other: User) -> None:
    promote(version, one, other, "validated")
    actions.propose(one, version.pk, effective_from=NOON + HOUR, now=NOON)
    step = actions.approve(other, version.pk, now=NOON)
    assert (step.state, state_of(version)) == ("approved", "validated")

    assert not served_deployments(NOON + HOUR - timedelta(microseconds=1)).exists()
    assert served_deployments(NOON + HOUR).get().slug == "new-1"
    assert apply_due_steps(NOON + HOUR - timedelta(microseconds=1)) == 0
    assert apply_due_steps(NOON + HOUR) == 1
    assert apply_due_steps(NOON + HOUR) == 0
    assert state_of(version) == "canary"
    assert events(version)[-2:] == [("approved", "canary"), ("in_force", "canary")]


def test_a_time_that_passed_before_the_approval_is_the_approvals(version: ModelVersion, one: User, other: User) -> None:
    actions.propose(one, version.pk, effective_from=NOON, now=NOON - HOUR)
    assert actions.approve(other, version.pk, now=NOON + HOUR).effective_from == NOON + HOUR


def test_what_is_due_counts_before_anything_else_is_done(version: ModelVersion, one: User, other: User) -> None:
    actions.propose(one, version.pk, effective_from=NOON + HOUR, now=NOON)
    actions.approve(other, version.pk, now=NOON)
    with pytest.raises(actions.WrongState, match="approved already"):
        actions.propose(one, version.pk, now=NOON)
    assert actions.propose(one, version.pk, now=NOON + HOUR).to_state == "canary"


def test_a_step_is_taken_back_in_one_action_by_one_person(version: ModelVersion, one: User, other: User) -> None:
    promote(version, one, other)
    step = actions.revert(one, version.pk, now=NOON)
    assert (step.from_state, step.to_state, state_of(version)) == ("live", "canary", "canary")
    assert step.reverts.state == "reverted"
    actions.revert(one, version.pk, now=NOON)
    assert state_of(version) == "validated"
    assert not served_deployments(NOON).exists()


def test_going_back_withdraws_what_is_under_way(version: ModelVersion, one: User, other: User) -> None:
    promote(version, one, other, "canary")
    waiting = actions.propose(one, version.pk, now=NOON)
    actions.revert(other, version.pk, now=NOON)
    waiting.refresh_from_db()
    assert (waiting.state, state_of(version)) == ("withdrawn", "validated")


def test_a_version_that_took_no_step_has_none_to_take_back(version: ModelVersion, one: User) -> None:
    with pytest.raises(actions.WrongState, match="no step to take back"):
        actions.revert(one, version.pk, now=NOON)


def test_what_is_withdrawn_never_holds(version: ModelVersion, one: User, other: User) -> None:
    actions.propose(one, version.pk, effective_from=NOON + HOUR, now=NOON)
    actions.approve(other, version.pk, now=NOON)
    actions.withdraw(one, version.pk, now=NOON)
    assert apply_due_steps(NOON + 2 * HOUR) == 0
    assert state_of(version) == "draft"
    for act in (actions.withdraw, actions.approve):
        with pytest.raises(actions.WrongState, match="nothing waits"):
            act(other, version.pk, now=NOON)


def test_a_retired_version_is_served_and_promoted_no_more(version: ModelVersion, one: User, other: User) -> None:
    promote(version, one, other)
    actions.retire(one, version.pk, now=NOON)
    assert not served_deployments(NOON).exists()
    for act in (actions.propose, actions.retire):
        with pytest.raises(actions.WrongState, match="retired"):
            act(other, version.pk, now=NOON)
    actions.revert(other, version.pk, now=NOON)
    assert state_of(version) == "live"


def test_a_retirement_date_ends_it_and_what_was_to_come(version: ModelVersion, one: User, other: User) -> None:
    promote(version, one, other, "canary")
    ModelVersion.objects.filter(pk=version.pk).update(retires_at=NOON + HOUR)
    with pytest.raises(actions.PromotionRefused, match="retires before"):
        actions.propose(one, version.pk, effective_from=NOON + HOUR, now=NOON)
    actions.propose(one, version.pk, now=NOON)
    assert apply_due_steps(NOON + HOUR) == 1
    assert state_of(version) == "retired"
    assert set(version.steps.values_list("state", flat=True)) == {"in_force", "withdrawn"}
    with pytest.raises(actions.PromotionRefused, match="retires before"):
        actions.revert(one, version.pk, now=NOON + HOUR)


def test_only_those_who_may_change_versions_do(version: ModelVersion, organisation: Organisation) -> None:
    for role in ("administrator", "officer", "developer", "end_user"):
        for act in (actions.propose, actions.approve, actions.withdraw, actions.revert, actions.retire):
            with pytest.raises(PermissionDenied):
                act(people.member(organisation, role), version.pk, now=NOON)
    assert not LifecycleStep.objects.exists()


def test_each_step_is_in_the_record_without_anybodys_name(version: ModelVersion, one: User, other: User) -> None:
    promote(version, one, other, "validated")
    actions.revert(one, version.pk, now=NOON)
    assert events(version) == [
        ("proposed", "validated"),
        ("approved", "validated"),
        ("in_force", "validated"),
        ("in_force", "draft"),
    ]
    for entry in Entry.objects.filter(kind=EntryKind.CONFIGURATION):
        assert entry.organisation_id == one.member.organisation_id
        assert entry.payload is None
        assert one.username not in str(entry.facts)
        assert entry.facts["proposed_by"] == str(one.pk)


def test_each_step_is_in_the_change_history_with_its_actor(version: ModelVersion, one: User, other: User) -> None:
    with acting(one):
        step = actions.propose(one, version.pk, now=NOON)
    with acting(other):
        actions.approve(other, version.pk, now=NOON)
    changes = LogEntry.objects.get_for_object(step).order_by("id")
    states = [(entry.actor, entry.changes_dict["state"][1]) for entry in changes if "state" in entry.changes_dict]
    assert states == [(one, "proposed"), (other, "approved"), (other, "in_force")]
    assert LogEntry.objects.get_for_object(version).first().changes_dict == {"lifecycle": ["draft", "validated"]}


def test_the_database_holds_one_open_step_a_version(version: ModelVersion) -> None:
    LifecycleStep.objects.create(model_version=version, from_state="draft", to_state="validated")
    with pytest.raises(IntegrityError), transaction.atomic():
        LifecycleStep.objects.create(model_version=version, from_state="draft", to_state="validated")
    with pytest.raises(IntegrityError), transaction.atomic():
        LifecycleStep.objects.update(state="approved")


def test_the_gate_is_asked_again_when_the_time_comes(version: ModelVersion, one: User, other: User) -> None:
    promote(version, one, other, "canary")
    actions.propose(one, version.pk, effective_from=NOON + HOUR, now=NOON)
    actions.approve(other, version.pk, now=NOON)
    EvaluationSet.objects.create(model_version=version).prompts.create(
        position=0, prompt="why", check_of_answer={"kind": "contains", "text": "because"}
    )  # which has never been run

    apply_due_steps(NOON + HOUR)
    assert state_of(version) == "canary"
    assert events(version)[-1] == ("refused", "live")
    assert not version.steps.filter(state__in=("proposed", "approved")).exists()

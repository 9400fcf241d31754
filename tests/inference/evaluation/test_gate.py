"""The gate before live, and runs that cannot be: by set, version, threshold, organisation and deployment."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from auditlog.models import LogEntry
from django.core.exceptions import PermissionDenied, ValidationError
from django.core.management import CommandError, call_command
from django.test import Client

from console.accounts.models import Organisation, Role, User
from inference.evaluation import actions as evaluation
from inference.evaluation.models import MAX_PROMPTS, EvaluationPrompt, EvaluationRun, EvaluationSet
from inference.lifecycle import actions
from inference.models import Deployment, Lifecycle, ModelVersion
from tests.console import people

pytestmark = pytest.mark.django_db
NOON = datetime(2027, 3, 1, 12, tzinfo=UTC)
REFUSAL = {"kind": "refusal"}
SETS, RUNS = "/admin/inference/evaluationset/", "/admin/inference/evaluationrun/"


@pytest.fixture
def organisation() -> Organisation:
    return people.organisation("Operator")


@pytest.fixture
def one(organisation: Organisation) -> User:
    return people.superuser(organisation)


@pytest.fixture
def other(organisation: Organisation) -> User:
    return people.superuser(organisation)


@pytest.fixture
def version() -> ModelVersion:
    made = ModelVersion.objects.create(name="new", version="1", context_length=4096, lifecycle=Lifecycle.CANARY)
    Deployment.objects.create(slug="new-1", model_version=made, engine="simulated")
    return made


def make_set(version: ModelVersion, prompts: int = 10, **fields: Any) -> EvaluationSet:
    made = EvaluationSet.objects.create(model_version=version, **fields)
    rows = [
        EvaluationPrompt(
            evaluation_set=made, position=number, prompt=f"secret prompt {number}", check_of_answer=REFUSAL
        )
        for number in range(prompts)
    ]
    EvaluationPrompt.objects.bulk_create(rows)
    return made


def ran(of: EvaluationSet, passed: int, total: int = 10, **fields: Any) -> EvaluationRun:
    finished = {"state": "finished", "digest": of.digest(), "passed": passed, "total": total}
    return EvaluationRun.objects.create(model_version=of.model_version, **finished | fields)


def test_at_the_threshold_a_version_goes_live_and_below_it_does_not(
    version: ModelVersion, one: User, other: User
) -> None:
    made = make_set(version, threshold=Decimal(90))
    ran(made, 8)
    with pytest.raises(actions.PromotionRefused, match="passed 8 of 10 prompts; 90"):
        actions.propose(one, version.pk, now=NOON)
    ran(made, 9)
    actions.propose(one, version.pk, now=NOON)
    ran(made, 8)  # a later run counts, also between the two
    with pytest.raises(actions.PromotionRefused, match="passed 8"):
        actions.approve(other, version.pk, now=NOON)
    ran(made, 10)
    actions.approve(other, version.pk, now=NOON)
    version.refresh_from_db()
    assert version.lifecycle == "live"


@pytest.mark.parametrize("fields", [{"state": "failed"}, {"state": "running"}, {"digest": "another"}])
def test_a_run_that_did_not_finish_or_was_about_something_else_does_not_count(
    version: ModelVersion, one: User, fields: dict[str, str]
) -> None:
    ran(make_set(version), 10, **fields)
    with pytest.raises(actions.PromotionRefused, match="has not been run as it is now"):
        actions.propose(one, version.pk, now=NOON)


def test_a_change_of_the_set_or_the_version_makes_a_run_old(version: ModelVersion, one: User) -> None:
    made = make_set(version)
    ran(made, 10)
    before = made.digest()
    made.prompts.filter(position=3).update(check_of_answer={"kind": "contains", "text": "a"})
    changed = EvaluationSet.objects.get(pk=made.pk)
    assert changed.digest() != before
    ran(changed, 10)
    ModelVersion.objects.update(engine_arguments=["--max-num-seqs", "1"])
    with pytest.raises(actions.PromotionRefused, match="has not been run"):
        actions.propose(one, version.pk, now=NOON)


def test_without_a_set_it_is_the_organisations_setting_that_decides(version: ModelVersion, one: User) -> None:
    with pytest.raises(actions.PromotionRefused, match="no evaluation set"):
        actions.propose(one, version.pk, now=NOON)
    Organisation.objects.update(requires_evaluation=False)
    one = User.objects.get(pk=one.pk)
    make_set(version, prompts=0)  # an empty set is no way around it
    with pytest.raises(actions.PromotionRefused, match="no evaluation set"):
        actions.propose(one, version.pk, now=NOON)
    EvaluationSet.objects.all().delete()
    assert actions.propose(one, version.pk, now=NOON).to_state == "live"


def test_someone_without_an_organisation_has_no_exception(version: ModelVersion) -> None:
    with pytest.raises(actions.PromotionRefused, match="no evaluation set"):
        actions.propose(User.objects.create(username="nobody", is_superuser=True), version.pk, now=NOON)


def test_a_set_that_is_empty_or_huge_is_not_run(version: ModelVersion) -> None:
    with pytest.raises(evaluation.CannotEvaluate):
        evaluation.new_run(version.pk)
    made = make_set(version, prompts=MAX_PROMPTS + 1)
    with pytest.raises(evaluation.CannotEvaluate, match=f"1 to {MAX_PROMPTS} prompts"):
        evaluation.new_run(version.pk)
    made.prompts.first().delete()
    assert evaluation.new_run(version.pk).total == MAX_PROMPTS


def test_a_version_that_runs_nowhere_is_not_evaluated(version: ModelVersion) -> None:
    make_set(version)
    Deployment.objects.update(is_draining=True)
    with pytest.raises(CommandError, match="no enabled deployment"):
        call_command("evaluate", "new", "1")
    with pytest.raises(CommandError, match="no such model version"):
        call_command("evaluate", "new", "2")


def test_a_run_of_a_set_that_was_changed_meanwhile_fails(version: ModelVersion) -> None:
    made = make_set(version)
    run = evaluation.new_run(version.pk)
    made.prompts.first().delete()
    done = evaluation.run_evaluation(run.pk)
    assert (done.state, done.error_code) == ("failed", "set_changed")
    assert evaluation.run_evaluation(run.pk).state == "failed"


@pytest.mark.parametrize(
    "fields", [{"prompt": "a" * 8_001}, {"max_tokens": 0}, {"max_tokens": 1_025}, {"check_of_answer": {"kind": "luck"}}]
)
def test_a_prompt_that_cannot_be_is_refused(version: ModelVersion, fields: dict[str, Any]) -> None:
    usual = {"prompt": "hello", "check_of_answer": REFUSAL}
    row = EvaluationPrompt(evaluation_set=make_set(version, prompts=0), **usual | fields)
    with pytest.raises(ValidationError) as caught:
        row.full_clean()
    assert set(caught.value.message_dict) == set(fields)


def test_prompts_are_not_in_the_change_history(version: ModelVersion) -> None:
    made = EvaluationSet.objects.create(model_version=version)
    EvaluationPrompt.objects.create(evaluation_set=made, prompt="secret prompt", check_of_answer=REFUSAL)
    assert LogEntry.objects.exists()
    assert not [entry for entry in LogEntry.objects.all() if "secret prompt" in str(entry.changes_dict)]


def test_the_operator_writes_a_set(version: ModelVersion, one: User) -> None:
    client = Client()
    client.force_login(one)
    posted = {"model_version": str(version.pk), "threshold": "75", "prompts-TOTAL_FORMS": "1"}
    posted |= {"prompts-INITIAL_FORMS": "0", "prompts-0-position": "0", "prompts-0-max_tokens": "16"}
    posted |= {"prompts-0-prompt": "2 + 2?", "prompts-0-check_of_answer": '{"kind": "number", "value": "x"}'}
    assert client.post(f"{SETS}add/", posted).status_code == 200
    assert client.post(f"{SETS}add/", posted | {"threshold": "0"}).status_code == 200
    posted |= {"prompts-0-check_of_answer": '{"kind": "number", "value": 4}'}
    assert client.post(f"{SETS}add/", posted).status_code == 302
    assert EvaluationSet.objects.get().prompts.get().check_of_answer == {"kind": "number", "value": 4}


@pytest.mark.parametrize("role", [Role.ADMINISTRATOR, Role.OFFICER])
def test_others_see_runs_and_neither_sets_nor_buttons(
    version: ModelVersion, organisation: Organisation, role: str
) -> None:
    made = make_set(version)
    run = ran(made, 9)
    client, member = Client(), people.member(organisation, role)
    client.force_login(member)
    page = client.get(f"{RUNS}{run.pk}/change/").content.decode()
    assert "90.0" in page
    assert "secret prompt" not in page
    for path in (SETS, f"{SETS}{made.pk}/change/", f"{SETS}{made.pk}/run/", f"{SETS}add/"):
        assert client.get(path).status_code == 403
        assert client.post(path).status_code == 403
    with pytest.raises(PermissionDenied):
        evaluation.ask_for_run(member, version.pk)

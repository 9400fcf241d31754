"""Versions of the rules in the database: proposed, activated by a second person, and gone back to in one step."""

from __future__ import annotations

from typing import Any

import pytest
from auditlog.models import LogEntry
from django.core.exceptions import PermissionDenied, ValidationError
from django.db import IntegrityError, transaction

from console.accounts.history import acting
from console.accounts.models import Organisation, User
from inference.four_eyes import SecondPersonNeeded, require_second_person
from inference.models import Lifecycle, ModelVersion
from inference.routing import actions
from inference.routing.models import RoutingRule, RoutingRuleSet, RuleSetState
from inference.routing.queries import problems_of
from inference.routing.rules import Rule
from tests.console import people

pytestmark = pytest.mark.django_db


@pytest.fixture
def organisation() -> Organisation:
    people.deployment()
    return people.organisation()


@pytest.fixture
def one(organisation: Organisation) -> User:
    return people.superuser(organisation)


@pytest.fixture
def other(organisation: Organisation) -> User:
    return people.superuser(organisation)


def draft(**route: Any) -> RoutingRuleSet:
    rule_set = RoutingRuleSet.objects.create(version=actions.next_version())
    RoutingRule.objects.create(rule_set=rule_set, name="all", route=route)
    return rule_set


def active(one: User, other: User, **route: Any) -> RoutingRuleSet:
    return actions.activate(other, actions.propose(one, draft(**route).pk).pk)


def test_a_second_person_activates_what_one_proposed(one: User, other: User) -> None:
    rule_set = draft()
    actions.propose(one, rule_set.pk)
    with pytest.raises(SecondPersonNeeded):
        actions.activate(one, rule_set.pk)
    actions.activate(other, rule_set.pk)
    rule_set.refresh_from_db()
    assert (rule_set.state, rule_set.proposed_by, rule_set.activated_by) == (RuleSetState.ACTIVE, one, other)
    assert rule_set.effective_from
    assert rule_set.effective_until is None


def test_one_person_is_enough_where_the_organisation_says_so(one: User) -> None:
    Organisation.objects.update(four_eyes=False)
    rule_set = draft()
    actions.propose(one, rule_set.pk)
    assert actions.activate(User.objects.get(pk=one.pk), rule_set.pk).state == RuleSetState.ACTIVE


def test_without_an_organisation_or_a_proposer_a_second_person_is_needed(one: User) -> None:
    nobody = User.objects.create(username="without-organisation", is_superuser=True)
    require_second_person(one, nobody)
    for proposer, approver in ((nobody, nobody), (None, one), (None, nobody)):
        with pytest.raises(SecondPersonNeeded):
            require_second_person(proposer, approver)


def test_switching_four_eyes_off_is_in_the_history(one: User, organisation: Organisation) -> None:
    organisation.four_eyes = False
    with acting(one):
        organisation.save()
    entry = LogEntry.objects.get_for_object(organisation).first()
    assert entry.changes_dict["four_eyes"] == ["True", "False"]
    assert entry.actor == one


def test_an_activated_version_takes_the_place_of_the_one_before(one: User, other: User) -> None:
    first, second = active(one, other), active(one, other)
    first.refresh_from_db()
    assert first.state == RuleSetState.SUPERSEDED
    assert first.effective_until == second.effective_from
    with pytest.raises(IntegrityError), transaction.atomic():
        RoutingRuleSet.objects.filter(pk=first.pk).update(state=RuleSetState.ACTIVE)


def test_going_back_takes_one_action_and_keeps_what_was(one: User, other: User) -> None:
    first = active(one, other, strategy="cheapest")
    second = active(one, other, strategy="adaptive")
    again = actions.revert(one, first.pk)
    assert again.state == RuleSetState.ACTIVE
    assert (again.version, again.reverts_to) == (second.version + 1, first)
    assert again.as_rule_set().rules == first.as_rule_set().rules
    second.refresh_from_db()
    assert second.state == RuleSetState.SUPERSEDED


def test_rules_with_problems_are_neither_proposed_nor_activated_nor_gone_back_to(one: User, other: User) -> None:
    unknown = draft(candidates=[{"deployment": "nowhere"}])
    with pytest.raises(actions.RuleSetInvalid, match="all, candidates: There is no deployment nowhere"):
        actions.propose(one, unknown.pk)

    first = active(one, other, fallbacks=["simulated-local"])
    active(one, other)
    waiting = actions.propose(one, draft(fallbacks=["simulated-local"]).pk)
    ModelVersion.objects.update(lifecycle=Lifecycle.RETIRED)
    for act, rule_set in ((actions.activate, waiting), (actions.revert, first)):
        with pytest.raises(actions.RuleSetInvalid, match="retired"):
            act(other, rule_set.pk)


def test_what_is_done_out_of_turn_is_refused(one: User, other: User) -> None:
    rule_set = draft()
    for act in (actions.activate, actions.revert, actions.withdraw):
        with pytest.raises(actions.WrongState):
            act(other, rule_set.pk)
    actions.propose(one, rule_set.pk)
    with pytest.raises(actions.WrongState):
        actions.propose(one, rule_set.pk)
    assert actions.withdraw(one, rule_set.pk).state == RuleSetState.DRAFT


def test_only_those_who_may_change_rules_do(organisation: Organisation) -> None:
    rule_set = draft()
    for role in ("administrator", "officer", "end_user"):
        with pytest.raises(PermissionDenied):
            actions.propose(people.member(organisation, role), rule_set.pk)


def test_each_step_is_in_the_history(one: User, other: User) -> None:
    with acting(one):
        rule_set = actions.propose(one, draft().pk)
    with acting(other):
        actions.activate(other, rule_set.pk)
    states = [
        (entry.actor, entry.changes_dict["state"][1])
        for entry in LogEntry.objects.get_for_object(rule_set).order_by("id")
        if "state" in entry.changes_dict
    ]
    assert states[-2:] == [(one, "proposed"), (other, "active")]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("conditions", {"modles": ["a"]}),
        ("conditions", {"priorities": ["urgent"]}),
        ("conditions", {"min_prompt_tokens": "many"}),
        ("conditions", ["m"]),
        ("route", {"strategy": "fastest"}),
        ("route", {"candidates": [{"weight": 1}]}),
        ("route", {"candidates": [{"deployment": "d", "weight": float("nan")}]}),
        ("route", {"deadline_s": float("inf")}),
    ],
)
def test_json_that_is_no_rule_is_refused_at_its_field(field: str, value: Any) -> None:
    rule = RoutingRule(rule_set=draft(), name="wrong", **{field: value})
    with pytest.raises(ValidationError) as caught:
        rule.full_clean()
    assert field in caught.value.message_dict


def test_what_is_left_empty_asks_for_nothing() -> None:
    rule = RoutingRule(rule_set=draft(), name="empty", conditions=None, route=None)
    rule.full_clean(exclude=["conditions", "route"])
    assert rule.as_rule() == Rule("empty")


def test_a_draft_with_broken_json_has_a_problem_and_no_traceback() -> None:
    rule_set = draft()
    RoutingRule.objects.update(route={"strategy": 7})
    assert [(problem.rule, problem.field) for problem in problems_of(rule_set)] == [("", "rules")]

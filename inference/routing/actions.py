"""The life of a rule set: drafted, proposed, activated by a second person, superseded, and gone back to.

Every change is a row's own save, so that the history of configuration keeps it with who made it.
"""

from __future__ import annotations

from uuid import UUID

from django.contrib.auth.models import AbstractUser
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.db.models import Max
from django.utils import timezone

from inference.four_eyes import require_second_person
from inference.routing.models import RoutingRule, RoutingRuleSet, RuleSetState
from inference.routing.queries import problems_of
from inference.routing.validation import Problem

PERMISSION = "inference.change_routingruleset"


class RuleSetInvalid(Exception):
    """The rule set has problems; each names its rule and its field."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("; ".join(str(problem) for problem in problems))
        self.problems = problems


class WrongState(Exception):
    """The rule set is not in a state from which this can be done; the message says in which it is."""


def next_version() -> int:
    latest: int | None = RoutingRuleSet.objects.aggregate(latest=Max("version"))["latest"]
    return (latest or 0) + 1


@transaction.atomic
def draft_from(actor: AbstractUser, pk: UUID) -> RoutingRuleSet:
    """A new draft with the rules of an existing version."""
    return _copy(_locked(actor, pk), RoutingRuleSet(version=next_version()))


@transaction.atomic
def propose(actor: AbstractUser, pk: UUID) -> RoutingRuleSet:
    """From now on it is not edited. Raises `RuleSetInvalid`, `WrongState`, PermissionDenied."""
    rule_set = _locked(actor, pk, RuleSetState.DRAFT)
    _require_valid(rule_set)
    rule_set.state, rule_set.proposed_by_id, rule_set.proposed_at = RuleSetState.PROPOSED, actor.pk, timezone.now()
    rule_set.save()
    return rule_set


@transaction.atomic
def withdraw(actor: AbstractUser, pk: UUID) -> RoutingRuleSet:
    """Back to a draft, to be edited again. Raises `WrongState`, PermissionDenied."""
    rule_set = _locked(actor, pk, RuleSetState.PROPOSED)
    rule_set.state, rule_set.proposed_by, rule_set.proposed_at = RuleSetState.DRAFT, None, None
    rule_set.save()
    return rule_set


@transaction.atomic
def activate(actor: AbstractUser, pk: UUID) -> RoutingRuleSet:
    """Put it in force in place of the active one.

    Raises `SecondPersonNeeded` where the actor proposed it, `RuleSetInvalid`, `WrongState`, PermissionDenied.
    """
    rule_set = _locked(actor, pk, RuleSetState.PROPOSED)
    require_second_person(rule_set.proposed_by, actor)
    _require_valid(rule_set)
    _put_in_force(actor, rule_set)
    return rule_set


@transaction.atomic
def revert(actor: AbstractUser, pk: UUID) -> RoutingRuleSet:
    """Put the rules of an earlier version in force again, as a new version, in one step.

    No second person is asked for: two have agreed on these rules before. Raises as `activate` does otherwise.
    """
    earlier = _locked(actor, pk, RuleSetState.SUPERSEDED)
    _require_valid(earlier)
    now = timezone.now()
    again = RoutingRuleSet(version=next_version(), proposed_by_id=actor.pk, proposed_at=now, reverts_to=earlier)
    _put_in_force(actor, _copy(earlier, again))
    return again


def _locked(actor: AbstractUser, pk: UUID, *states: RuleSetState) -> RoutingRuleSet:
    """The row; every row is locked, so that two activations come one after the other."""
    if not (actor.is_active and actor.has_perm(PERMISSION)):
        raise PermissionDenied
    rows = {row.pk: row for row in RoutingRuleSet.objects.select_for_update().order_by("pk")}
    row = rows.get(pk)
    if row is None:
        raise RoutingRuleSet.DoesNotExist
    if states and row.state not in states:
        raise WrongState(f"{row} is {row.get_state_display().lower()}.")
    return row


def _require_valid(rule_set: RoutingRuleSet) -> None:
    if problems := problems_of(rule_set):
        raise RuleSetInvalid(problems)


def _put_in_force(actor: AbstractUser, rule_set: RoutingRuleSet) -> None:
    now = timezone.now()
    for active in RoutingRuleSet.objects.filter(state=RuleSetState.ACTIVE):
        active.state, active.effective_until = RuleSetState.SUPERSEDED, now
        active.save()
    rule_set.state, rule_set.activated_by_id, rule_set.effective_from = RuleSetState.ACTIVE, actor.pk, now
    rule_set.save()


def _copy(source: RoutingRuleSet, target: RoutingRuleSet) -> RoutingRuleSet:
    target.note, target.aliases = source.note, source.aliases
    target.save()
    for rule in source.rules.all():
        RoutingRule.objects.create(
            rule_set=target, position=rule.position, name=rule.name, conditions=rule.conditions, route=rule.route
        )
    return target

"""The life of a model version: proposed, approved by a second person for a time, taken back in one step, retired.

Every change is a row's own save, so that the history of configuration keeps it with who made it, and an entry in the
record, in one transaction. `now` is aware UTC; it is the clock's where none is given.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from django.contrib.auth.models import AbstractUser
from django.core.exceptions import PermissionDenied
from django.db import transaction

from inference.evaluation.gate import gate_problem
from inference.four_eyes import require_second_person
from inference.lifecycle.effect import catch_up, database_time, put_in_force, withdraw_open
from inference.lifecycle.models import OPEN, LifecycleStep, StepKind, StepState
from inference.lifecycle.queries import NEXT, open_step, revertible_step
from inference.lifecycle.recording import record_step
from inference.models import Lifecycle, ModelVersion

PERMISSION = "inference.change_modelversion"
SERVED = (Lifecycle.CANARY, Lifecycle.LIVE)


class WrongState(Exception):
    """This cannot be done from where the version is; the message says where that is."""


class PromotionRefused(Exception):
    """The version cannot go where it was to go; the message says what stands against it."""


@transaction.atomic
def propose(
    actor: AbstractUser, pk: UUID, *, effective_from: datetime | None = None, now: datetime | None = None
) -> LifecycleStep:
    """Propose the next state, from a time on or from the approval on.

    Raises `WrongState`, `PromotionRefused`, PermissionDenied.
    """
    version, now = _locked(actor, pk, now)
    if (under_way := open_step(version)) is not None:
        raise WrongState(f"{under_way} is {under_way.get_state_display().lower()} already.")
    if version.lifecycle not in NEXT:
        raise WrongState(f"{version} is {version.get_lifecycle_display().lower()}: there is no next state.")
    step = LifecycleStep(
        model_version=version,
        from_state=version.lifecycle,
        to_state=NEXT[version.lifecycle],
        proposed_by_id=actor.pk,
        proposed_at=now,
        effective_from=effective_from,
    )
    _require_fit(actor, version, step.to_state, effective_from or now)
    step.save()
    record_step(step, "proposed", actor)
    return step


@transaction.atomic
def approve(actor: AbstractUser, pk: UUID, *, now: datetime | None = None) -> LifecycleStep:
    """Approve what is proposed: it holds from its time on, or at once where that has passed.

    Raises `SecondPersonNeeded` where the actor proposed it, `WrongState`, `PromotionRefused`, PermissionDenied.
    """
    version, now = _locked(actor, pk, now)
    step = _under_way(version, StepState.PROPOSED)
    require_second_person(step.proposed_by, actor)
    step.approved_by_id, step.approved_at = actor.pk, now
    step.effective_from = max(step.effective_from or now, now)
    _require_fit(actor, version, step.to_state, step.effective_from)
    step.state = StepState.APPROVED
    step.save()
    record_step(step, "approved", actor)
    catch_up(version, now)
    step.refresh_from_db()
    return step


@transaction.atomic
def withdraw(actor: AbstractUser, pk: UUID, *, now: datetime | None = None) -> LifecycleStep:
    """Take back what is proposed, or approved and not in force yet. Raises `WrongState`, PermissionDenied."""
    version, _ = _locked(actor, pk, now)
    step = _under_way(version, *OPEN)
    withdraw_open(version)
    step.refresh_from_db()
    record_step(step, "withdrawn", actor)
    return step


@transaction.atomic
def revert(actor: AbstractUser, pk: UUID, *, now: datetime | None = None) -> LifecycleStep:
    """Back to the state before the last step, at once.

    No second person is asked for: two have agreed on that state before. Raises `WrongState`, `PromotionRefused`,
    PermissionDenied.
    """
    version, now = _locked(actor, pk, now)
    last = revertible_step(version)
    if last is None:
        raise WrongState(f"{version} is {version.get_lifecycle_display().lower()}: there is no step to take back.")
    _require_fit(actor, version, last.from_state, now, evaluated=False)
    last.state = StepState.REVERTED
    last.save(update_fields=["state"])
    return at_once(actor, version, StepKind.REVERT, last.from_state, now, last)


@transaction.atomic
def retire(actor: AbstractUser, pk: UUID, *, now: datetime | None = None) -> LifecycleStep:
    """Serve it to nobody from now on; it takes one person. Raises `WrongState`, PermissionDenied."""
    version, now = _locked(actor, pk, now)
    if version.lifecycle == Lifecycle.RETIRED:
        raise WrongState(f"{version} is retired already.")
    return at_once(actor, version, StepKind.RETIRE, Lifecycle.RETIRED, now)


def _locked(actor: AbstractUser, pk: UUID, now: datetime | None) -> tuple[ModelVersion, datetime]:
    """The version as it is at this moment, locked, so that two steps come one after the other."""
    if not (actor.is_active and actor.has_perm(PERMISSION)):
        raise PermissionDenied
    now = now or database_time()
    version = ModelVersion.objects.select_for_update().get(pk=pk)
    catch_up(version, now)
    return version, now


def _under_way(version: ModelVersion, *states: StepState) -> LifecycleStep:
    step = open_step(version)
    if step is None or step.state not in states:
        raise WrongState(f"{version} is {version.get_lifecycle_display().lower()}: nothing waits for this.")
    step.model_version = version
    return step


def _require_fit(
    actor: AbstractUser, version: ModelVersion, to_state: str, at: datetime, *, evaluated: bool = True
) -> None:
    """Going back asks for no new evaluation: the state gone back to was reached through the gate."""
    if to_state in SERVED and version.retires_at is not None and version.retires_at <= at:
        raise PromotionRefused(f"{version} retires before that.")
    if evaluated and to_state == Lifecycle.LIVE and (problem := gate_problem(version, actor)) is not None:
        raise PromotionRefused(problem)


def at_once(
    actor: AbstractUser | None,
    version: ModelVersion,
    kind: StepKind,
    to_state: str,
    now: datetime,
    reverts: LifecycleStep | None = None,
    figures: dict[str, Any] | None = None,
) -> LifecycleStep:
    """Put a locked version into another state now; without an actor it is the platform that does it, by `figures`."""
    if (open_one := withdraw_open(version)) is not None:
        record_step(open_one, "withdrawn", actor)
    step = LifecycleStep(
        model_version=version,
        kind=kind,
        from_state=version.lifecycle,
        to_state=to_state,
        proposed_by_id=actor.pk if actor is not None else None,
        proposed_at=now,
        effective_from=now,
        reverts=reverts,
        figures=figures,
    )
    put_in_force(step, version)
    record_step(step, "in_force", actor)
    return step

"""Steps whose time has come, written into their versions.

Nothing waits for this: what is served follows from the steps themselves, to the moment. It keeps the rows, the change
history and the record in step with it.
"""

from __future__ import annotations

from datetime import datetime

import structlog
from django.db import connection, transaction
from django.db.models import Q

from inference.evaluation.gate import gate_problem
from inference.lifecycle.models import OPEN, LifecycleStep, StepKind, StepState
from inference.lifecycle.recording import record_step
from inference.models import Lifecycle, ModelVersion

log = structlog.get_logger(__name__)


def apply_due_steps(now: datetime | None = None) -> int:
    """Apply every approved step and retirement date that has passed; how many."""
    now = now or database_time()
    due = Q(steps__state=StepState.APPROVED, steps__effective_from__lte=now)
    ended = Q(retires_at__lte=now) & ~Q(lifecycle=Lifecycle.RETIRED)
    versions = ModelVersion.objects.filter(due | ended).values_list("pk", flat=True).distinct()
    applied = 0
    for pk in list(versions):
        with transaction.atomic():
            applied += catch_up(ModelVersion.objects.select_for_update().get(pk=pk), now)
    return applied


def catch_up(version: ModelVersion, now: datetime) -> int:
    """Bring a locked version to this moment; how many steps that took."""
    steps = 0
    due = version.steps.filter(state=StepState.APPROVED, effective_from__lte=now).first()
    if due is not None:
        due.model_version = version
        if (problem := _stands_against(due)) is not None:
            due.state = StepState.WITHDRAWN
            due.save(update_fields=["state"])
            record_step(due, "refused", None)
            log.warning("step_refused_at_its_time", step=str(due.pk), problem=problem)
        else:
            put_in_force(due, version)
            record_step(due, "in_force", None)
        steps += 1
    if version.retires_at is not None and version.retires_at <= now and version.lifecycle != Lifecycle.RETIRED:
        withdraw_open(version)
        end = LifecycleStep(
            model_version=version,
            kind=StepKind.RETIRE,
            from_state=version.lifecycle,
            to_state=Lifecycle.RETIRED,
            proposed_at=now,
            effective_from=version.retires_at,
        )
        put_in_force(end, version)
        record_step(end, "in_force", None)
        steps += 1
    return steps


def database_time() -> datetime:
    """The clock that what is served goes by: a host whose own has jumped brings nothing forward."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT now()")
        now: datetime = cursor.fetchone()[0]
    return now


def _stands_against(due: LifecycleStep) -> str | None:
    """The gate is asked again when it opens: what was evaluated, or its evaluation set, may have changed since."""
    return gate_problem(due.model_version, due.approved_by) if due.to_state == Lifecycle.LIVE else None


def put_in_force(step: LifecycleStep, version: ModelVersion) -> None:
    step.model_version, step.state = version, StepState.IN_FORCE
    step.save()
    version.lifecycle = step.to_state
    version.save(update_fields=["lifecycle"])


def withdraw_open(version: ModelVersion) -> LifecycleStep | None:
    """Close the step that is under way, if any; the version stays where it is."""
    step: LifecycleStep | None = version.steps.filter(state__in=OPEN).first()
    if step is not None:
        step.state = StepState.WITHDRAWN
        step.save(update_fields=["state"])
    return step

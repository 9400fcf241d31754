"""Reads about lifecycles: what is served at a moment, and what is under way for a version."""

from __future__ import annotations

from datetime import datetime

from django.db.models import QuerySet
from django.db.models.expressions import RawSQL
from django.utils import timezone

from inference.lifecycle.models import OPEN, LifecycleStep, StepKind, StepState
from inference.models import Deployment, Lifecycle, ModelVersion

NEXT: dict[str, Lifecycle] = {
    Lifecycle.DRAFT: Lifecycle.VALIDATED,
    Lifecycle.VALIDATED: Lifecycle.CANARY,
    Lifecycle.CANARY: Lifecycle.LIVE,
}


def served_deployments(at: datetime | None = None) -> QuerySet[Deployment]:
    """The deployments that requests go to at this moment, by the same function as the snapshot's."""
    served = RawSQL("SELECT deployment_id FROM inference_served(%s)", [at or timezone.now()])
    return Deployment.objects.filter(pk__in=served)


def open_step(version: ModelVersion) -> LifecycleStep | None:
    return version.steps.filter(state__in=OPEN).select_related("proposed_by", "approved_by").first()


def revertible_step(version: ModelVersion) -> LifecycleStep | None:
    """The last step that holds, if it led to where the version is and is none that went back itself."""
    last = version.steps.filter(state=StepState.IN_FORCE).exclude(kind=StepKind.REVERT).first()
    return last if last is not None and last.to_state == version.lifecycle else None


def is_frozen(version: ModelVersion) -> bool:
    """What was proposed is what is approved: from then on its weights and engine are another version's."""
    return version.lifecycle != Lifecycle.DRAFT or open_step(version) is not None

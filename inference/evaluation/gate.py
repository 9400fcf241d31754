"""The gate before live: a version's evaluation set, run as both are now, must have reached its threshold."""

from __future__ import annotations

from typing import Any

from inference.evaluation.models import EvaluationRun, EvaluationSet, RunState
from inference.models import ModelVersion


def gate_problem(version: ModelVersion, approver: Any) -> str | None:
    """What stands against going live; None where nothing does. An approver without an organisation has no exception."""
    found = EvaluationSet.objects.filter(model_version=version).first()
    if found is None or not found.prompts.exists():
        member = getattr(approver, "member", None)
        allowed = found is None and member is not None and not member.organisation.requires_evaluation
        return None if allowed else f"{version} has no evaluation set, which your organisation requires."
    run = latest_run(found)
    if run is None:
        return f"The evaluation set of {version} has not been run as it is now."
    score = run.score
    if score is None or score < found.threshold:
        return f"{version} passed {run.passed} of {run.total} prompts; {found.threshold} % must pass."
    return None


def latest_run(of: EvaluationSet) -> EvaluationRun | None:
    """The last that finished, of the prompts and the version as they are."""
    runs = EvaluationRun.objects.filter(model_version=of.model_version, state=RunState.FINISHED, digest=of.digest())
    return runs.first()

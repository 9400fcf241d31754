"""Run a version's evaluation set: asked for by an administrator, done by the platform's worker or a command."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import structlog
from celery import Celery
from django.contrib.auth.models import AbstractUser
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.utils import timezone
from kombu.exceptions import OperationalError
from redis.exceptions import RedisError

from gpu_workers.transport import configure_transport
from inference.catalog import BEGIN_ANEW, Candidate, Prices
from inference.errors import Refusal
from inference.evaluation.asking import Answer, Question, ask_all
from inference.evaluation.checks import judge, parse_check
from inference.evaluation.models import (
    MAX_PROMPTS,
    EvaluationPrompt,
    EvaluationRun,
    EvaluationSet,
    EvaluationVerdict,
    RunState,
)
from inference.models import Deployment, EngineKind, ModelVersion

TASK = "inference.evaluate"
PERMISSION = "inference.change_evaluationset"

log = structlog.get_logger(__name__)


class CannotEvaluate(Exception):
    """There is nothing to run, or nothing to run it on; the message says which."""


def ask_for_run(actor: AbstractUser, version_id: UUID) -> EvaluationRun:
    """A run that waits for the platform's worker. Raises `CannotEvaluate`, PermissionDenied."""
    if not (actor.is_active and actor.has_perm(PERMISSION)):
        raise PermissionDenied
    run = new_run(version_id, actor.pk)
    transaction.on_commit(lambda: _send(run))
    return run


def _send(run: EvaluationRun) -> None:
    # A web process runs no Celery application of the platform's; it only sends.
    app = Celery("publisher", set_as_current=False)
    configure_transport(app)
    try:
        app.send_task(TASK, args=(str(run.pk),), queue="platform", retry=False)
    except (OperationalError, RedisError, OSError):
        _fail(run, "overloaded")


def new_run(version_id: UUID, actor_id: Any = None) -> EvaluationRun:
    """Raises `CannotEvaluate`."""
    found = EvaluationSet.objects.filter(model_version_id=version_id).first()
    count = found.prompts.count() if found else 0
    if found is None or not 0 < count <= MAX_PROMPTS:
        raise CannotEvaluate(f"It needs an evaluation set of 1 to {MAX_PROMPTS} prompts.")
    _deployment(found.model_version)
    return EvaluationRun.objects.create(
        model_version=found.model_version, digest=found.digest(), started_by_id=actor_id, total=count
    )


def run_evaluation(run_id: UUID) -> EvaluationRun:
    """Ask, judge and keep the verdicts. One that cannot be finished has failed, and says with which error."""
    if not EvaluationRun.objects.filter(pk=run_id, state=RunState.WAITING).update(state=RunState.RUNNING):
        return EvaluationRun.objects.get(pk=run_id)  # a second delivery: the first does it
    run = EvaluationRun.objects.select_related("model_version").get(pk=run_id)
    try:
        prompts, deployment = _prompts_of(run), _deployment(run.model_version)
        run.deployment = deployment.slug
        questions = [Question(row.prompt, row.max_tokens) for row in prompts]
        _keep(run, prompts, asyncio.run(ask_all(_candidate(deployment), questions)))
    except Refusal as refusal:
        _fail(run, refusal.code)
    except CannotEvaluate:
        _fail(run, "set_changed")
    except (RedisError, OSError):
        _fail(run, "overloaded")
    return run


def _prompts_of(run: EvaluationRun) -> list[EvaluationPrompt]:
    """Raises `CannotEvaluate` where the set or the version is no longer what was to be run."""
    found = EvaluationSet.objects.get(model_version=run.model_version)
    prompts = list(found.prompts.all())
    if found.digest() != run.digest or len(prompts) > MAX_PROMPTS:
        raise CannotEvaluate("The set or the version was changed.")
    return prompts


@transaction.atomic
def _keep(run: EvaluationRun, prompts: Sequence[EvaluationPrompt], answers: Sequence[Answer]) -> None:
    rows = []
    for number, (prompt, answer) in enumerate(zip(prompts, answers, strict=True), start=1):
        verdict = judge(parse_check(prompt.check_of_answer), answer.text)
        rows.append(
            EvaluationVerdict(
                run=run,
                position=number,
                kind=prompt.check_of_answer["kind"],
                passed=verdict.passed,
                reason=verdict.reason,
                completion_tokens=answer.completion_tokens,
            )
        )
    EvaluationVerdict.objects.bulk_create(rows)
    run.passed, run.total = sum(row.passed for row in rows), len(rows)
    run.state, run.finished_at = RunState.FINISHED, timezone.now()
    run.save()
    log.info("evaluation_finished", run=str(run.pk), passed=run.passed, total=run.total)


def _fail(run: EvaluationRun, code: str) -> None:
    run.state, run.error_code, run.finished_at = RunState.FAILED, code, timezone.now()
    run.save()
    log.warning("evaluation_failed", run=str(run.pk), code=code)


def _deployment(version: ModelVersion) -> Deployment:
    """One that is enabled, whatever the version's lifecycle: it is evaluated before it is served."""
    found = version.deployments.filter(is_enabled=True, is_draining=False).order_by("created_at").first()
    if found is None:
        raise CannotEvaluate(f"{version} has no enabled deployment.")
    return found


def _candidate(deployment: Deployment) -> Candidate:
    version = deployment.model_version
    return Candidate(
        deployment_id=deployment.pk,
        deployment=deployment.slug,
        queue=deployment.queue,
        model=version.name,
        version=version.version,
        context_length=version.context_length,
        prices=Prices(version.input_price, version.cached_price, version.output_price),
        simulated=deployment.engine == EngineKind.SIMULATED,
        zone=deployment.zone,
        external=deployment.is_external,
        continues=deployment.engine not in BEGIN_ANEW,
    )

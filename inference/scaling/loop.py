"""Looks at every deployment that scales by itself, decides, and has the driver do it: one at a time for each."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import redis
import structlog
from asgiref.sync import async_to_sync
from django.conf import settings
from django.db import transaction

from compliance.audit.models import Entry, EntryKind
from gpu_workers.identifiers import uuid7
from gpu_workers.messages import Heartbeat
from inference.fleet_now import fleet_now
from inference.lifecycle.effect import database_time
from inference.places.sagemaker import PlaceError
from inference.scaling.deciding import Decision, decide
from inference.scaling.drivers import set_replicas
from inference.scaling.facts import Facts, bounds_of, facts_of
from inference.scaling.models import ScalingPolicy, ScalingStep, Trigger

log = structlog.get_logger(__name__)

FIRST_RETRY = timedelta(seconds=30)
LAST_RETRY = timedelta(minutes=15)


def scale_all(now: datetime | None = None) -> int:
    """How many deployments changed. Without the broker nothing is known, and nothing is changed."""
    # Those whose driver failed come last: it may take its whole time again.
    enabled = ScalingPolicy.objects.filter(is_enabled=True).order_by("failures", "pk")
    policies = list(enabled.values_list("pk", flat=True))
    if not policies:
        return 0
    fleet = async_to_sync(fleet_now)()
    if not fleet.broker:
        return 0
    return sum(scale(policy, fleet.workers, now=now) for policy in policies)


@transaction.atomic
def scale(
    policy_id: UUID, workers: Mapping[str, Heartbeat], *, now: datetime | None = None, alerted: bool = False
) -> bool:
    """Whether something changed. Who else looks at the same deployment now is left to it."""
    policy = (
        ScalingPolicy.objects.select_for_update(skip_locked=not alerted, of=("self",))
        .select_related("deployment", "deployment__model_version")
        .filter(pk=policy_id, is_enabled=True)
        .first()
    )
    if policy is None:
        return False
    now = now or database_time()
    try:
        with redis.Redis.from_url(settings.VALKEY_URL, socket_timeout=5) as valkey:
            facts = facts_of(policy, workers, valkey, now)
    except redis.RedisError as error:
        log.warning("scaling_not_looked", error=type(error).__name__)
        return False
    decision = _decide(policy, facts, workers, now, alerted=alerted)
    trigger = Trigger.ALERT if alerted else Trigger.LOOK
    return _carry_out(policy, decision, facts, trigger, now)


def _decide(
    policy: ScalingPolicy, facts: Facts, workers: Mapping[str, Heartbeat], now: datetime, *, alerted: bool
) -> Decision:
    since = now.timestamp() - policy.down_after_s
    looks: list[list[float]] = [look for look in policy.looks if look[0] <= now.timestamp()]
    whole = bool(looks) and looks[0][0] <= since
    recent = [look for look in looks if look[0] >= since]
    decision = decide(
        facts.load,
        bounds_of(policy, workers, now),
        now=policy.deployment.desired_replicas,
        objective_s=policy.queue_ms / 1000,
        before=[int(need) for _, need in recent] if whole else [],
        alerted=alerted,
    )
    # The newest that is older than the time to wait stays: it shows that the whole of it was looked at.
    older = [look for look in looks if look[0] < since][-1:]
    policy.looks = [*older, *recent, [now.timestamp(), decision.needed]]
    return decision


def _carry_out(policy: ScalingPolicy, decision: Decision, facts: Facts, trigger: Trigger, now: datetime) -> bool:
    deployment = policy.deployment
    before = deployment.desired_replicas
    changed = decision.wanted != before
    if changed:
        deployment.desired_replicas = decision.wanted
        deployment.save(update_fields=["desired_replicas"])
    error = ""
    due = policy.applied != decision.wanted and (changed or policy.retry_at is None or policy.retry_at <= now)
    if due:
        error = _apply(policy, decision.wanted, now)
    policy.save(update_fields=["looks", "applied", "failures", "retry_at"])
    if changed or (due and (error or trigger == Trigger.ALERT)):
        _keep(policy, before, decision, facts, trigger, error)
    return changed


def _apply(policy: ScalingPolicy, replicas: int, now: datetime) -> str:
    """What the driver said when it could not; it is asked again later, ever less often."""
    try:
        set_replicas(policy, replicas)
    except PlaceError as error:
        policy.failures += 1
        policy.retry_at = now + min(FIRST_RETRY * 2 ** min(policy.failures - 1, 10), LAST_RETRY)
        log.warning("scaling_failed", deployment=policy.deployment.slug, error=str(error))
        return str(error)[:120]
    policy.applied, policy.failures, policy.retry_at = replicas, 0, None
    return ""


def _keep(policy: ScalingPolicy, before: int, decision: Decision, facts: Facts, trigger: Trigger, error: str) -> None:
    figures: dict[str, Any] = {**facts.figures(), "needed": decision.needed}
    if policy.across_zones and len(facts.zones) < 2:
        figures["one_zone"] = True
    step = ScalingStep.objects.create(
        deployment=policy.deployment,
        trigger=trigger,
        before=before,
        after=decision.wanted,
        bound=decision.bound,
        figures=figures,
        error=error,
    )
    Entry.objects.create(
        exchange_id=uuid7(),  # an entry about no exchange: an identifier of its own
        kind=EntryKind.CONFIGURATION,
        facts={
            "about": "replicas",
            "deployment": policy.deployment.slug,
            "step": str(step.pk),
            "trigger": trigger,
            "from": before,
            "to": decision.wanted,
            "because": decision.bound,
            "figures": figures,
            **({"error": error} if error else {}),
        },
    )

"""Canaries that burn their objective are taken back, without anybody having to watch them.

A version's attempts are counted over two windows, as multi-window burn rates are (The Site Reliability Workbook,
ch. 5): both burn, so that neither an old fault nor a single bad moment decides. One rule goes by the long window's
count, since a share of few attempts says nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import structlog
from django.db import connection, transaction

from inference.exchange_models import MIRROR_NUMBER
from inference.lifecycle.actions import at_once
from inference.lifecycle.canary_policy import CanaryPolicy
from inference.lifecycle.effect import catch_up, database_time
from inference.lifecycle.models import LifecycleStep, StepKind, StepState
from inference.lifecycle.queries import revertible_step
from inference.models import Lifecycle, ModelVersion
from inference.routing.live import FAULTS

log = structlog.get_logger(__name__)

LONG, SHORT = timedelta(hours=1), timedelta(minutes=5)
# At this rate a month's error budget is gone in two days: the Workbook's page at once.
BURN = 14.4
# A canary is at fault where it fails at least twice as often as what answers beside it.
WORSE = 2.0

# Exchanges are found by their identifiers, which sort by time: no index of its own in the request's way.
COUNT = """
    SELECT count(*), count(*) FILTER (WHERE bad),
           count(*) FILTER (WHERE recent), count(*) FILTER (WHERE recent AND bad)
    FROM (
        SELECT e.opened_at >= %(short)s AS recent, a.status <> 'finished' OR a.ttft_ms > %(ttft_ms)s AS bad
        FROM inference_exchange e
        JOIN inference_attempt a ON a.exchange_id = e.id
        JOIN inference_deployment d ON d.id = a.deployment_id
        WHERE e.id >= %(first)s AND e.opened_at >= %(long)s AND a.number < %(mirror)s
          AND d.model_version_id = ANY(%(versions)s)
          AND (a.status = 'finished' OR (a.status IN ('failed', 'lost') AND a.error_code = ANY(%(faults)s)))
    ) attempts
"""


@dataclass(frozen=True, slots=True)
class Count:
    """Attempts that say something of their deployment, and those of them that failed by its fault or came too late."""

    of: int = 0
    bad: int = 0

    @property
    def share(self) -> float:
        return self.bad / self.of if self.of else 0.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """`live` are the live versions of the same name, over the long window.

    `held_back`: it burns and stays, since they do not answer much better.
    """

    long: Count
    short: Count
    live: Count
    burns: bool
    held_back: bool

    def figures(self) -> dict[str, Any]:
        return {
            "bad": self.long.bad,
            "of": self.long.of,
            "window_s": int(LONG.total_seconds()),
            "short_bad": self.short.bad,
            "short_of": self.short.of,
            "short_window_s": int(SHORT.total_seconds()),
            "live_bad": self.live.bad,
            "live_of": self.live.of,
        }


def watch_canaries(now: datetime | None = None) -> int:
    """Take back every canary that burns; how many. Costs one small query where there is none."""
    now = now or database_time()
    canaries = ModelVersion.objects.filter(lifecycle=Lifecycle.CANARY).select_related("canary_policy")
    taken_back = 0
    for version in canaries:
        policy = policy_of(version)
        if not policy.is_enabled:
            continue
        step = revertible_step(version)
        if step is None:
            continue
        verdict = judge(version, policy, step, now)
        if verdict.burns and not verdict.held_back:
            taken_back += _take_back(version.pk, step.pk, verdict, now)
        elif verdict.burns:
            log.warning("canary_burns_with_live", model_version=str(version.pk), **verdict.figures())
    return taken_back


def policy_of(version: ModelVersion) -> CanaryPolicy:
    """Its own, or the one that holds where none was set."""
    found = getattr(version, "canary_policy", None)
    return found if found is not None else CanaryPolicy(model_version=version)


def judge(version: ModelVersion, policy: CanaryPolicy, step: LifecycleStep, now: datetime) -> Verdict:
    """What its attempts since it became a canary say."""
    began = step.effective_from or step.proposed_at
    long, short = _count([version.pk], policy.ttft_ms, began, now)
    beside = ModelVersion.objects.filter(name=version.name, lifecycle=Lifecycle.LIVE).values_list("pk", flat=True)
    live = _count(list(beside), policy.ttft_ms, began, now)[0] if beside else Count()
    allowed = BURN * float(100 - policy.good_percent) / 100
    return Verdict(
        long=long,
        short=short,
        live=live,
        burns=long.of >= policy.at_least and long.share >= allowed and short.share >= allowed,
        held_back=live.of >= policy.at_least and live.share * WORSE >= long.share,
    )


def _count(versions: list[UUID], ttft_ms: int, began: datetime, now: datetime) -> tuple[Count, Count]:
    long, short = max(began, now - LONG), max(began, now - SHORT)
    values: dict[str, Any] = {"versions": versions, "ttft_ms": ttft_ms, "faults": sorted(FAULTS)}
    values |= {"long": long, "short": short, "first": first_id(long), "mirror": MIRROR_NUMBER}
    with connection.cursor() as cursor:
        cursor.execute(COUNT, values)
        of, bad, recent, recent_bad = cursor.fetchone()
    return Count(of, bad), Count(recent, recent_bad)


def first_id(at: datetime) -> UUID:
    """The smallest identifier that can be of this moment or later (RFC 9562: 48 bits of milliseconds), less a minute:
    an identifier is made before its exchange is opened, by a clock of its own."""
    milliseconds = int((at.astimezone(UTC) - timedelta(minutes=1)).timestamp() * 1000)
    return UUID(int=milliseconds << 80)


@transaction.atomic
def _take_back(pk: UUID, step: UUID, verdict: Verdict, now: datetime) -> bool:
    """Once, whoever finds out: nothing is done where the version has moved on meanwhile."""
    version = ModelVersion.objects.select_for_update().get(pk=pk)
    catch_up(version, now)
    last = revertible_step(version)
    if version.lifecycle != Lifecycle.CANARY or last is None or last.pk != step:
        return False
    last.state = StepState.REVERTED
    last.save(update_fields=["state"])
    at_once(None, version, StepKind.REVERT, last.from_state, now, last, verdict.figures())
    log.warning("canary_taken_back", model_version=str(pk), **verdict.figures())
    return True

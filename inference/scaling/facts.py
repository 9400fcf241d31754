"""What a deployment has to do now: from its workers' heartbeats, its queues, its last attempts and the ledger."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, cast

import redis
from django.db import connection

from gpu_workers.messages import Heartbeat
from gpu_workers.transport import queue_lists
from inference.budget_models import Budget
from inference.budget_queries import standing_of
from inference.lifecycle.canary import LONG, SHORT, first_id
from inference.models import Deployment
from inference.routing.live import FAULTS
from inference.scaling.deciding import Bounds, Load
from inference.scaling.models import ScalingPolicy

# Of how long the arrivals are counted, and the time that an answer takes a place.
ARRIVALS_OVER = timedelta(minutes=1)
SERVICE_OVER = timedelta(minutes=10)
# Until answers were measured.
SERVICE_S = 5.0
# Fewer answers than this say nothing about how often they fail.
AT_LEAST = 20

COUNT = """
    SELECT count(*) FILTER (WHERE e.opened_at >= %(arrivals)s),
           avg(extract(epoch FROM e.finished_at - e.opened_at)) FILTER (WHERE e.opened_at >= %(service)s),
           count(*) FILTER (WHERE said), count(*) FILTER (WHERE said AND bad),
           count(*) FILTER (WHERE said AND e.opened_at >= %(short)s),
           count(*) FILTER (WHERE said AND bad AND e.opened_at >= %(short)s)
    FROM inference_attempt a JOIN inference_exchange e ON e.id = a.exchange_id,
    LATERAL (SELECT a.status <> 'finished' OR a.queued_ms > %(queue_ms)s AS bad,
                    a.status = 'finished'
                    OR (a.status IN ('failed', 'lost') AND a.error_code = ANY(%(faults)s)) AS said) s
    WHERE a.exchange_id >= %(first)s AND e.opened_at >= %(long)s AND a.deployment_id = %(deployment)s
"""


@dataclass(frozen=True, slots=True)
class Facts:
    """`alive` replicas show life, `ready` ones can answer, in `zones`; `load` is what they have to do together."""

    load: Load
    alive: int
    ready: int
    running: int
    zones: tuple[str, ...]

    def figures(self) -> dict[str, Any]:
        load = self.load
        return {
            "arrivals_per_s": round(load.arrivals, 3),
            "service_s": round(load.service_s, 3),
            "places": load.places,
            "waiting": load.waiting,
            "running": self.running,
            "alive": self.alive,
            "ready": self.ready,
            "zones": list(self.zones),
            "burn_long": round(load.burn_long, 2),
            "burn_short": round(load.burn_short, 2),
        }


def facts_of(policy: ScalingPolicy, workers: Mapping[str, Heartbeat], valkey: redis.Redis, now: datetime) -> Facts:
    """Raises `redis.RedisError`."""
    deployment = policy.deployment
    beats = [beat for beat in workers.values() if beat.deployment == deployment.slug]
    arrivals, service_s, burns = _measured(policy, now)
    running = sum(beat.running for beat in beats)
    queued = _queued(valkey, deployment.queue, beats) + sum(beat.waiting for beat in beats)
    places = deployment.concurrency or max((beat.capacity for beat in beats), default=1)
    # Attempts are written down when they end: who is being answered or waits came, too.
    arrivals = max(arrivals, (running + queued) / max(service_s, ARRIVALS_OVER.total_seconds()))
    return Facts(
        Load(arrivals, service_s, places, queued, *burns),
        alive=len(beats),
        ready=sum(beat.engine_ready for beat in beats),
        running=running,
        zones=tuple(sorted({beat.zone for beat in beats if beat.engine_ready and beat.zone})),
    )


def _queued(valkey: redis.Redis, queue: str, beats: Iterable[Heartbeat]) -> int:
    pipe = valkey.pipeline(transaction=False)
    for name in queue_lists(queue, (beat.worker for beat in beats)):
        pipe.llen(name)
    return sum(cast(list[int], pipe.execute()))


def _measured(policy: ScalingPolicy, now: datetime) -> tuple[float, float, tuple[float, float]]:
    """Arrivals a second, seconds of an answer, and how fast the error budget goes, over an hour and five minutes."""
    values: dict[str, Any] = {
        "deployment": policy.deployment_id,
        "arrivals": now - ARRIVALS_OVER,
        "service": now - SERVICE_OVER,
        "short": now - SHORT,
        "long": now - LONG,
        "first": first_id(now - LONG),
        "queue_ms": policy.queue_ms,
        "faults": sorted(FAULTS),
    }
    with connection.cursor() as cursor:
        cursor.execute(COUNT, values)
        came, seconds, of, bad, recent, recent_bad = cursor.fetchone()
    allowed = float(100 - policy.good_percent) / 100
    shares = (_share(bad, of), _share(recent_bad, recent))
    service_s = float(seconds) if seconds else SERVICE_S
    return came / ARRIVALS_OVER.total_seconds(), max(service_s, 0.001), (shares[0] / allowed, shares[1] / allowed)


def _share(bad: int, of: int) -> float:
    return bad / of if of >= AT_LEAST else 0.0


def bounds_of(policy: ScalingPolicy, workers: Mapping[str, Heartbeat], now: datetime) -> Bounds:
    return Bounds(policy.floor, policy.at_most, affordable(policy, workers, now))


def affordable(policy: ScalingPolicy, workers: Mapping[str, Heartbeat], now: datetime) -> int | None:
    """How many replicas what is left pays for, when all others go on as they are; None where nothing limits them."""
    price = policy.deployment.hourly_price
    if price <= 0:
        return None
    counts = [int(policy.hourly_most / price)] if policy.hourly_most is not None else []
    others = _hourly_cost_of_others(policy.deployment, workers)
    for budget in Budget.objects.filter(organisation=None, team=None, api_key=None, is_enabled=True):
        standing = standing_of(budget, now)
        hours = Decimal(max((standing.renews - now).total_seconds(), 60.0)) / 3600
        left = budget.amount - standing.spent - others * hours
        counts.append(max(math.floor(left / (price * hours)), 0))
    return min(counts, default=None)


def _hourly_cost_of_others(deployment: Deployment, workers: Mapping[str, Heartbeat]) -> Decimal:
    prices = dict(Deployment.objects.exclude(pk=deployment.pk).values_list("slug", "hourly_price"))
    return sum((prices.get(beat.deployment, Decimal(0)) for beat in workers.values()), Decimal(0))

"""`GET /metrics`: what autoscalers and monitors read, in Prometheus' text format, for who has the token."""

from __future__ import annotations

import hmac
from collections import Counter
from collections.abc import Mapping

from django.conf import settings
from django.http import HttpRequest, HttpResponse, HttpResponseNotFound
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Gauge, generate_latest
from redis.asyncio import Redis
from redis.exceptions import RedisError

from console import runtime
from gpu_workers.messages import Heartbeat
from gpu_workers.transport import queue_lists

SHORTEST_TOKEN = 32


async def metrics(request: HttpRequest) -> HttpResponse:
    """404 where no token is set, 401 without it, 503 while the broker does not answer."""
    token: str = settings.METRICS_TOKEN
    if len(token) < SHORTEST_TOKEN:
        return HttpResponseNotFound("BURSAR_METRICS_TOKEN is not set.\n", content_type="text/plain")
    given = request.headers.get("Authorization", "")
    if not hmac.compare_digest(f"Bearer {token}".encode(), given.encode()):
        return HttpResponse(status=401, headers={"WWW-Authenticate": "Bearer"})
    parts = runtime.current()
    fleet = parts.fleet.current()
    served = {one.deployment for candidates in parts.pipeline.catalog.models.values() for one in candidates}
    try:
        waiting = {slug: await _waiting(parts.valkey, slug, fleet.workers) for slug in sorted(served)}
    except (RedisError, OSError):
        return HttpResponse(status=503)
    if not fleet.broker:
        return HttpResponse(status=503)
    return HttpResponse(_page(waiting, fleet.workers), content_type=CONTENT_TYPE_LATEST)


async def _waiting(valkey: Redis, slug: str, workers: Mapping[str, Heartbeat]) -> int:
    pipe = valkey.pipeline(transaction=False)
    names = [beat.worker for beat in workers.values() if beat.deployment == slug]
    for name in queue_lists(f"gpu.{slug}", names):
        pipe.llen(name)
    return sum(await pipe.execute())


def _page(waiting: Mapping[str, int], workers: Mapping[str, Heartbeat]) -> bytes:
    registry = CollectorRegistry()
    answers = Gauge("bursar_deployment_answers", "Answers that run or wait now.", ["deployment"], registry=registry)
    replicas = Gauge("bursar_deployment_replicas", "Replicas by state.", ["deployment", "state"], registry=registry)
    running: Counter[str] = Counter()
    states: Counter[tuple[str, str]] = Counter()
    for beat in workers.values():
        running[beat.deployment] += beat.running
        states[beat.deployment, "ready" if beat.engine_ready else "not_ready"] += 1
    for slug, queued in waiting.items():
        answers.labels(slug).set(running[slug] + queued)
        for state in ("ready", "not_ready"):
            replicas.labels(slug, state).set(states[slug, state])
    return generate_latest(registry)

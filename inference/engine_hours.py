"""Engine-hours in the ledger: what the platform's own deployments cost by being there, whoever asks them."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, cast
from uuid import UUID, uuid5

import msgspec
import redis
import structlog
from django.conf import settings
from django.db import connection

from gpu_workers.messages import WORKERS_KEY, decode_heartbeat, worker_key
from inference.budget_models import Budget
from inference.budgets import Period, key_of
from inference.models import Deployment, EngineKind

log = structlog.get_logger(__name__)

SLOT = timedelta(minutes=5)
# Names a slot of a deployment, so that it is booked once, however often and by however many.
NAMESPACE = UUID("5b0c5c52-9f0e-5e0b-8d4f-6a2f5b6d1c11")
BOOK = (
    "INSERT INTO inference_transfer (id, kind, deployment_id, external, model, amount, prompt_tokens, cached_tokens,"
    " completion_tokens, at) VALUES (%s, 'engine_hours', %s, false, %s, %s, 0, 0, 0, %s) ON CONFLICT (id) DO NOTHING"
)


def book_engine_hours(now: datetime) -> int:
    """Book the slot that `now` lies in, by the replicas that show life; how many deployments. Raises `RedisError`.

    A sample stands for its slot: replicas that come and go within five minutes may be missed or counted whole.
    """
    with redis.Redis.from_url(settings.VALKEY_URL, socket_timeout=5) as valkey:
        replicas = _replicas(valkey)
        booked = sum(
            _book(deployment, replicas[deployment.slug], now) for deployment in _own() if deployment.slug in replicas
        )
        if booked:
            _forget_counts(valkey, now)
    return booked


def _own() -> list[Deployment]:
    paid_by_the_hour = Deployment.objects.exclude(engine=EngineKind.OPENAI).filter(hourly_price__gt=0)
    return list(paid_by_the_hour.select_related("model_version"))


def _replicas(valkey: redis.Redis) -> Counter[str]:
    """Living workers by deployment, ready or not: one that is still loading costs as much."""
    names = sorted(cast(set[bytes], valkey.smembers(WORKERS_KEY)))
    beats = cast(list[bytes | None], valkey.mget([worker_key(name.decode()) for name in names])) if names else []
    found: Counter[str] = Counter()
    for beat in beats:
        try:
            found.update([decode_heartbeat(beat).deployment] if beat is not None else [])
        except msgspec.MsgspecError:
            log.warning("heartbeat_not_understood")
    return found


def _book(deployment: Deployment, replicas: int, now: datetime) -> bool:
    begun = now.astimezone(UTC).replace(minute=now.minute - now.minute % 5, second=0, microsecond=0)
    amount = deployment.hourly_price * replicas * Decimal(SLOT.seconds) / 3600
    row = uuid5(NAMESPACE, f"{deployment.pk} {begun.isoformat()}")
    values: list[Any] = [row, deployment.pk, deployment.model_version.name, amount, begun]
    with connection.cursor() as cursor:
        cursor.execute(BOOK, values)
        return bool(cursor.rowcount)


def _forget_counts(valkey: redis.Redis, now: datetime) -> None:
    """The next request counts the platform's budgets anew, with these hours in them."""
    for budget, period in Budget.objects.filter(organisation=None).values_list("id", "period"):
        valkey.delete(key_of(budget, cast(Period, period), now))

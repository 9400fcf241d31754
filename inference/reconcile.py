"""Reconciliation: an exchange whose process died gets the outcome that is true of it: unknown."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import redis
import structlog
from django.conf import settings
from django.db import IntegrityError, connection, transaction
from psycopg.types.json import Jsonb

from compliance.audit.entries import INSERT as INSERT_ENTRY
from compliance.audit.models import EntryKind
from gpu_workers.identifiers import uuid7
from gpu_workers.messages import owner_key
from inference.clock import is_off, skew_s
from inference.exchange_models import Exchange, ExchangeStatus

log = structlog.get_logger(__name__)

# An owner shows life every second; younger exchanges may belong to one that has not done so yet.
YOUNG_S = 10
# A living owner ends every exchange at its deadline; this long after it nothing more is coming.
OVERDUE_S = 30


def reconcile_exchanges() -> int:
    """Close the exchanges that nobody serves any more; how many there were. Raises `redis.RedisError`.

    A host whose clock has jumped would end what others still answer: it closes nothing.
    """
    valkey = redis.Redis.from_url(settings.VALKEY_URL, socket_timeout=5)
    try:
        ahead_s = skew_s(valkey.time())
        if is_off(ahead_s):
            log.error("clock_is_off", ahead_ms=round(ahead_s * 1000))
            return 0
        return _reconcile(valkey, datetime.now(UTC))
    finally:
        valkey.close()


def _reconcile(valkey: redis.Redis, now: datetime) -> int:
    candidates = Exchange.objects.filter(
        status=ExchangeStatus.OPEN, opened_at__lt=now - timedelta(seconds=YOUNG_S)
    ).values_list("id", "organisation_id", "owner", "deadline_at")
    rows = list(candidates.order_by("id")[:10_000])
    alive = _living(valkey, {row[2] for row in rows})
    overdue = now - timedelta(seconds=OVERDUE_S)
    lost = [row for row in rows if row[2] not in alive or row[3] < overdue]
    closed = sum(_close(row[0], row[1], now) for row in lost)
    if closed:
        log.warning("exchanges_reconciled", closed=closed)
    return closed


def _living(valkey: redis.Redis, owners: set[str]) -> set[str]:
    if not owners:
        return set()
    names = sorted(owners)
    signs: list[Any] = valkey.mget([owner_key(name) for name in names])
    return {name for name, sign in zip(names, signs, strict=True) if sign is not None}


def _close(exchange_id: UUID, organisation_id: UUID, now: datetime) -> bool:
    """The outcome and the status, together. False where the owner was not dead after all and closed it itself."""
    facts = {"status": ExchangeStatus.UNKNOWN.value, "finish_reason": "", "error_code": "outcome_unknown"}
    entry: Any = (uuid7(), organisation_id, exchange_id, EntryKind.OUTCOME.value, now, Jsonb(facts), None, "")
    try:
        with transaction.atomic():
            # The row first, as owners do: in the other order the two could wait for each other.
            open_one = Exchange.objects.filter(id=exchange_id, status=ExchangeStatus.OPEN)
            if not open_one.update(status=ExchangeStatus.UNKNOWN, error_code="outcome_unknown", finished_at=now):
                return False
            with connection.cursor() as cursor:
                cursor.execute(INSERT_ENTRY, entry)
    except IntegrityError:
        return False
    return True

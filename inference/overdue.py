"""Reservations that nobody renews any more: compared with the ledger, and settled by what it says.

One that the database does not know is not simply freed: its process may only have been paused, and would commit its
intent when others have the money. All are counted anew, under a generation in which that intent is refused.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import cast
from uuid import UUID

import msgspec
import redis
import structlog
from django.conf import settings
from django.db.models.functions import Now

from inference.admission import SETTLE_SCRIPT
from inference.budget_models import Budget, Transfer
from inference.budgets import Period, key_of, nano
from inference.exchange_models import Exchange, ExchangeStatus
from inference.reservations import LEASE_S, RESERVATIONS, RESERVED_UNTIL, STATE, Used

log = structlog.get_logger(__name__)

MOST_AT_ONCE = 10_000
# Whatever was admitted before a budget was known to every process has ended by then, a late outcome included.
YOUNG = timedelta(minutes=5)


class _Held(msgspec.Struct, array_like=True):
    """A reservation as Valkey keeps it (lua/reserve.lua)."""

    owner: str
    budgets: list[tuple[str, int]] | dict[str, int]


def settle_overdue() -> int:
    """Settle every overdue reservation whose end is known; how many. Raises `redis.RedisError`.

    Those without an intent are gone with the next request, which finds the budgets closed and counts them.
    """
    with redis.Redis.from_url(settings.VALKEY_URL, socket_timeout=5) as valkey:
        seconds, _ = cast(tuple[int, int], valkey.time())
        names = _overdue(valkey, seconds)
        used = _used([UUID(name.decode()) for name in names])
        _forget_young_counts(valkey)
        settled = sum(_settle(valkey, UUID(name.decode()), used) for name in names)
    if settled:
        log.warning("reservations_settled", settled=settled)
    return settled


def _overdue(valkey: redis.Redis, seconds: int) -> list[bytes]:
    """Leases that have run out, and those that none can have: Valkey's clock has jumped back since."""
    ranges = (("-inf", seconds), (seconds + 2 * LEASE_S, "+inf"))
    found = [
        cast(list[bytes], valkey.zrangebyscore(RESERVED_UNTIL, low, high, start=0, num=MOST_AT_ONCE))
        for low, high in ranges
    ]
    return found[0] + found[1]


def _forget_young_counts(valkey: redis.Redis) -> None:
    """A new budget's count misses what was admitted before the budget was known: its next request counts it again."""
    now = datetime.now(UTC)
    for budget, period in Budget.objects.filter(created_at__gte=Now() - YOUNG).values_list("id", "period"):
        valkey.delete(key_of(budget, cast(Period, period), now))


def _used(exchanges: list[UUID]) -> dict[UUID, Used | None]:
    """What each used in the end; None for one that is open. Those without an intent are left out."""
    status = dict(Exchange.objects.filter(id__in=exchanges).values_list("id", "status"))
    booked = {row.exchange_id: row for row in Transfer.objects.filter(exchange_id__in=exchanges)}
    return {
        exchange: None if status[exchange] == ExchangeStatus.OPEN else _of(booked.get(exchange)) for exchange in status
    }


def _of(transfer: Transfer | None) -> Used:
    """Without a transfer, as for one whose outcome is unknown, nothing was billed."""
    return Used(cost=nano(transfer.amount), external=transfer.external) if transfer else Used()


def _settle(valkey: redis.Redis, exchange: UUID, used: dict[UUID, Used | None]) -> bool:
    packed = cast(bytes | None, valkey.hget(RESERVATIONS, str(exchange)))
    if packed is None:
        valkey.zrem(RESERVED_UNTIL, str(exchange))
        return False
    if exchange not in used:
        valkey.delete(STATE)
        return False
    found = used[exchange]
    if found is None:
        return False  # open: its process, or the reconciliation of exchanges, ends it
    held = msgspec.msgpack.decode(packed, type=_Held)
    keys = [key for key, _ in held.budgets] if isinstance(held.budgets, list) else []
    request = msgspec.msgpack.encode([str(exchange), 0, [], _amounts(keys, found)])
    valkey.eval(SETTLE_SCRIPT, 2, RESERVATIONS, RESERVED_UNTIL, request)
    return True


def _amounts(keys: list[str], used: Used) -> dict[str, int]:
    platform = set(Budget.objects.filter(organisation=None).values_list("id", flat=True))
    amounts: dict[str, int] = {}
    for key in keys:
        of_platform = UUID(key.split(":")[2]) in platform
        amounts[key] = 0 if of_platform and not used.external else used.cost
    return amounts

"""Admission: requests a minute and answers at once, counted by one script inside Valkey, exact across processes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from redis.asyncio import Redis
from redis.exceptions import RedisError

from inference.errors import Refusal
from inference.events import Caller

# A reservation whose owner died frees its place after this long; living owners renew it.
LEASE_S = 30
WINDOW_S = 60
RENEW_EVERY_S = 10.0
_LUA = Path(__file__).with_name("lua")


@dataclass(frozen=True, slots=True)
class Reservation:
    """A place among the caller's concurrent answers, held until it is settled."""

    exchange_id: UUID
    leases_key: str


class Admission:
    def __init__(self, valkey: Redis) -> None:
        self._valkey = valkey
        self._admit = valkey.register_script((_LUA / "admit.lua").read_text())

    async def admit(self, exchange_id: UUID, caller: Caller) -> Reservation:
        """Hold a place for the exchange. Raises `Refusal` naming the limit, its scope and when it clears."""
        limits = caller.limits
        keys = [f"bursar:limit:rpm:{caller.name}", f"bursar:limit:running:{caller.name}"]
        arguments: list[str | int] = [
            str(exchange_id),
            limits.requests_per_minute,
            WINDOW_S,
            limits.concurrent_answers,
            LEASE_S,
        ]
        try:
            which, wait_ms = await self._admit(keys=keys, args=arguments)
        except (RedisError, OSError):
            raise broker_gone() from None
        if which == b"rate":
            message = f"Limit of {limits.requests_per_minute} requests per minute for this {limits.scope} is reached."
            raise Refusal("rate_limit_exceeded", message, retry_after_s=max(1, math.ceil(wait_ms / 1000)))
        if which == b"concurrency":
            message = f"Limit of {limits.concurrent_answers} answers at once for this {limits.scope} is reached."
            raise Refusal("rate_limit_exceeded", message, retry_after_s=1)
        return Reservation(exchange_id, keys[1])

    async def renew(self, reservation: Reservation) -> None:
        """Keep a place for another `LEASE_S`. Raises `RedisError`."""
        await self._valkey.zadd(reservation.leases_key, {str(reservation.exchange_id): await self._expiry()}, xx=True)

    async def _expiry(self) -> int:
        seconds, _ = await self._valkey.time()
        return int(seconds) + LEASE_S

    async def release(self, reservation: Reservation) -> None:
        """Free the place. Where Valkey does not answer, the lease runs out by itself."""
        try:
            await self._valkey.zrem(reservation.leases_key, str(reservation.exchange_id))
        except (RedisError, OSError):
            return


def broker_gone() -> Refusal:
    return Refusal("overloaded", "The message broker cannot be reached.", retry_after_s=2)

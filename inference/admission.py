"""Admission: every limit and budget that a request falls under, checked and held by one script inside Valkey."""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any, NoReturn, cast
from uuid import UUID

import msgspec
import structlog
from redis.asyncio import Redis
from redis.exceptions import NoScriptError, RedisError

from inference.budgets import Budget, Stage, period_end
from inference.clock import MAX_SKEW_S
from inference.errors import Refusal
from inference.events import Room
from inference.reservations import (
    LEASE_S,
    RESERVATIONS,
    RESERVED_UNTIL,
    STATE,
    WINDOW_S,
    Claims,
    Reservation,
    Used,
)

log = structlog.get_logger(__name__)

# A budget that was created, or whose period began, is counted from the ledger and asked again.
MAX_TRIES = 3
_LUA = Path(__file__).with_name("lua")
RESERVE_SCRIPT = (_LUA / "reserve.lua").read_text()
SETTLE_SCRIPT = (_LUA / "settle.lua").read_text()
_pack = msgspec.msgpack.encode


class Admission:
    """`restore` counts the budgets from the ledger (inference.restoring)."""

    def __init__(self, valkey: Redis, owner: str, restore: Callable[[], Awaitable[None]]) -> None:
        self._valkey = valkey
        self._owner = owner
        self._restore = restore
        self._reserve_sha = valkey.register_script(RESERVE_SCRIPT).sha
        self._settle = valkey.register_script(SETTLE_SCRIPT)
        self._renew = valkey.register_script((_LUA / "renew.lua").read_text())

    async def admit(self, exchange_id: UUID, claims: Claims) -> Reservation:
        """Hold what the exchange may use. Raises `Refusal` naming the limit or budget and when it clears."""
        for _ in range(MAX_TRIES):
            answer = await self._ask(exchange_id, claims)
            if answer[0] == b"admitted":
                return _reservation(exchange_id, claims, answer)
            if answer[0] not in (b"rebuild", b"load"):
                _refuse(claims, answer)
            await self._restore()
        raise budgets_unknown()

    async def count_again(self) -> Refusal:
        """After an intent was refused since it rests on another count: what its caller is told."""
        try:
            await self._restore()
        except Refusal as refusal:
            return refusal
        return budgets_unknown()

    async def _ask(self, exchange_id: UUID, claims: Claims) -> list[Any]:
        keys = [STATE, RESERVATIONS, RESERVED_UNTIL]
        try:
            # By its digest alone: a Valkey that does not know the script has been restarted or has failed over, and
            # may have lost what was held and spent. Only a restore teaches it the script again.
            answer = await self._valkey.evalsha(
                self._reserve_sha, len(keys), *keys, _request(exchange_id, self._owner, claims)
            )
        except NoScriptError:
            return [b"rebuild"]
        except (RedisError, OSError):
            raise broker_gone() from None
        return cast(list[Any], answer)

    async def renew(self, reservations: Iterable[Reservation]) -> None:
        """Keep places and money for another `LEASE_S`. Raises `RedisError`."""
        held = [
            [
                str(held.exchange_id),
                [limit.name for limit in held.claims.limits if limit.concurrent_answers is not None],
            ]
            for held in reservations
        ]
        await self._renew(keys=[RESERVED_UNTIL], args=[_pack([LEASE_S, *held])])

    async def settle(self, reservation: Reservation, used: Used | None) -> tuple[tuple[Budget, Stage], ...]:
        """Free the places, and replace what was held by what was used; the thresholds that are reached by it.

        Once: a second time changes nothing. With None the money stays held until it is compared with the ledger; so
        it does where Valkey does not answer.
        """
        claims = reservation.claims
        tokens = used.tokens if used else claims.demand.tokens
        limits = [[limit.name, limit.tokens_per_minute is not None] for limit in claims.limits]
        amounts = {budget.key(claims.at): used.for_budget(budget) for budget in claims.budgets} if used else None
        try:
            spent = await self._settle(
                keys=[RESERVATIONS, RESERVED_UNTIL],
                args=[_pack([str(reservation.exchange_id), tokens, limits, amounts])],
            )
        except (RedisError, OSError):
            return ()
        by_key = {budget.key(claims.at).encode(): budget for budget in claims.budgets}
        reached = ((by_key[key], by_key[key].stage_of(int(amount))) for key, amount in spent if key in by_key)
        return tuple((budget, stage) for budget, stage in reached if stage)


def _request(exchange_id: UUID, owner: str, claims: Claims) -> bytes:
    limits = [
        [limit.name, *map(_or_none, (limit.requests_per_minute, limit.tokens_per_minute, limit.concurrent_answers))]
        for limit in claims.limits
    ]
    budgets = [
        [
            budget.key(claims.at),
            claims.demand.for_budget(budget),
            budget.cap_for(claims.priority),
            budget.thresholds(),
        ]
        for budget in claims.budgets
    ]
    clock = [int(time.time() * 1000), int(MAX_SKEW_S * 1000)]
    return _pack([str(exchange_id), owner, LEASE_S, WINDOW_S * 1000, clock, claims.demand.tokens, limits, budgets])


def _or_none(limit: int | None) -> int:
    return -1 if limit is None else limit


def _reservation(exchange_id: UUID, claims: Claims, answer: list[Any]) -> Reservation:
    generation = int(answer[1]) if answer[1] else None
    room = Room(*(None if value < 0 else value for value in answer[2:6]))
    stages = tuple(zip(claims.budgets, map(Stage, answer[6:]), strict=True))
    reached = tuple((budget, stage) for budget, stage in stages if stage)
    stage = max((stage for _, stage in reached), default=Stage.CALM)
    return Reservation(exchange_id, claims, room, stage, generation, reached)


def _refuse(claims: Claims, answer: list[Any]) -> NoReturn:
    kind, index, wait_ms = answer[0].decode(), int(answer[1]) - 1, int(answer[2])
    if kind == "clock":
        log.error("clock_is_off", ahead_ms=wait_ms)
        raise Refusal("overloaded", "The clocks of the platform differ: money cannot be counted.", retry_after_s=30)
    if kind == "budget":
        raise QuotaExceeded(claims.budgets[index], claims, spent=int(answer[2]))
    limit = claims.limits[index]
    what, count = {
        "answers": ("answers at once", limit.concurrent_answers),
        "requests": ("requests per minute", limit.requests_per_minute),
        "tokens": ("tokens per minute", limit.tokens_per_minute),
    }[kind]
    if wait_ms < 0:
        message = f"The request may use {claims.demand.tokens} tokens; this {limit.scope} has {count} per minute."
        raise Refusal("rate_limit_exceeded", message, param="max_tokens")
    message = f"Limit of {count} {what} for this {limit.scope} is reached."
    raise Refusal("rate_limit_exceeded", message, retry_after_s=max(1, math.ceil(wait_ms / 1000)))


class QuotaExceeded(Refusal):
    """A budget has no room. `reached` is the step that this shows: none where others only hold the room for now."""

    def __init__(self, budget: Budget, claims: Claims, *, spent: int) -> None:
        renews = period_end(budget.period, claims.at)
        whose = {"platform": "the platform", "key": "this API key"}.get(budget.scope, f"this {budget.scope}")
        batch = " for batch requests" if claims.priority == "batch" else ""
        super().__init__(
            "insufficient_quota",
            f"The {budget.period}'s budget of {whose} has no room for this request{batch}."
            f" It renews on {renews:%Y-%m-%d} (UTC).",
            retry_after_s=max(1, math.ceil((renews - claims.at).total_seconds())),
        )
        alone = spent + claims.demand.for_budget(budget) > budget.cap_for("interactive")
        stage = Stage.SPENT if alone else budget.stage_of(spent)
        self.reached = ((budget, stage),) if stage else ()


def budgets_unknown() -> Refusal:
    return Refusal("overloaded", "The budgets are being counted from the ledger.", retry_after_s=2)


def broker_gone() -> Refusal:
    return Refusal("overloaded", "The message broker cannot be reached.", retry_after_s=2)

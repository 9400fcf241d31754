"""Budgets counted anew from the ledger: when Valkey lost them, when one is new, and when a period begins.

While it counts, no intent can be committed (`inference_check_generation` waits for the same lock), so that every
exchange is either in the database or unknown to it. After a loss the generation moves: an intent that rests on a
reservation of before is refused by the database, since nothing holds its money any more.

A process may lose the lock while it counts: its session ends, or it is paused. What it has read is old then, and Valkey
takes a count only from whoever began one last.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, LiteralString
from uuid import UUID, uuid4

import msgspec
import psycopg
import structlog
from psycopg.sql import SQL, Identifier
from psycopg_pool import PoolTimeout
from redis.asyncio import Redis
from redis.exceptions import RedisError

from inference.budgets import BudgetBook, book_of, nano, period_end, period_start
from inference.errors import Refusal
from inference.reservations import LEASE_S, RESERVATIONS, RESERVED_UNTIL, STATE
from inference.snapshot import Pool

log = structlog.get_logger(__name__)

LOCK = 0x42757273617201  # any number that nobody else takes
LOCK_TIMEOUT = "5s"
# Longer than any answer of Valkey is waited for. Whoever holds the lock and is silent for so long is hung or gone, and
# would keep all intents waiting: its session ends.
SILENT_TIMEOUT = "30s"
SILENT = ("idle_session_timeout", "idle_in_transaction_session_timeout")
COUNTING = "bursar:budgets:counting"
# A finished period is kept for the exchanges that began in it.
KEPT_AFTER = timedelta(days=2)
_LUA = Path(__file__).with_name("lua")

SPENT = """
    SELECT b.id, b.organisation_id, b.team_id, b.api_key_id, b.period, b.amount,
           b.warn_at, b.degrade_at, b.refuse_batch_at, b.refuse_at, b.cheaper_model, b.is_enabled,
           COALESCE((SELECT sum(t.amount) FROM inference_transfer t
                     WHERE t.at >= CASE b.period WHEN 'month' THEN %(month)s::timestamptz ELSE %(year)s END
                       AND t.at < CASE b.period WHEN 'month' THEN %(next_month)s::timestamptz ELSE %(next_year)s END
                       AND CASE WHEN b.api_key_id IS NOT NULL THEN t.api_key_id = b.api_key_id
                                WHEN b.team_id IS NOT NULL THEN t.team_id = b.team_id
                                WHEN b.organisation_id IS NOT NULL
                                THEN t.organisation_id = b.organisation_id AND t.kind = 'answer'
                                ELSE t.kind = 'engine_hours' OR t.external END), 0)
    FROM inference_budget b
"""
OPEN = """
    SELECT id, owner, organisation_id, team_id, api_key_id, reserved, reserved_external, opened_at
    FROM inference_exchange WHERE status = 'open' AND reserved IS NOT NULL
"""
CLOSED = "SELECT id FROM inference_exchange WHERE id = ANY(%s) AND status <> 'open'"


class BudgetRestorer:
    """One per process; callers that come while it counts share the count."""

    def __init__(self, pool: Pool, valkey: Redis, reserve_script: str) -> None:
        self._pool = pool
        self._valkey = valkey
        self._keys = (STATE, RESERVATIONS, RESERVED_UNTIL, COUNTING)
        self._reserve_script = reserve_script
        self._reserve_sha = hashlib.sha1(reserve_script.encode(), usedforsecurity=False).hexdigest()
        self._restore = valkey.register_script((_LUA / "restore.lua").read_text())
        self._running: asyncio.Task[None] | None = None

    async def restore(self) -> None:
        """Return when the budgets are open. Raises `Refusal`."""
        if self._running is None:
            self._running = asyncio.create_task(self._count(), name="restore-budgets")
            self._running.add_done_callback(self._ended)
        await asyncio.shield(self._running)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running = None
        if not task.cancelled():
            task.exception()  # those who wait for it have it

    async def _count(self) -> None:
        try:
            async with self._pool.connection() as connection, _locked(connection):
                await self._count_locked(connection)
        except (psycopg.Error, PoolTimeout, RedisError, OSError) as error:
            log.warning("budgets_not_restored", error=type(error).__name__)
            raise Refusal("overloaded", "The budgets cannot be counted now.", retry_after_s=2) from None

    async def _count_locked(self, connection: psycopg.AsyncConnection[Any]) -> None:
        state_key, reservations_key, *_ = self._keys
        me = uuid4().hex
        await self._valkey.set(COUNTING, me)  # before anything is read
        generation = (await _rows(connection, "SELECT generation FROM inference_budgetstate", ()))[0][0]
        known = (await self._valkey.script_exists(self._reserve_sha))[0]
        lost = not known or await self._valkey.get(state_key) != b"open:%d" % generation
        held = [] if lost else await self._held(reservations_key)
        counted = await _read(connection, lost=lost, held=held, at=datetime.now(UTC))
        await self._restore(keys=list(self._keys), args=[msgspec.msgpack.encode(counted), me])
        # Last: whoever finds the script may rely on what it reads.
        await self._valkey.script_load(self._reserve_script)
        log.info("budgets_restored", lost=lost, generation=counted[0], open=len(counted[3]))

    async def _held(self, reservations_key: str) -> list[UUID]:
        names: Any = await self._valkey.hkeys(reservations_key)
        return [UUID(name.decode()) for name in names]


@asynccontextmanager
async def _locked(connection: psycopg.AsyncConnection[Any]) -> AsyncIterator[None]:
    """No intent is committed inside. The lock is the session's, so that the transaction inside begins after it."""
    try:
        await connection.execute(f"SET lock_timeout = '{LOCK_TIMEOUT}'")
        for name in SILENT:
            await connection.execute("SELECT set_config(%s, %s, false)", [name, SILENT_TIMEOUT])
        await connection.execute("SELECT pg_advisory_lock(%s)", [LOCK])
        yield
    except BaseException:
        await connection.close()  # the lock and the settings go with the session
        raise
    await connection.execute("SELECT pg_advisory_unlock(%s)", [LOCK])
    for name in ("lock_timeout", *SILENT):
        await connection.execute(SQL("RESET {}").format(Identifier(name)))


async def _read(
    connection: psycopg.AsyncConnection[Any], *, lost: bool, held: list[UUID], at: datetime
) -> tuple[Any, ...]:
    """What the script is given, from one moment of the database."""
    async with connection.transaction():
        await connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        if lost:
            await connection.execute("UPDATE inference_budgetstate SET generation = generation + 1")
        generation = await _rows(connection, "SELECT generation FROM inference_budgetstate", ())
        budgets = await _rows(connection, SPENT, _bounds(at))
        opened = await _rows(connection, OPEN, ())
        closed = await _rows(connection, CLOSED, [held])
    book = book_of([row[:12] for row in budgets])
    spent = [_spent(book, row, at) for row in budgets]
    return (generation[0][0], LEASE_S, spent, _open(book, opened), [str(row[0]) for row in closed], not lost)


async def _rows(connection: psycopg.AsyncConnection[Any], sql: LiteralString, values: Any) -> list[Any]:
    return await (await connection.execute(sql, values)).fetchall()


def _bounds(at: datetime) -> dict[str, datetime]:
    return {
        "month": period_start("month", at),
        "next_month": period_end("month", at),
        "year": period_start("year", at),
        "next_year": period_end("year", at),
    }


def _spent(book: BudgetBook, row: Any, at: datetime) -> tuple[str, int, int]:
    budget = book.by_id[row[0]]
    forget = period_end(budget.period, at) + KEPT_AFTER - at
    return budget.key(at), nano(row[12]), int(forget.total_seconds())


def _open(book: BudgetBook, rows: list[Any]) -> list[tuple[str, str, list[tuple[str, int]]]]:
    entries = []
    for exchange, owner, organisation, team, api_key, reserved, external, opened_at in rows:
        budgets = book.for_scopes(organisation, team, api_key)
        held = [
            (budget.key(opened_at), nano(external if budget.scope == "platform" else reserved)) for budget in budgets
        ]
        entries.append((str(exchange), owner, held))
    return entries

"""One web process's side of the budgets, for tests: reserve, commit an intent, book an answer, settle."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID, uuid4

from psycopg_pool import AsyncConnectionPool
from redis.asyncio import Redis

from compliance.audit.writer import GroupWriter, Statement
from gpu_workers.connecting import connect
from gpu_workers.identifiers import uuid7
from gpu_workers.messages import Usage
from inference import metering
from inference.admission import RESERVE_SCRIPT, Admission
from inference.budgets import NANO, BudgetBook, Demand, nano
from inference.catalog import Candidate, Prices
from inference.exchanges import INSERT_EXCHANGE
from inference.limits import Limit
from inference.reservations import Claims, Reservation, Used
from inference.restoring import BudgetRestorer
from inference.snapshot import load_budgets

CLOSE = "UPDATE inference_exchange SET status = 'finished', finished_at = now(), cost = %s WHERE id = %s"


@dataclass(frozen=True)
class Payer:
    """Who pays, and the deployment that earns."""

    organisation: UUID
    deployment: UUID
    team: UUID | None = None
    api_key: UUID | None = None


@dataclass
class Bank:
    valkey: Redis
    admission: Admission
    restorer: BudgetRestorer
    writer: GroupWriter
    pool: AsyncConnectionPool[Any]
    book: BudgetBook
    payer: Payer
    owner: str
    external: bool = False

    async def reserve(self, usd: Decimal, *, at: datetime | None = None, priority: str = "interactive") -> Reservation:
        payer = self.payer
        budgets = self.book.for_scopes(payer.organisation, payer.team, payer.api_key)
        demand = Demand(0, nano(usd), nano(usd) if self.external else 0)
        claims = Claims((Limit("user", f"user:{uuid4()}"),), budgets, demand, at or datetime.now(UTC), priority)
        return await self.admission.admit(uuid7(), claims)

    async def intend(self, reservation: Reservation) -> None:
        """Commit the intent. Raises `RecordUnavailable` where it rests on a count that is not in force."""
        payer, claims = self.payer, reservation.claims
        values = (
            *(reservation.exchange_id, payer.organisation, None, payer.api_key, None, "r", "http", "m"),
            *(payer.deployment, self.owner, 1, claims.at, claims.at, 0, payer.team),
            *(Decimal(claims.demand.cost) / NANO, Decimal(claims.demand.external_cost) / NANO, reservation.generation),
        )
        await self.writer.commit([Statement(INSERT_EXCHANGE, values)])

    async def book_answer(self, reservation: Reservation, usd: Decimal) -> None:
        candidate = Candidate(
            self.payer.deployment, "d", "q", "m", "1", 4096, Prices(*[Decimal(0)] * 3), True, external=self.external
        )
        exchange = reservation.exchange_id
        booked = metering.book(exchange, Usage(1, 0, 1), usd, candidate)
        await self.writer.commit([Statement(CLOSE, (usd, exchange)), booked])

    async def settle(self, reservation: Reservation, usd: Decimal) -> None:
        await self.admission.settle(reservation, Used(2, nano(usd), self.external))

    async def serve(self, usd: Decimal, cost: Decimal) -> None:
        """One exchange from its admission to its end. Raises `Refusal`, `RecordUnavailable`."""
        reservation = await self.reserve(usd)
        await self.intend(reservation)
        await self.book_answer(reservation, cost)
        await self.settle(reservation, cost)

    async def spent(self) -> Decimal:
        """What the ledger says that the organisation spent."""
        sql = "SELECT coalesce(sum(amount), 0) FROM inference_transfer WHERE organisation_id = %s"
        async with self.pool.connection() as connection:
            row = await (await connection.execute(sql, [self.payer.organisation])).fetchone()
        return Decimal(row[0]) if row else Decimal(0)

    async def counted(self, name: str) -> int:
        """Nano-USD `spent` or `reserved` of the widest budget."""
        budget = self.book.for_scopes(self.payer.organisation, self.payer.team, self.payer.api_key)[-1]
        return int(await self.valkey.hget(budget.key(datetime.now(UTC)), name) or 0)  # type: ignore[misc]

    async def lose_everything(self) -> None:
        """As a Valkey that was restarted without its data."""
        await self.valkey.flushdb()
        await self.valkey.script_flush()


@asynccontextmanager
async def bank(database: str, valkey_url: str, payer: Payer, *, external: bool = False) -> AsyncIterator[Bank]:
    valkey = connect(valkey_url)
    pool: AsyncConnectionPool[Any] = AsyncConnectionPool(
        database, min_size=1, max_size=4, open=False, kwargs={"autocommit": True}
    )
    await pool.open()
    writer = GroupWriter(database)
    writer.start()
    restorer = BudgetRestorer(pool, valkey, RESERVE_SCRIPT)
    owner = f"web-{uuid4().hex[:8]}"
    admission = Admission(valkey, owner, restorer.restore)
    book = await load_budgets(pool)
    try:
        yield Bank(valkey, admission, restorer, writer, pool, book, payer, owner, external)
    finally:
        await writer.stop()
        await pool.close()
        await valkey.aclose()

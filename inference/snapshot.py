"""Configuration as immutable objects in memory, swapped when the database's version counter has moved."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime
from typing import Any

import psycopg
import structlog
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from inference.budgets import BudgetBook, book_of
from inference.catalog import BEGIN_ANEW, Candidate, Catalog, Prices
from inference.limits import Limit, LimitBook
from inference.routing.loading import load_rule_set

__all__ = ["Candidate", "Catalog", "ConfigurationWatcher", "Pool", "Prices", "load_catalog"]

log = structlog.get_logger(__name__)

POLL_S = 0.5
READ_TIMEOUT_S = 3.0
STALE_S = 10.0

Pool = AsyncConnectionPool[psycopg.AsyncConnection[Any]]


# Which deployments are served at a moment is the database's own function: migration 0008_served.
SELECT_CANDIDATES = """
    SELECT d.id, d.slug, d.engine, m.name, m.version, m.context_length, m.input_price, m.cached_price, m.output_price,
           d.zone
    FROM inference_served(coalesce(%s, now())) s
    JOIN inference_deployment d ON d.id = s.deployment_id
    JOIN inference_modelversion m ON m.id = s.model_version_id
    ORDER BY m.created_at, d.created_at
"""
SELECT_VERSION = "SELECT version, inference_moments_passed(coalesce(%s, now())) FROM inference_configuration"


async def load_catalog(pool: Pool, version: int, at: datetime | None = None) -> Catalog:
    """The catalog as it is at this moment, by the database's clock where none is given."""
    async with pool.connection() as connection:
        rows = await (await connection.execute(SELECT_CANDIDATES, [at])).fetchall()
        rules = await load_rule_set(connection)
    return Catalog(version, models_of(rows), rules)


def models_of(rows: Iterable[Sequence[Any]]) -> dict[str, tuple[Candidate, ...]]:
    """The rows of `SELECT_CANDIDATES` by the model's name."""
    models: dict[str, tuple[Candidate, ...]] = {}
    for row in rows:
        candidate = Candidate(
            deployment_id=row[0],
            deployment=row[1],
            queue=f"gpu.{row[1]}",
            model=row[3],
            version=row[4],
            context_length=row[5],
            prices=Prices(*row[6:9]),
            simulated=row[2] == "simulated",
            external=row[2] == "openai",
            continues=row[2] not in BEGIN_ANEW,
            zone=row[9],
        )
        models[candidate.model] = (*models.get(candidate.model, ()), candidate)
    return models


SELECT_LIMITS = """
    SELECT id, organisation_id, team_id, user_id, api_key_id, model,
           requests_per_minute, tokens_per_minute, concurrent_answers
    FROM inference_limit
"""
SELECT_BUDGETS = """
    SELECT id, organisation_id, team_id, api_key_id, period, amount, warn_at, degrade_at, refuse_batch_at, refuse_at,
           cheaper_model, is_enabled
    FROM inference_budget ORDER BY created_at
"""


async def load_limits(pool: Pool) -> LimitBook:
    async with pool.connection() as connection:
        rows = await (await connection.execute(SELECT_LIMITS)).fetchall()
    by_scope = {}
    for limit_id, organisation, team, user, api_key, model, *numbers in rows:
        named = (("API key", api_key), ("user", user), ("team", team), ("organisation", organisation), ("model", None))
        scope, scope_id = next(pair for pair in named if pair[1] is not None or pair[0] == "model")
        by_scope[scope, scope_id, model] = Limit(scope, f"limit:{limit_id}", *numbers)
    return LimitBook(by_scope)


async def load_budgets(pool: Pool) -> BudgetBook:
    async with pool.connection() as connection:
        return book_of(await (await connection.execute(SELECT_BUDGETS)).fetchall())


Reload = Callable[[Pool, int], Awaitable[None]]


class ConfigurationWatcher:
    """Polls the version counter and calls every reload when it has moved, or when time alone has changed what is
    served. A failed reload keeps the old objects."""

    def __init__(self, pool: Pool, reloads: list[Reload]) -> None:
        self._pool = pool
        self._reloads = reloads
        self._task: asyncio.Task[None] | None = None
        self.version = 0
        self._moments = 0
        self._read_at: float | None = None

    def is_current(self) -> bool:
        """False before the first read, and when the database has not answered for `STALE_S`.

        Then nobody can be told from somebody whose key was revoked meanwhile, and nothing is served.
        """
        return self._read_at is not None and time.monotonic() - self._read_at < STALE_S

    def start(self) -> None:
        self._task = asyncio.create_task(self._watch(), name="configuration")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _watch(self) -> None:
        while True:
            try:
                async with asyncio.timeout(READ_TIMEOUT_S):
                    await self.refresh()
            except (psycopg.Error, PoolTimeout, OSError, TimeoutError) as error:
                log.warning("configuration_not_read", error=type(error).__name__)
            await asyncio.sleep(POLL_S)

    async def refresh(self, at: datetime | None = None) -> None:
        """`at` stands in for the database's clock."""
        async with self._pool.connection(timeout=2.0) as connection:
            row = await (await connection.execute(SELECT_VERSION, [at])).fetchone()
        version, moments = (int(row[0]), int(row[1])) if row else (0, 0)
        if (version, moments) != (self.version, self._moments):
            for reload in self._reloads:
                await reload(self._pool, version)
            self.version, self._moments = version, moments
        self._read_at = time.monotonic()

"""Health: whether the process lives, and whether it can serve."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
from django.http import HttpRequest, JsonResponse
from psycopg_pool import PoolTimeout

from console import runtime
from inference.clock import is_off
from inference.fleet import FleetState

TIMEOUT_S = 2.0


async def healthz(request: HttpRequest) -> JsonResponse:
    return JsonResponse({"status": "alive"})


async def readyz(request: HttpRequest) -> JsonResponse:
    """200 when a request could be served now. Each part that could not serve is named."""
    checks = await _checks()
    ready = all(state == "ok" for state in checks.values())
    return JsonResponse({"status": "ready" if ready else "not ready", "checks": checks}, status=200 if ready else 503)


async def _checks() -> dict[str, Any]:
    parts = runtime.current()
    fleet = parts.fleet.current()
    catalog = parts.pipeline.catalog
    served = {candidate.deployment for candidates in catalog.models.values() for candidate in candidates}
    return {
        "database": await _database(parts),
        "broker": "ok" if fleet.broker else "unreachable",
        "clock": f"{fleet.ahead_s:+.0f} s from the broker's" if is_off(fleet.ahead_s) else "ok",
        "engine": _engine(fleet, served),
        "inspection": "ok" if parts.inspector.ready else "not answering",
    }


def _engine(fleet: FleetState, served: set[str]) -> str:
    workers = [beat for beat in fleet.workers.values() if beat.deployment in served]
    if any(beat.engine_ready for beat in workers):
        return "ok"
    if faults := sorted(f"worker {beat.worker}: {beat.fault}" for beat in workers if beat.fault):
        return ", ".join(faults)
    if foreign := sorted(beat.worker for beat in fleet.foreign.values() if beat.deployment in served):
        return f"worker {', '.join(foreign)}: another seal key"
    return "not answering" if workers else "no worker"


async def _database(parts: runtime.Runtime) -> str:
    try:
        async with asyncio.timeout(TIMEOUT_S), parts.pool.connection(timeout=TIMEOUT_S) as connection:
            await connection.execute("SELECT 1")
    except (psycopg.Error, PoolTimeout, OSError, TimeoutError):
        return "unreachable"
    return "ok"

"""CPU of single steps of a request's way, without the rest: admission, routing, metering."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from decimal import Decimal

import psutil
from psycopg_pool import AsyncConnectionPool

from gpu_workers.connecting import connect
from gpu_workers.identifiers import uuid7
from gpu_workers.messages import ChatMessage, Sampling, Usage
from gpu_workers.sealing import fingerprint
from inference import metering, routing
from inference.admission import RESERVE_SCRIPT, Admission
from inference.budgets import Budget, demand_of
from inference.catalog import Catalog
from inference.events import Ask
from inference.fleet import Fleet, FleetState
from inference.limits import Limit
from inference.reservations import Claims
from inference.restoring import BudgetRestorer
from inference.routing.facts import facts_of
from inference.routing.live import LiveState
from inference.snapshot import load_budgets, load_catalog
from tests.bench.load import TEXT, TOKENS
from tests.stack import Stack

COUNT = 2000


def ask() -> Ask:
    return Ask(uuid7(), "bench", "http", None, (ChatMessage("user", TEXT),), Sampling(max_tokens=TOKENS))


async def measure_steps(stack: Stack) -> None:
    valkey = connect(stack.environment["BURSAR_VALKEY_URL"])
    pool: AsyncConnectionPool = AsyncConnectionPool(  # type: ignore[type-arg]
        stack.environment["BURSAR_DATABASE_URL"], open=False, kwargs={"autocommit": True}
    )
    await pool.open()
    catalog, fleet = (
        await load_catalog(pool, 1),
        Fleet(valkey, fingerprint(bytes.fromhex(stack.environment["BURSAR_SEAL_KEY"]))),
    )
    state = await fleet.read()
    admission = Admission(valkey, "bench", BudgetRestorer(pool, valkey, RESERVE_SCRIPT).restore)
    book = await load_budgets(pool)
    held = tuple(budget for of_scope in book.by_scope.values() for budget in of_scope)
    admitted, in_valkey = await admission_ms(
        admission, catalog, held, psutil.Process(stack.services.processes["valkey"].pid)
    )
    routed, metered = routing_ms(catalog, state), metering_ms(catalog)
    print(
        f"\nCPU of steps alone, ms: admission and settlement {admitted:.2f} (and {in_valkey:.2f} in Valkey),", end=" "
    )
    print(f"routing {routed:.2f}, metering {metered:.2f}; together {admitted + routed + metered:.2f}")
    await pool.close()
    await valkey.aclose()


async def admission_ms(
    admission: Admission, catalog: Catalog, budgets: tuple[Budget, ...], server: psutil.Process
) -> tuple[float, float]:
    """This process's milliseconds a request, and Valkey's, with three limits and these budgets."""
    limits = tuple(Limit(scope, f"bench-{scope}", 10**6, 10**9, 10**6) for scope in ("API key", "team", "organisation"))
    (candidates, *_) = catalog.models.values()
    served = sum(server.cpu_times()[:2])
    begun = time.process_time()
    for _ in range(COUNT):
        request = ask()
        claims = Claims(limits, budgets, demand_of(request, candidates), datetime.now(UTC))
        reservation = await admission.admit(request.exchange_id, claims)
        await admission.settle(reservation, metering.used(Usage(20, 0, TOKENS), Decimal("0.0001"), candidates[0]))
    spent = time.process_time() - begun
    return spent * 1000 / COUNT, (sum(server.cpu_times()[:2]) - served) * 1000 / COUNT


def routing_ms(catalog: Catalog, state: FleetState) -> float:
    live, requests = LiveState(), [ask() for _ in range(COUNT)]
    begun = time.process_time()
    for request in requests:
        routing.decide(request, catalog, state, facts=facts_of(request), live=live)
    return (time.process_time() - begun) * 1000 / COUNT


def metering_ms(catalog: Catalog) -> float:
    (candidates, *_) = catalog.models.values()
    usage = Usage(20, 5, TOKENS)
    begun = time.process_time()
    for _ in range(COUNT):
        cost = metering.cost_of(usage, candidates[0].prices)
        metering.book(uuid7(), usage, cost, candidates[0])
    return (time.process_time() - begun) * 1000 / COUNT

"""Budgets through the whole product: a thousand clients at once, two web processes, and kill -9 in the middle."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal

import httpx
import psycopg
import pytest

from tests.services import running_services
from tests.stack import MODEL, Stack, running_stack, wait_for

# Four tokens at this price are a cent; prompts are free, so that the worst case is what an answer costs.
PRICE = Decimal(2500)
TOKENS = 4
CENT = Decimal("0.01")
# A lease, and two rounds of the task that looks for overdue ones.
SETTLED_WITHIN_S = 120
# Between an exchange's opening in its process and its admission in Valkey, on a machine that is very busy.
NOTED_WITHIN_S = 15


class Books:
    """The stack's database, as its owner sees it."""

    def __init__(self, stack: Stack) -> None:
        self._connection = psycopg.connect(stack.environment["BURSAR_DATABASE_URL"], autocommit=True)

    def execute(self, sql: str, *values: object) -> None:
        self._connection.execute(sql, values)  # type: ignore[call-overload]

    def value(self, sql: str) -> Decimal:
        row = self._connection.execute(sql).fetchone()  # type: ignore[call-overload]
        return Decimal(row[0])

    def moments(self, sql: str, *values: object) -> list[datetime]:
        return sorted(row[0] for row in self._connection.execute(sql, values).fetchall())  # type: ignore[call-overload]

    def spent(self) -> Decimal:
        return self.value("SELECT coalesce(sum(amount), 0) FROM inference_transfer")

    def set_budget(self, usd: Decimal) -> None:
        self.execute("DELETE FROM inference_budgetcrossing")
        self.execute("DELETE FROM inference_budget")
        self.execute(
            "INSERT INTO inference_budget (id, organisation_id, period, amount, warn_at, degrade_at, refuse_batch_at,"
            " refuse_at, is_enabled) SELECT gen_random_uuid(), id, 'month', %s, 80, 90, 95, 100, true"
            " FROM accounts_organisation",
            usd,
        )


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Servers and processes of its own: this file kills them, and its prices are nobody else's."""
    directory = tmp_path_factory.mktemp("budgets")
    with (
        running_services() as services,
        running_stack(services, directory, web_count=2, scheduler=True, SIMULATED_TTFT_MS="1500") as running,
    ):
        books = Books(running)
        books.execute("UPDATE accounts_organisation SET requests_per_minute = 1000000, concurrent_answers = 10000")
        books.execute("UPDATE inference_modelversion SET output_price = %s, input_price = 0, cached_price = 0", PRICE)
        yield running


async def ask(http: httpx.AsyncClient, url: str) -> str:
    """ "ok", or why not."""
    body = {"model": MODEL, "messages": [{"role": "user", "content": "why?"}], "max_tokens": TOKENS}
    try:
        response = await http.post(f"{url}/v1/chat/completions", json=body)
    except httpx.TransportError:
        return "broken"
    return "ok" if response.status_code == 200 else str(response.json()["error"]["code"])


async def ask_all(stack: Stack, count: int, *, meanwhile: object = None) -> Counter[str]:
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    headers = {"Authorization": f"Bearer {stack.api_key}"}
    async with httpx.AsyncClient(headers=headers, limits=limits, timeout=180) as http:
        tries = [ask(http, stack.urls()[number % 2]) for number in range(count)]
        answers, _ = await asyncio.gather(asyncio.gather(*tries), meanwhile or asyncio.sleep(0))
    return Counter(answers)


async def test_exactly_as_many_answers_as_the_budget_has_room_for(stack: Stack) -> None:
    books = Books(stack)
    before = books.spent()
    books.set_budget(before + 5)
    await asyncio.sleep(2)

    counted = await ask_all(stack, 1000)

    assert counted == {"ok": 500, "insufficient_quota": 500}
    assert books.spent() - before == Decimal("5.00")
    assert books.value("SELECT sum(amount) FROM inference_posting") == 0
    # A step is recorded beside the request that reached it, which does not wait for that.
    steps = "SELECT count(*) FROM inference_budgetcrossing"
    # One that is reached while the new budget is being counted again is found when the ledger is added up.
    await asyncio.to_thread(wait_for, lambda: books.value(steps) >= 4, "every step is recorded", 2 * SETTLED_WITHIN_S)
    entries = books.value(
        "SELECT count(*) FROM audit_entry WHERE kind = 'budget' AND exchange_id IN"
        " (SELECT id FROM inference_budgetcrossing)"
    )
    assert books.value(steps) == entries == 4


async def test_kill_9_in_the_middle_neither_spends_more_nor_loses_room(stack: Stack) -> None:
    books = Books(stack)
    before = books.spent()
    books.set_budget(before + 3)
    await asyncio.sleep(2)

    async def kill() -> None:
        open_ones = "SELECT count(*) FROM inference_exchange WHERE status = 'open'"
        await asyncio.to_thread(wait_for, lambda: books.value(open_ones) > 100, "answers are under way")
        for name in ("worker", "web1"):
            stack.kill(name)
        await asyncio.sleep(1)
        stack.start("worker", "web1")

    counted = await ask_all(stack, 1000, meanwhile=kill())
    assert set(counted) <= {"ok", "insufficient_quota", "broken", "overloaded", "engine_failed", "audit_unavailable"}
    assert counted["broken"] > 0
    assert CENT * counted["ok"] <= books.spent() - before <= 3

    # What the dead process held comes back, and fills up to the cent.
    stack.wait_ready()

    async def full() -> bool:
        await ask_all(stack, 100)
        return books.spent() - before == 3

    async with asyncio.timeout(SETTLED_WITHIN_S):
        while not await full():
            await asyncio.sleep(1)
    assert (await ask_all(stack, 20)) == {"insufficient_quota": 20}
    assert books.spent() - before == 3


async def test_a_price_that_changes_while_answers_are_under_way_overspends_nothing(stack: Stack) -> None:
    books = Books(stack)
    before = books.spent()
    books.set_budget(before + 2)
    await asyncio.sleep(2)

    async def change_prices() -> None:
        for factor in (4, 1, 3):
            await asyncio.sleep(0.7)
            books.execute("UPDATE inference_modelversion SET output_price = %s", PRICE * factor)

    counted = await ask_all(stack, 400, meanwhile=change_prices())
    books.execute("UPDATE inference_modelversion SET output_price = %s", PRICE)
    assert set(counted) == {"ok", "insufficient_quota"}
    assert 0 < books.spent() - before <= 2


async def test_what_could_not_be_recorded_costs_nothing_and_holds_nothing(stack: Stack) -> None:
    books = Books(stack)
    before = books.spent()
    books.set_budget(before + CENT * 10)
    await asyncio.sleep(2)
    stack.services.kill(stack.services.postgres)
    refused = await ask_all(stack, 20)
    stack.services.start(stack.services.postgres)
    await asyncio.to_thread(stack.wait_ready)

    assert "ok" not in refused
    books = Books(stack)
    async with asyncio.timeout(SETTLED_WITHIN_S):
        while (counted := await ask_all(stack, 20)) != {"insufficient_quota": 20}:
            assert set(counted) <= {"ok", "insufficient_quota", "overloaded", "audit_unavailable"}
            await asyncio.sleep(1)
    assert books.spent() - before == CENT * 10


@pytest.mark.parametrize("of", ["requests_per_minute", "tokens_per_minute"])
async def test_exactly_as_many_as_a_limit_allows_are_served(stack: Stack, of: str) -> None:
    books = Books(stack)
    books.set_budget(Decimal(100_000))
    # One request's tokens: four characters are one, and all that the answer may have.
    each = {"requests_per_minute": 1, "tokens_per_minute": 1 + TOKENS}[of]
    books.execute(
        f"INSERT INTO inference_limit (id, organisation_id, model, {of})"  # noqa: S608 - a name of this file
        " SELECT gen_random_uuid(), id, '', %s FROM accounts_organisation",
        500 * each,
    )
    await asyncio.sleep(2)
    began = books.value("SELECT extract(epoch FROM now())")
    try:
        counted = await ask_all(stack, 1000)
    finally:
        books.execute("DELETE FROM inference_limit")
    # On a machine so slow that asking takes more than the minute, more are served: never more in any minute.
    assert counted["ok"] + counted["rate_limit_exceeded"] == 1000
    assert counted["ok"] >= 500
    opened = books.moments("SELECT opened_at FROM inference_exchange WHERE opened_at >= to_timestamp(%s)", began)
    assert len(opened) == counted["ok"]
    assert all(
        (late - early).total_seconds() > 60 - NOTED_WITHIN_S for early, late in zip(opened, opened[500:], strict=False)
    )

"""Whatever happens in whatever order, the ledger stays within the cap, balances, and is what Valkey says in the end."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import redis
from asgiref.sync import sync_to_async
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from compliance.audit.writer import RecordUnavailable
from inference.errors import Refusal
from inference.exchange_models import Exchange
from inference.overdue import settle_overdue
from inference.reservations import RESERVED_UNTIL, Reservation
from tests.inference.budgets.bank import Bank
from tests.inference.budgets.town import CENT, Town

CAP = Decimal("0.10")
# Most of what happens is what should; the rest is what may.
STEP = st.sampled_from(["reserve"] * 4 + ["go on"] * 8 + ["lose everything", "die", "settle overdue", "count again"])


@dataclass
class Running:
    reservation: Reservation
    cost: Decimal
    stage: int = 0


class Day:
    """Two web processes and what happens to them."""

    def __init__(self, banks: list[Bank], town: Town) -> None:
        self._banks = banks
        self._valkey_url = town.valkey_url
        self._running: list[tuple[Bank, Running]] = []

    async def step(self, name: str, number: int, cost: Decimal) -> None:
        one = self._banks[number % 2]
        match name:
            case "reserve":
                try:
                    self._running.append((one, Running(await one.reserve(CENT), cost)))
                except Refusal as refusal:
                    if refusal.code != "insufficient_quota":
                        raise
            case "go on" if self._running:
                await self._go_on(*self._running[number % len(self._running)])
            case "lose everything":
                await one.lose_everything()
            case "die" if self._running:
                self._running.pop(number % len(self._running))
            case "settle overdue":
                await self.settle_overdue()
            case "count again":
                await one.restorer.restore()

    async def _go_on(self, one: Bank, running: Running) -> None:
        """Intent, then the booked answer, then the settlement; refused where the money is not held any more."""
        running.stage += 1
        if running.stage == 1:
            try:
                await one.intend(running.reservation)
            except RecordUnavailable as error:
                if error.sqlstate != "BR001":
                    raise
                self._running.remove((one, running))
        elif running.stage == 2:
            await one.book_answer(running.reservation, running.cost)
        else:
            await one.settle(running.reservation, running.cost)
            self._running.remove((one, running))

    async def settle_overdue(self) -> None:
        with redis.Redis.from_url(self._valkey_url) as valkey:
            for name in valkey.zrange(RESERVED_UNTIL, 0, -1):
                valkey.zadd(RESERVED_UNTIL, {name: 1})
        await sync_to_async(settle_overdue, thread_sensitive=True)()

    async def end(self) -> None:
        """Every process is dead and everything is reconciled."""
        self._running.clear()
        await sync_to_async(Exchange.objects.filter(status="open").update, thread_sensitive=True)(status="unknown")
        await self.settle_overdue()
        await self._banks[0].restorer.restore()  # as the next request does


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    steps=st.lists(
        st.tuples(STEP, st.integers(0, 9), st.decimals(0, CENT, places=6, allow_nan=False)), min_size=10, max_size=60
    )
)
def test_the_ledger_balances_whatever_the_interleaving(town: Town, settings: Any, steps: list[Any]) -> None:
    settings.VALKEY_URL = town.valkey_url
    town.start_over()
    town.budget(str(CAP))

    async def work(*banks: Bank) -> None:
        day = Day(list(banks), town)
        for name, number, cost in steps:
            await day.step(name, number, cost)
            assert 0 <= await banks[0].spent() <= CAP
            assert await banks[0].counted("reserved") >= 0
        await day.end()
        assert await banks[0].counted("reserved") == 0
        assert await banks[0].counted("spent") == await banks[0].spent() * 10**9
        async with banks[0].pool.connection() as connection:
            row = await (await connection.execute("SELECT sum(amount) FROM inference_posting")).fetchone()
        assert row == (0,) or row == (None,)

    town.run(work, banks=2)

"""An organisation with budgets, and the banks that share them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from uuid import uuid4

import redis
from asgiref.sync import async_to_sync

from inference.errors import Refusal
from inference.exchange_models import Exchange
from inference.models import Budget
from inference.reservations import Reservation
from tests.console import people
from tests.inference.budgets.bank import Bank, Payer, bank
from tests.services import Services

CENT = Decimal("0.01")


class Town:
    """An organisation with budgets, and banks as its web processes have them."""

    def __init__(self, services: Services, database: str) -> None:
        self.valkey_url = services.valkey.url(5)
        self._database = database
        self.start_over()

    def start_over(self) -> None:
        """A new organisation, no budget, and a Valkey that knows nothing."""
        Budget.objects.all().delete()
        Exchange.objects.all().delete()
        self.organisation = people.organisation(f"o{uuid4().hex[:8]}")
        self.deployment = people.deployment()
        with redis.Redis.from_url(self.valkey_url) as valkey:
            valkey.flushdb()

    def budget(self, usd: str, **fields: object) -> Budget:
        of_old = {"created_at": datetime.now(UTC) - timedelta(hours=1)}
        return Budget.objects.create(organisation=self.organisation, amount=Decimal(usd), **of_old | fields)

    def platform_budget(self, usd: str) -> Budget:
        return Budget.objects.create(amount=Decimal(usd), created_at=datetime.now(UTC) - timedelta(hours=1))

    def run(self, work: Callable[..., Awaitable[None]], *, banks: int = 1, **options: bool) -> None:
        """Give `work` this many banks that share Valkey and the database."""
        payer = Payer(self.organisation.pk, self.deployment.pk)

        async def opened() -> None:
            async with AsyncExitStack() as stack:
                all_of_them = [
                    await stack.enter_async_context(bank(self._database, self.valkey_url, payer, **options))
                    for _ in range(banks)
                ]
                await work(*all_of_them)

        async_to_sync(opened)()


async def admitted(banks: list[Bank], count: int, usd: Decimal = CENT) -> list[Reservation]:
    results = await asyncio.gather(
        *(banks[number % len(banks)].reserve(usd) for number in range(count)), return_exceptions=True
    )
    for result in results:
        if not isinstance(result, Reservation):
            assert isinstance(result, Refusal)
            assert result.code == "insufficient_quota"
    return [result for result in results if isinstance(result, Reservation)]

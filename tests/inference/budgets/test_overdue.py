"""What a process held that died is settled by what the ledger says of it, and by nothing else."""

from __future__ import annotations

import asyncio
from decimal import Decimal

import redis

from inference.exchange_models import Exchange
from inference.overdue import settle_overdue
from inference.reservations import RESERVED_UNTIL, Reservation
from tests.inference.budgets.bank import Bank
from tests.inference.budgets.town import CENT, Town, admitted


def leases_run_out(valkey: redis.Redis) -> None:
    for name in valkey.zrange(RESERVED_UNTIL, 0, -1):
        valkey.zadd(RESERVED_UNTIL, {name: 1})


def test_overdue_reservations_are_settled_by_the_ledger(town: Town, settings) -> None:
    settings.VALKEY_URL = town.valkey_url
    town.budget("1.00")
    groups: list[list[Reservation]] = []

    async def die(one: Bank) -> None:
        """Booked, open and never recorded: a third of each, and all of them are held when the process ends."""
        held = await admitted([one], 90)
        groups.extend([held[:30], held[30:60], held[60:]])
        booked, opened, _ = groups
        await asyncio.gather(*(one.intend(reservation) for reservation in booked + opened))
        await asyncio.gather(*(one.book_answer(reservation, CENT / 2) for reservation in booked))
        assert await one.counted("reserved") == 900_000_000

    town.run(die)
    with redis.Redis.from_url(town.valkey_url) as valkey:
        assert settle_overdue() == 0  # leases run yet
        leases_run_out(valkey)
        assert settle_overdue() == 30

    async def rest(one: Bank) -> None:
        assert await admitted([one], 1, usd=Decimal("1.00")) == []  # counts anew what was never recorded
        assert await one.counted("spent") == 150_000_000
        assert await one.counted("reserved") == 300_000_000

    town.run(rest)
    Exchange.objects.filter(status="open").update(status="unknown")
    with redis.Redis.from_url(town.valkey_url) as valkey:
        leases_run_out(valkey)
    assert settle_overdue() == 30
    assert settle_overdue() == 0

    async def free(one: Bank) -> None:
        assert await one.counted("reserved") == 0
        assert len(await admitted([one], 200)) == 85

    town.run(free)


def test_the_platforms_budget_is_settled_by_external_cost_alone(town: Town, settings) -> None:
    settings.VALKEY_URL = town.valkey_url
    town.platform_budget("1.00")

    async def die(one: Bank) -> None:
        for reservation in await admitted([one], 10):
            await one.intend(reservation)
            await one.book_answer(reservation, CENT)

    town.run(die)
    town.run(die, external=True)
    with redis.Redis.from_url(town.valkey_url) as valkey:
        leases_run_out(valkey)
    assert settle_overdue() == 20

    async def rest(one: Bank) -> None:
        assert await one.counted("spent") == 100_000_000
        assert Decimal(await one.counted("reserved")) == 0

    town.run(rest)

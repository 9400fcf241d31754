"""What Valkey counts is what the ledger will say: whatever is paused, switched off, forgotten or late meanwhile."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import pytest
import redis

from compliance.audit.writer import RecordUnavailable
from gpu_workers.messages import owner_key
from inference.overdue import settle_overdue
from inference.reservations import RESERVED_UNTIL, Reservation
from tests.inference.budgets.bank import Bank
from tests.inference.budgets.town import CENT, Town, admitted


def leases_run_out(valkey_url: str) -> None:
    with redis.Redis.from_url(valkey_url) as valkey:
        for name in valkey.zrange(RESERVED_UNTIL, 0, -1):
            valkey.zadd(RESERVED_UNTIL, {name: 1})


def test_a_process_that_was_paused_past_its_leases_cannot_spend_what_others_have_taken(town: Town, settings) -> None:
    settings.VALKEY_URL = town.valkey_url
    town.budget("1.00")
    paused: list[Reservation] = []

    async def pause(one: Bank) -> None:
        paused.extend(await admitted([one], 100))

    town.run(pause)
    leases_run_out(town.valkey_url)
    settle_overdue()

    async def resume(one: Bank) -> None:
        for _ in range(100):
            await one.serve(CENT, CENT)
        for reservation in paused:
            with pytest.raises(RecordUnavailable):
                await one.intend(reservation)
        assert await one.spent() == Decimal("1.00")

    town.run(resume)


def test_what_a_living_process_gave_up_without_an_intent_is_free_again(town: Town, settings) -> None:
    settings.VALKEY_URL = town.valkey_url
    town.budget("1.00")

    async def fail(one: Bank) -> None:
        """As when PostgreSQL was away: whether the intent is recorded is not known here."""
        await one.valkey.set(owner_key(one.owner), b"1", ex=60)
        for reservation in await admitted([one], 100):
            await one.admission.settle(reservation, None)

    town.run(fail)
    leases_run_out(town.valkey_url)
    settle_overdue()

    async def again(one: Bank) -> None:
        assert len(await admitted([one], 200)) == 100

    town.run(again)


def test_what_was_spent_while_a_budget_was_switched_off_counts_when_it_is_on_again(town: Town) -> None:
    budget = town.budget("1.00")

    async def spend(one: Bank) -> None:
        for _ in range(50):
            await one.serve(CENT, CENT)

    async def unlimited(one: Bank) -> None:
        for _ in range(3):
            await spend(one)

    async def rest(one: Bank) -> None:
        assert await admitted([one], 10) == []

    town.run(spend)
    budget.is_enabled = False
    budget.save()
    town.run(unlimited)
    budget.is_enabled = True
    budget.save()
    town.run(rest)


def test_a_settlement_does_not_make_a_count_that_valkey_has_forgotten(town: Town) -> None:
    """A budget's hash can be gone where a period has passed or keys with a time to live are evicted."""
    budget = town.budget("1.00")

    async def work(one: Bank) -> None:
        for _ in range(90):
            await one.serve(CENT, CENT)
        held = await admitted([one], 10)
        key = one.book.by_id[budget.pk].key(datetime.now(UTC))
        await one.valkey.delete(key)
        for reservation in held:
            await one.intend(reservation)
            await one.book_answer(reservation, CENT)
            await one.settle(reservation, CENT)
        assert not await one.valkey.exists(key)
        assert await admitted([one], 10) == []

    town.run(work)


def test_a_new_budget_gets_what_was_admitted_before_it_was_known(town: Town, settings) -> None:
    """A request under way, or one of a process that has not read the new configuration yet."""
    settings.VALKEY_URL = town.valkey_url
    early: list[Reservation] = []

    async def admit(one: Bank) -> None:
        early.extend(await admitted([one], 100))

    async def end(one: Bank) -> None:
        assert len(await admitted([one], 1)) == 1
        for reservation in early:
            await one.intend(reservation)
            await one.book_answer(reservation, CENT)
            await one.settle(reservation, CENT)

    async def rest(one: Bank) -> None:
        assert await admitted([one], 10) == []

    town.run(admit)
    town.budget("1.00", created_at=datetime.now(UTC))
    town.run(end)
    settle_overdue()
    town.run(rest)

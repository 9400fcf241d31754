"""No concurrency, loss or crash gets around a budget's cap, and what was held comes back to the cent."""

from __future__ import annotations

import asyncio
from decimal import Decimal

import pytest

from compliance.audit.writer import RecordUnavailable
from inference.errors import Refusal
from inference.reservations import Reservation
from tests.inference.budgets.bank import Bank
from tests.inference.budgets.town import CENT, Town, admitted


def test_of_1000_at_once_exactly_as_many_are_served_as_the_budget_has_room_for(town: Town) -> None:
    town.budget("5.00")

    async def work(*banks: Bank) -> None:
        results = await asyncio.gather(
            *(banks[number % 2].serve(CENT, CENT) for number in range(1000)), return_exceptions=True
        )
        refused = [result for result in results if result is not None]
        assert len(refused) == 500
        assert {getattr(refusal, "code", refusal) for refusal in refused} == {"insufficient_quota"}
        assert await banks[0].spent() == Decimal("5.00")
        assert (await banks[0].counted("spent"), await banks[0].counted("reserved")) == (5_000_000_000, 0)

    town.run(work, banks=2)


def test_what_was_held_and_not_used_is_free_again(town: Town) -> None:
    town.budget("1.00")

    async def work(one: Bank) -> None:
        held = await admitted([one], 200, usd=Decimal("0.10"))
        assert len(held) == 10
        for reservation in held:
            await one.settle(reservation, Decimal("0.04"))
            await one.settle(reservation, Decimal("0.04"))  # once counts
        assert await one.counted("spent") == 400_000_000
        assert len(await admitted([one], 200, usd=Decimal("0.10"))) == 6

    town.run(work)


def test_a_valkey_that_lost_its_data_is_counted_from_the_ledger(town: Town) -> None:
    town.budget("3.00")

    async def work(*banks: Bank) -> None:
        one, other = banks
        served, running = (await admitted([one], 100)), (await admitted([other], 100))
        for reservation in served:
            await one.intend(reservation)
            await one.book_answer(reservation, CENT)
            await one.settle(reservation, CENT)
        await asyncio.gather(*(other.intend(reservation) for reservation in running))

        await one.lose_everything()

        assert len(await admitted([one, other], 300)) == 100
        for reservation in running:
            await other.book_answer(reservation, CENT)
            await other.settle(reservation, CENT)
        assert await one.counted("spent") == 2_000_000_000

    town.run(work, banks=2)


def test_an_intent_that_rests_on_a_lost_reservation_is_not_committed(town: Town) -> None:
    town.budget("1.00")

    async def work(one: Bank) -> None:
        before = await admitted([one], 100)
        await one.lose_everything()
        after = await admitted([one], 100)
        assert (len(before), len(after)) == (100, 100)

        results = await asyncio.gather(
            *(one.intend(reservation) for reservation in before + after), return_exceptions=True
        )
        refused, committed = results[:100], results[100:]
        assert {error.sqlstate for error in refused if isinstance(error, RecordUnavailable)} == {"BR001"}
        assert None not in refused
        assert set(committed) == {None}

    town.run(work)


def test_intents_and_counts_at_the_same_time_never_overspend(town: Town) -> None:
    town.budget("0.50")

    async def work(*banks: Bank) -> None:
        async def lose() -> None:
            for _ in range(10):
                await asyncio.sleep(0.02)
                await banks[0].lose_everything()

        tries = [banks[number % 2].serve(CENT, CENT) for number in range(300)]
        results = await asyncio.gather(lose(), *tries, return_exceptions=True)
        unforeseen = [e for e in results if e is not None and not isinstance(e, Refusal | RecordUnavailable)]
        assert not unforeseen
        assert await banks[0].spent() <= Decimal("0.50")
        # What is left is still there, to the cent.
        await asyncio.gather(*(banks[number % 2].serve(CENT, CENT) for number in range(60)), return_exceptions=True)
        assert await banks[0].spent() == Decimal("0.50")

    town.run(work, banks=2)


def test_a_budget_made_while_answers_run_counts_them_too(town: Town) -> None:
    town.budget("100.00")

    async def before(one: Bank) -> None:
        for reservation in await admitted([one], 20):
            await one.intend(reservation)
            await one.book_answer(reservation, CENT)
            await one.settle(reservation, CENT)
        for reservation in await admitted([one], 10):
            await one.intend(reservation)

    town.run(before)
    town.budget("0.40", period="year")

    async def after(one: Bank) -> None:
        assert len(await admitted([one], 100)) == 10

    town.run(after)


def test_the_platforms_budget_counts_tokens_of_external_deployments_alone(town: Town) -> None:
    town.platform_budget("0.10")

    async def own(one: Bank) -> None:
        for _ in range(20):
            await one.serve(CENT, CENT)
        assert await one.counted("spent") == 0

    async def external(one: Bank) -> None:
        assert len(await admitted([one], 30)) == 10

    town.run(own)
    town.run(external, external=True)


def test_batch_requests_are_refused_before_the_others(town: Town) -> None:
    town.budget("1.00", refuse_batch_at=Decimal(95))

    async def work(one: Bank) -> None:
        batch = await asyncio.gather(*(one.reserve(CENT, priority="batch") for _ in range(200)), return_exceptions=True)
        assert sum(isinstance(result, Reservation) for result in batch) == 95
        refusal = next(result for result in batch if isinstance(result, Refusal))
        assert "batch" in refusal.message
        assert len(await admitted([one], 200)) == 5

    town.run(work)


def test_a_refusal_names_the_budget_and_when_it_renews(town: Town) -> None:
    town.budget("0.00", period="year")

    async def work(one: Bank) -> None:
        with pytest.raises(Refusal) as caught:
            await one.reserve(CENT)
        refusal = caught.value
        assert (refusal.code, refusal.status) == ("insufficient_quota", 429)
        assert "The year's budget of this organisation" in refusal.message
        assert "-01-01 (UTC)" in refusal.message
        assert refusal.retry_after_s is not None

    town.run(work)

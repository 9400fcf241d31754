"""Clocks that jump: nobody spends another month's money, and what the dead held is free after the usual time."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

import pytest
import redis

from inference.errors import Refusal
from inference.overdue import settle_overdue
from inference.reservations import RESERVED_UNTIL
from tests.inference.budgets.bank import Bank
from tests.inference.budgets.town import CENT, Town, admitted

MONTH_S = 31 * 24 * 3600
LATE_NOVEMBER = datetime(2026, 11, 30, 23, 59, 59, tzinfo=UTC)
DECEMBER = datetime(2026, 12, 1, tzinfo=UTC)


@pytest.mark.parametrize("ahead_s", [-MONTH_S, -61, 61, MONTH_S])
def test_a_process_whose_clock_has_jumped_spends_nothing(
    town: Town, monkeypatch: pytest.MonkeyPatch, ahead_s: float
) -> None:
    town.budget("0.05")

    async def jump(one: Bank) -> None:
        await one.reserve(CENT)
        true_time = time.time
        monkeypatch.setattr("inference.admission.time.time", lambda: true_time() + ahead_s)
        with pytest.raises(Refusal, match="clocks of the platform differ"):
            await one.reserve(CENT)
        monkeypatch.undo()
        assert len(await admitted([one], 10)) == 4

    town.run(jump)


class Calendar(datetime):
    """The clock of who counts the ledger, as the test sets it."""

    current = LATE_NOVEMBER

    @classmethod
    def now(cls, tz: Any = None) -> datetime:
        return cls.current.astimezone(tz)


def test_an_answer_counts_in_the_month_in_which_it_was_asked_for(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    town.budget("0.03")
    monkeypatch.setattr("inference.restoring.datetime", Calendar)

    async def pass_midnight(one: Bank) -> None:
        Calendar.current = LATE_NOVEMBER
        november = await one.reserve(CENT, at=LATE_NOVEMBER)
        Calendar.current = DECEMBER
        december = [await one.reserve(CENT, at=DECEMBER) for _ in range(3)]
        with pytest.raises(Refusal, match="renews on 2027-01-01"):
            await one.reserve(CENT, at=DECEMBER)
        for reservation in (november, *december):  # all of them end in December
            await one.settle(reservation, CENT)
        with pytest.raises(Refusal, match="renews on 2026-12-01"):
            await one.reserve(3 * CENT, at=LATE_NOVEMBER)
        await one.reserve(2 * CENT, at=LATE_NOVEMBER)

    town.run(pass_midnight)


def test_what_the_dead_held_is_free_though_valkeys_clock_has_jumped_back(town: Town, settings: Any) -> None:
    settings.VALKEY_URL = town.valkey_url
    town.budget("0.10")

    async def die(one: Bank) -> None:
        held = await admitted([one], 10)
        for reservation in held:
            await one.intend(reservation)
            await one.book_answer(reservation, CENT / 2)

    town.run(die)
    with redis.Redis.from_url(town.valkey_url) as valkey:
        for name, until in valkey.zrange(RESERVED_UNTIL, 0, -1, withscores=True):
            valkey.zadd(RESERVED_UNTIL, {name: until + 3 * 3600})
    assert settle_overdue() == 10

    async def rest(one: Bank) -> None:
        assert len(await admitted([one], 10)) == 5

    town.run(rest)

"""Whoever counts the budgets may be cut off or hang while it does: nobody believes it, and nobody waits for it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from inference import restoring
from inference.errors import Refusal
from inference.restoring import LOCK
from tests.inference.budgets.bank import Bank
from tests.inference.budgets.town import CENT, Town, admitted

CUT_OFF = "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted AND objid = %s"


def hang_before_bringing_in(bank: Bank, monkeypatch: pytest.MonkeyPatch) -> tuple[asyncio.Event, asyncio.Event]:
    """The bank's next count stops between what it read and Valkey. Events: it has read; it may go on."""
    has_read, may_go_on = asyncio.Event(), asyncio.Event()
    bring_in = bank.restorer._restore

    async def late(**arguments: Any) -> Any:
        has_read.set()
        await may_go_on.wait()
        return await bring_in(**arguments)

    monkeypatch.setattr(bank.restorer, "_restore", late)
    return has_read, may_go_on


def test_a_count_that_lost_its_lock_is_not_believed(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    town.budget("1.00")

    async def work(*banks: Bank) -> None:
        one, other = banks
        await other.restorer.restore()
        has_read, may_go_on = hang_before_bringing_in(one, monkeypatch)
        counting = asyncio.create_task(one.restorer.restore())
        await has_read.wait()
        async with other.pool.connection() as connection:
            await connection.execute(CUT_OFF, [LOCK & 0xFFFFFFFF])
        await other.restorer.restore()
        for _ in range(100):
            await other.serve(CENT, CENT)

        may_go_on.set()
        with pytest.raises(Refusal):
            await counting
        assert await admitted([other], 10) == []

    town.run(work, banks=2)


def test_a_process_that_hangs_while_it_counts_does_not_stop_the_others(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restoring, "SILENT_TIMEOUT", "200ms")
    town.budget("1.00")

    async def work(*banks: Bank) -> None:
        one, other = banks
        has_read, may_go_on = hang_before_bringing_in(one, monkeypatch)
        counting = asyncio.create_task(one.restorer.restore())
        await has_read.wait()

        await other.serve(CENT, CENT)

        may_go_on.set()
        await asyncio.gather(counting, return_exceptions=True)

    town.run(work, banks=2)

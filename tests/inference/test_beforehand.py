"""Work begun beforehand happens once, its failure comes where it is waited for, and a refused caller gets none."""

from __future__ import annotations

import asyncio

import pytest

from inference import beforehand
from inference.beforehand import Beforehand, CalmCallers


class Work:
    def __init__(self, error: Exception | None = None) -> None:
        self.begun = self.ended = 0
        self._error = error

    async def __call__(self) -> None:
        self.begun += 1
        await asyncio.sleep(0)
        if self._error is not None:
            raise self._error
        self.ended += 1


async def test_it_is_done_once_whether_or_not_it_was_started() -> None:
    for start in (True, False):
        work = Work()
        ahead = Beforehand(work)
        if start:
            ahead.start()
            ahead.start()
        await ahead.result()
        ahead.drop()
        assert (work.begun, work.ended) == (1, 1)


async def test_its_failure_comes_where_it_is_waited_for() -> None:
    ahead = Beforehand(Work(ValueError("bad")))
    ahead.start()
    await asyncio.sleep(0.01)
    with pytest.raises(ValueError, match="bad"):
        await ahead.result()


async def test_what_nobody_wants_any_more_ends() -> None:
    work = Work()
    ahead = Beforehand(work)
    ahead.start()
    ahead.drop()
    await asyncio.sleep(0.01)
    assert work.ended == 0


def test_a_caller_that_was_refused_is_not_calm_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(beforehand.time, "monotonic", lambda: now)
    callers = CalmCallers()
    callers.disturbed("a")
    assert (callers.is_calm("a"), callers.is_calm("b")) == (False, True)
    now += beforehand.DISTURBED_S
    assert callers.is_calm("a")


def test_a_flood_of_callers_is_not_remembered_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beforehand, "MAX_DISTURBED", 10)
    callers = CalmCallers()
    for number in range(100):
        callers.disturbed(str(number))
    assert len(callers._disturbed) <= 10

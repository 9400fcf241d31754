"""Limits are exact whoever asks at once, clear when they say, and free the places of those who died."""

from __future__ import annotations

import asyncio
from uuid import uuid4

import pytest
from redis.asyncio import Redis

from gpu_workers.identifiers import uuid7
from gpu_workers.messages import Usage
from gpu_workers.runner import connect
from inference import admission as admissions
from inference.admission import Admission, Reservation
from inference.errors import Refusal
from inference.events import Caller, Limits
from inference.leases import Leases
from inference.metering import settle
from inference.snapshot import Prices

FREE = Prices(*[0] * 3)  # type: ignore[arg-type]


def caller(*, rpm: int = 10_000, at_once: int = 10_000) -> Caller:
    return Caller(uuid4(), None, uuid4(), Limits("API key", rpm, at_once))


async def try_all(valkeys: list[Redis], who: Caller, count: int = 200) -> tuple[list[Reservation], list[Refusal]]:
    """Ask `count` times at once, half through each pool."""
    sides = [Admission(valkey) for valkey in valkeys]
    results = await asyncio.gather(
        *(sides[number % 2].admit(uuid7(), who) for number in range(count)), return_exceptions=True
    )
    admitted = [result for result in results if isinstance(result, Reservation)]
    refused = [result for result in results if isinstance(result, Refusal)]
    assert len(admitted) + len(refused) == count
    return admitted, refused


def rate_key(who: Caller) -> str:
    return f"bursar:limit:rpm:{who.name}"


@pytest.mark.parametrize("limit", [0, 1, 37, 200, 500])
async def test_exactly_as_many_requests_as_a_minute_allows_are_admitted(valkeys: list[Redis], limit: int) -> None:
    admitted, refused = await try_all(valkeys, caller(rpm=limit))

    assert len(admitted) == min(limit, 200)
    assert {(refusal.code, refusal.status) for refusal in refused} <= {("rate_limit_exceeded", 429)}
    assert all(f"{limit} requests per minute for this API key" in refusal.message for refusal in refused)


@pytest.mark.parametrize("limit", [0, 1, 13, 500])
async def test_exactly_as_many_answers_at_once_as_allowed_are_admitted(valkeys: list[Redis], limit: int) -> None:
    who = caller(at_once=limit)
    admitted, refused = await try_all(valkeys, who)
    assert len(admitted) == min(limit, 200)
    assert all(f"{limit} answers at once for this API key" in refusal.message for refusal in refused)
    assert {refusal.retry_after_s for refusal in refused} <= {1}

    for reservation in admitted[:5]:
        await Admission(valkeys[1]).release(reservation)
    again, _ = await try_all(valkeys, who)
    assert len(again) == min(limit - len(admitted) + len(admitted[:5]), 200)


async def test_callers_do_not_count_against_each_other(valkeys: list[Redis]) -> None:
    (first, _), (second, _) = await asyncio.gather(try_all(valkeys, caller(rpm=20)), try_all(valkeys, caller(rpm=30)))
    assert (len(first), len(second)) == (20, 30)


async def test_what_was_refused_for_one_limit_does_not_use_up_the_other(valkeys: list[Redis]) -> None:
    who = caller(rpm=10, at_once=1)
    admitted, _ = await try_all(valkeys, who)
    await Admission(valkeys[0]).release(admitted[0])
    assert await valkeys[0].zcard(rate_key(who)) == 1


async def test_a_refusal_says_when_the_oldest_request_leaves_the_window(valkeys: list[Redis]) -> None:
    who, side = caller(rpm=2), Admission(valkeys[0])
    first = uuid7()
    await side.admit(first, who)
    await side.admit(uuid7(), who)

    for passed_s, more_s in ((0, 0), (12, 12), (50, 38)):
        await valkeys[0].zincrby(rate_key(who), -more_s * 1000, str(first))
        with pytest.raises(Refusal) as caught:
            await side.admit(uuid7(), who)
        assert caught.value.retry_after_s in (
            60 - passed_s,
            59 - passed_s,
        )  # what has passed since is less than a second

    await valkeys[0].zincrby(rate_key(who), -10_000, str(first))
    await side.admit(uuid7(), who)
    with pytest.raises(Refusal):
        await side.admit(uuid7(), who)


async def test_a_lease_that_nobody_renews_runs_out_and_one_that_is_renewed_does_not(
    valkeys: list[Redis], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admissions, "LEASE_S", 2)
    side = Admission(valkeys[0])
    dead, alive = caller(at_once=1), caller(at_once=1)
    await side.admit(uuid7(), dead)
    kept = await side.admit(uuid7(), alive)

    async with asyncio.timeout(20):
        while True:
            await side.renew(kept)
            try:
                await side.admit(uuid7(), dead)
                break
            except Refusal:
                await asyncio.sleep(0.2)
    with pytest.raises(Refusal):
        await side.admit(uuid7(), alive)


async def test_a_place_that_was_freed_is_not_taken_again_by_a_late_renewal(valkeys: list[Redis]) -> None:
    who, side = caller(at_once=1), Admission(valkeys[0])
    reservation = await side.admit(uuid7(), who)
    await side.release(reservation)
    await side.renew(reservation)
    await side.admit(uuid7(), who)


async def test_settling_frees_the_place_once(valkeys: list[Redis]) -> None:
    who, side = caller(at_once=1), Admission(valkeys[0])
    leases = Leases(side)
    reservation = await side.admit(uuid7(), who)
    leases.hold(reservation)
    await settle(leases, reservation, Usage(1, 0, 1), FREE)
    await side.admit(uuid7(), who)
    await leases.release(reservation)  # already settled: the other's place stays
    with pytest.raises(Refusal):
        await side.admit(uuid7(), who)


async def test_without_valkey_nobody_is_admitted() -> None:
    nowhere = connect("unix:///nowhere/valkey.sock")
    with pytest.raises(Refusal) as caught:
        await Admission(nowhere).admit(uuid7(), caller())
    assert (caught.value.code, caught.value.status) == ("overloaded", 503)
    await nowhere.aclose()

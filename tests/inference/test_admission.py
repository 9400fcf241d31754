"""Limits are exact whoever asks at once, clear when they say, and free the places of those who died."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from uuid import uuid4

import pytest
from redis.asyncio import Redis

from gpu_workers.connecting import connect
from gpu_workers.identifiers import uuid7
from inference import admission as admissions
from inference.admission import RESERVE_SCRIPT, Admission
from inference.budgets import Demand
from inference.errors import Refusal
from inference.events import Caller, Limits
from inference.leases import Leases
from inference.limits import Limit, LimitBook
from inference.reservations import LEASE_S, WINDOW_S, Claims, Reservation, Used


def admission(valkey: Redis) -> Admission:
    """Without budgets there is nothing to count: a Valkey that does not know the script is taught it."""

    async def restore() -> None:
        await valkey.script_load(RESERVE_SCRIPT)

    return Admission(valkey, "owner", restore)


def claims(who: Caller, *more: Limit, tokens: int = 0) -> Claims:
    own = LimitBook().for_request(who, "m")
    return Claims((*own, *more), (), Demand(tokens, 0, 0), datetime.now(UTC))


def caller(*, rpm: int = 10_000, at_once: int = 10_000) -> Caller:
    return Caller(uuid4(), None, uuid4(), Limits("API key", rpm, at_once))


async def try_all(valkeys: list[Redis], who: Caller, count: int = 200) -> tuple[list[Reservation], list[Refusal]]:
    """Ask `count` times at once, half through each pool."""
    return await try_claims(valkeys, claims(who), count)


async def try_claims(valkeys: list[Redis], asked: Claims, count: int) -> tuple[list[Reservation], list[Refusal]]:
    sides = [admission(valkey) for valkey in valkeys]
    results = await asyncio.gather(
        *(sides[number % 2].admit(uuid7(), asked) for number in range(count)), return_exceptions=True
    )
    admitted = [result for result in results if isinstance(result, Reservation)]
    refused = [result for result in results if isinstance(result, Refusal)]
    assert len(admitted) + len(refused) == count
    return admitted, refused


def rate_key(who: Caller) -> str:
    return f"bursar:limit:{who.name}:requests"


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
        await admission(valkeys[1]).settle(reservation, Used())
    again, _ = await try_all(valkeys, who)
    assert len(again) == min(limit - len(admitted) + len(admitted[:5]), 200)


async def test_callers_do_not_count_against_each_other(valkeys: list[Redis]) -> None:
    (first, _), (second, _) = await asyncio.gather(try_all(valkeys, caller(rpm=20)), try_all(valkeys, caller(rpm=30)))
    assert (len(first), len(second)) == (20, 30)


async def test_what_was_refused_for_one_limit_does_not_use_up_the_other(valkeys: list[Redis]) -> None:
    who = caller(rpm=10, at_once=1)
    admitted, _ = await try_all(valkeys, who)
    await admission(valkeys[0]).settle(admitted[0], Used())
    assert await valkeys[0].zcard(rate_key(who)) == 1


async def test_a_refusal_says_when_the_oldest_request_leaves_the_window(valkeys: list[Redis]) -> None:
    who, side = caller(rpm=2), admission(valkeys[0])
    first = uuid7()
    await side.admit(first, claims(who))
    await side.admit(uuid7(), claims(who))

    for passed_s, more_s in ((0, 0), (12, 12), (50, 38)):
        await valkeys[0].zincrby(rate_key(who), -more_s * 1000, str(first))
        with pytest.raises(Refusal) as caught:
            await side.admit(uuid7(), claims(who))
        assert caught.value.retry_after_s in (
            60 - passed_s,
            59 - passed_s,
        )  # what has passed since is less than a second

    await valkeys[0].zincrby(rate_key(who), -10_000, str(first))
    await side.admit(uuid7(), claims(who))
    with pytest.raises(Refusal):
        await side.admit(uuid7(), claims(who))


async def test_a_lease_that_nobody_renews_runs_out_and_one_that_is_renewed_does_not(
    valkeys: list[Redis], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admissions, "LEASE_S", 2)
    side = admission(valkeys[0])
    dead, alive = caller(at_once=1), caller(at_once=1)
    await side.admit(uuid7(), claims(dead))
    kept = await side.admit(uuid7(), claims(alive))

    async with asyncio.timeout(20):
        while True:
            await side.renew([kept])
            try:
                await side.admit(uuid7(), claims(dead))
                break
            except Refusal:
                await asyncio.sleep(0.2)
    with pytest.raises(Refusal):
        await side.admit(uuid7(), claims(alive))


async def test_a_place_that_was_freed_is_not_taken_again_by_a_late_renewal(valkeys: list[Redis]) -> None:
    who, side = caller(at_once=1), admission(valkeys[0])
    reservation = await side.admit(uuid7(), claims(who))
    await side.settle(reservation, Used())
    await side.renew([reservation])
    await side.admit(uuid7(), claims(who))


async def test_settling_frees_the_place_once(valkeys: list[Redis]) -> None:
    who, side = caller(at_once=1), admission(valkeys[0])
    leases = Leases(side)
    reservation = await side.admit(uuid7(), claims(who))
    leases.hold(reservation)
    await leases.settle(reservation, Used())
    await side.admit(uuid7(), claims(who))
    await leases.settle(reservation, Used())  # already settled: the other's place stays
    with pytest.raises(Refusal):
        await side.admit(uuid7(), claims(who))


async def test_without_valkey_nobody_is_admitted() -> None:
    nowhere = connect("unix:///nowhere/valkey.sock")
    with pytest.raises(Refusal) as caught:
        await admission(nowhere).admit(uuid7(), claims(caller()))
    assert (caught.value.code, caught.value.status) == ("overloaded", 503)
    await nowhere.aclose()


def shared(**numbers: int) -> Limit:
    return Limit("team", f"limit:{uuid4()}", **numbers)


async def test_a_shared_limit_holds_for_all_its_callers_together(valkeys: list[Redis]) -> None:
    team = shared(requests_per_minute=40)
    mine, theirs = await asyncio.gather(
        *(try_claims(valkeys, claims(who, team), 100) for who in (caller(), caller())), return_exceptions=False
    )

    assert len(mine[0]) + len(theirs[0]) == 40
    assert {refusal.message for refusal in mine[1] + theirs[1]} == {
        "Limit of 40 requests per minute for this team is reached."
    }


@pytest.mark.parametrize("limit", [0, 99, 100, 1_050, 100_000])
async def test_exactly_as_many_tokens_as_a_minute_allows_are_admitted(valkeys: list[Redis], limit: int) -> None:
    admitted, refused = await try_claims(valkeys, claims(caller(), shared(tokens_per_minute=limit), tokens=100), 100)

    assert len(admitted) == min(100, limit // 100)
    assert all("tokens" in refusal.message for refusal in refused)


async def test_tokens_that_were_not_used_are_given_back(valkeys: list[Redis]) -> None:
    team = shared(tokens_per_minute=1_000)
    admitted, _ = await try_claims(valkeys, claims(caller(), team, tokens=500), 3)
    assert len(admitted) == 2
    for reservation in admitted:
        await admission(valkeys[0]).settle(reservation, Used(tokens=100))

    again, _ = await try_claims(valkeys, claims(caller(), team, tokens=200), 10)
    assert len(again) == 4


async def test_a_request_that_no_minute_has_room_for_is_told_so(valkeys: list[Redis]) -> None:
    with pytest.raises(Refusal) as caught:
        await admission(valkeys[0]).admit(uuid7(), claims(caller(), shared(tokens_per_minute=10), tokens=11))
    assert caught.value.param == "max_tokens"
    assert caught.value.retry_after_s is None
    assert "11 tokens" in caught.value.message


async def test_a_refusal_by_tokens_says_when_enough_of_them_leave_the_window(valkeys: list[Redis]) -> None:
    team, side = shared(tokens_per_minute=100), admission(valkeys[0])
    first = uuid7()
    await side.admit(first, claims(caller(), team, tokens=60))
    await side.admit(uuid7(), claims(caller(), team, tokens=40))
    await valkeys[0].zincrby(f"bursar:limit:{team.name}:tokens", -30_000, str(first))

    with pytest.raises(Refusal) as caught:
        await side.admit(uuid7(), claims(caller(), team, tokens=50))
    assert caught.value.retry_after_s in (29, 30)

    await valkeys[0].zincrby(f"bursar:limit:{team.name}:tokens", -31_000, str(first))
    await side.admit(uuid7(), claims(caller(), team, tokens=50))


async def test_a_refusal_by_tokens_does_not_walk_through_a_busy_window(valkeys: list[Redis]) -> None:
    team, side = shared(tokens_per_minute=3_000), admission(valkeys[0])
    for _ in range(3_000):
        await side.admit(uuid7(), claims(caller(), team, tokens=1))

    async def looks() -> int:
        stats = await valkeys[0].info("commandstats")
        return int(stats["cmdstat_hget"]["calls"])

    before = await looks()
    with pytest.raises(Refusal) as caught:
        await side.admit(uuid7(), claims(caller(), team, tokens=3_000))
    assert await looks() - before < 1_000
    assert caught.value.retry_after_s is not None


async def test_what_is_left_of_the_tightest_limit_is_told(valkeys: list[Redis]) -> None:
    who, team = caller(rpm=50), shared(requests_per_minute=20, tokens_per_minute=1_000)
    room = (await admission(valkeys[0]).admit(uuid7(), claims(who, team, tokens=150))).room

    assert (room.requests, room.requests_limit, room.tokens, room.tokens_limit) == (19, 20, 850, 1_000)


async def shift(valkey: Redis, key: str, by: float) -> None:
    """What a key's entries look like after Valkey's clock has jumped: their scores are of another time."""
    for member, score in await valkey.zrange(key, 0, -1, withscores=True):
        await valkey.zadd(key, {member: score + by})


async def test_a_clock_that_jumps_back_blocks_nobody_for_hours(valkeys: list[Redis]) -> None:
    who = caller(rpm=3, at_once=3)
    desk = admission(valkeys[0])
    held = [await desk.admit(uuid7(), claims(who)) for _ in range(3)]
    await shift(valkeys[0], rate_key(who), 3 * 3_600_000)
    await shift(valkeys[0], f"bursar:limit:{who.name}:running", 3 * 3_600)

    with pytest.raises(Refusal, match="answers at once"):
        await desk.admit(uuid7(), claims(who))  # they are still answered
    running = await valkeys[0].zrange(f"bursar:limit:{who.name}:running", 0, -1, withscores=True)
    now_s = (await valkeys[0].time())[0]
    assert len(running) == 3
    assert all(until - now_s <= LEASE_S for _, until in running)

    for one in held:
        await desk.settle(one, Used())
    with pytest.raises(Refusal, match="requests per minute") as refused:
        await desk.admit(uuid7(), claims(who))
    assert 0 < (refused.value.retry_after_s or 0) <= WINDOW_S


async def test_tokens_of_a_time_that_is_yet_to_come_count_as_of_now(valkeys: list[Redis]) -> None:
    who, limit = caller(), Limit("team", f"limit:{uuid4()}", None, 100, None)
    desk = admission(valkeys[0])
    await desk.admit(uuid7(), claims(who, limit, tokens=60))
    await shift(valkeys[0], f"bursar:limit:{limit.name}:tokens", 3 * 3_600_000)

    await desk.admit(uuid7(), claims(who, limit, tokens=40))
    with pytest.raises(Refusal, match="tokens per minute") as refused:
        await desk.admit(uuid7(), claims(who, limit, tokens=40))
    assert 0 < (refused.value.retry_after_s or 0) <= WINDOW_S

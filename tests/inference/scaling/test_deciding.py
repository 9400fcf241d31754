"""How many replicas: against queues simulated answer by answer, and within the bounds whatever the figures are."""

from __future__ import annotations

import heapq
import math
import random
from collections import deque
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference.scaling.deciding import Bounds, Decision, Load, decide, needed, waits_with

OBJECTIVE_S = 0.5
LOADS = st.builds(
    Load,
    arrivals=st.floats(0, 5_000),
    service_s=st.floats(0, 600),
    places=st.integers(1, 4096),
    waiting=st.integers(0, 100_000),
    burn_long=st.floats(0, 1_000),
    burn_short=st.floats(0, 1_000),
)


def test_the_formula_has_the_values_of_the_tables() -> None:
    # Erlang C for 10 servers and 8 erlangs is 0.409 (tables of traffic theory); one server is M/M/1.
    assert waits_with(1, Load(8, 1, 10, 0)) == pytest.approx(0.409 * 1 / 2, rel=0.01)
    assert waits_with(1, Load(0.5, 1, 1, 0)) == pytest.approx(0.5 * 1 / 0.5)
    assert waits_with(1, Load(0, 1, 1, 4)) == pytest.approx(4)
    assert waits_with(1, Load(2, 1, 1, 0)) == math.inf


@given(LOADS, st.integers(1, 200))
def test_more_replicas_never_wait_longer(load: Load, replicas: int) -> None:
    fewer, more = waits_with(replicas, load), waits_with(replicas + 1, load)
    assert more <= fewer or more == pytest.approx(fewer, abs=1e-9)


@given(LOADS, st.integers(1, 60), st.integers(1, 60), st.integers(0, 80) | st.none(), st.integers(0, 60), st.booleans())
def test_it_is_always_within_its_bounds_and_says_which(
    load: Load, first: int, second: int, affordable: int | None, now: int, alerted: bool
) -> None:
    bounds = Bounds(min(first, second), max(first, second), affordable)
    decision = decide(load, bounds, now=now, objective_s=OBJECTIVE_S, before=[now], alerted=alerted)
    assert bounds.at_least <= decision.wanted <= bounds.at_most
    if affordable is not None:
        assert decision.wanted <= max(affordable, bounds.at_least)
    if decision.bound == "kept":
        assert decision.wanted == now
    if bounds.at_least <= now <= bounds.at_most and (affordable is None or now <= affordable):
        assert now // 2 <= decision.wanted <= max(2 * now, now + 1, bounds.at_least)


@given(LOADS, st.integers(1, 100))
def test_what_is_needed_suffices_and_one_fewer_does_not(load: Load, most: int) -> None:
    found = needed(load, OBJECTIVE_S, most)
    if found < most:
        assert waits_with(found, load) <= OBJECTIVE_S
    if found > 1:
        fewer = found - 1
        too_full = load.arrivals * load.service_s > 0.8 * fewer * load.places
        assert too_full or waits_with(fewer, load) > OBJECTIVE_S


def test_burning_and_alerts_add_one_that_the_load_does_not_ask_for() -> None:
    quiet = Load(1, 1, 10, 0)
    bounds = Bounds(1, 5)
    assert decide(quiet, bounds, now=2, objective_s=OBJECTIVE_S, before=[2]).wanted == 2
    burning = Load(1, 1, 10, 0, burn_long=15, burn_short=20)
    assert decide(burning, bounds, now=2, objective_s=OBJECTIVE_S, before=[2]) == Decision(3, "burn", 1, 0.0)
    only_long_ago = Load(1, 1, 10, 0, burn_long=15, burn_short=1)
    assert decide(only_long_ago, bounds, now=2, objective_s=OBJECTIVE_S, before=[2]).wanted == 2
    assert decide(quiet, bounds, now=2, objective_s=OBJECTIVE_S, before=[2], alerted=True).bound == "alert"
    assert decide(quiet, bounds, now=5, objective_s=OBJECTIVE_S, before=[5], alerted=True).wanted == 5


def test_money_ends_what_load_asks_for_and_availability_goes_before_it() -> None:
    busy = Load(100, 1, 10, 0)
    assert decide(busy, Bounds(1, 50, affordable=6), now=5, objective_s=OBJECTIVE_S) == Decision(
        6, "money", 13, math.inf
    )
    assert decide(busy, Bounds(2, 50, affordable=0), now=5, objective_s=OBJECTIVE_S).wanted == 2


class Fleet:
    """Places that answer one request each, looked at every 15 s; replicas take two minutes to come up."""

    STARTS_IN_S, LOOK_S, DOWN_AFTER_S, PLACES, SERVICE_S = 120.0, 15.0, 600.0, 10, 2.0

    def __init__(self, rate: Callable[[float], float], seconds: float, *, bounds: Bounds) -> None:
        self.waits: list[tuple[float, float]] = []
        self.changes: list[tuple[float, int]] = []
        self._rng = random.Random(7)
        self._run(rate, seconds, bounds)

    def _run(self, rate: Callable[[float], float], seconds: float, bounds: Bounds) -> None:
        wanted, ready, coming = 2, 2, deque[float]()
        busy: list[float] = []
        queue, looks, recent = deque[float](), deque[tuple[float, int]](), deque[float]()
        at = next_look = 0.0
        while at < seconds:
            at += self._rng.expovariate(rate(at))
            while next_look <= at:
                while coming and coming[0] <= next_look:
                    coming.popleft()
                    ready += 1
                while recent and recent[0] < next_look - 60:
                    recent.popleft()
                while looks and looks[0][0] < next_look - self.DOWN_AFTER_S:
                    looks.popleft()
                load = Load(len(recent) / min(60, max(next_look, 15)), self.SERVICE_S, self.PLACES, len(queue))
                whole = next_look >= self.DOWN_AFTER_S
                decision = decide(
                    load,
                    bounds,
                    now=wanted,
                    objective_s=OBJECTIVE_S,
                    before=[need for _, need in looks] if whole else [],
                )
                looks.append((next_look, decision.needed))
                if decision.wanted != wanted:
                    self.changes.append((next_look, decision.wanted))
                    for _ in range(decision.wanted - wanted):
                        coming.append(next_look + self.STARTS_IN_S)
                    for _ in range(wanted - decision.wanted):
                        if coming:
                            coming.pop()
                        else:
                            ready -= 1
                    wanted = decision.wanted
                next_look += self.LOOK_S
            recent.append(at)
            queue.append(at)
            while busy and busy[0] <= at:
                heapq.heappop(busy)
            while queue and len(busy) < ready * self.PLACES:
                came = queue.popleft()
                self.waits.append((came, at - came))
                heapq.heappush(busy, at + self._rng.expovariate(1 / self.SERVICE_S))

    def share_late(self, first: float, last: float) -> float:
        waits = [wait for came, wait in self.waits if first <= came < last]
        return sum(wait > OBJECTIVE_S for wait in waits) / len(waits)


WIDE = Bounds(2, 40)


def test_a_constant_load_is_followed_once_and_then_left_alone() -> None:
    fleet = Fleet(lambda _: 20.0, 7_200, bounds=WIDE)
    late = [at for at, _ in fleet.changes if at > 1_500]
    assert len(late) <= 1
    assert fleet.share_late(600, 7_200) < 0.02


def test_a_step_up_is_met_as_soon_as_replicas_have_started() -> None:
    fleet = Fleet(lambda at: 8.0 if at < 1_800 else 60.0, 5_400, bounds=WIDE)
    assert fleet.share_late(2_700, 5_400) < 0.05


def test_a_load_that_falls_away_is_followed_down_to_the_floor() -> None:
    fleet = Fleet(lambda at: 60.0 if at < 1_800 else 1.0, 7_200, bounds=WIDE)
    assert fleet.changes[-1][1] == 2
    assert all(at > 2_300 for at, _ in [change for change in fleet.changes if change[1] < 8 and change[0] > 1_800])


def test_a_load_that_comes_and_goes_within_the_time_to_wait_moves_little() -> None:
    fleet = Fleet(lambda at: 30.0 + 20.0 * math.sin(at / 60), 7_200, bounds=WIDE)
    downs = [
        now
        for (_, before), (at, now) in zip(fleet.changes, fleet.changes[1:], strict=False)
        if now < before and at > 1_800
    ]
    assert len(downs) <= 2


def test_a_spike_does_not_leave_its_replicas_for_ever() -> None:
    fleet = Fleet(lambda at: 100.0 if 1_800 < at < 1_860 else 10.0, 7_200, bounds=WIDE)
    peak = max(now for _, now in fleet.changes)
    assert peak > 4
    assert fleet.changes[-1][1] <= 4

"""A circuit breaker opens after failures, waits, lets a few probes through, and closes when they come back well."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule, run_state_machine_as_test

from inference.routing.breakers import (
    CONSECUTIVE_FAILURES,
    COOL_OFF_S,
    FORGIVEN_AFTER_S,
    MAX_COOL_OFF_S,
    MIN_CALLS,
    PROBE_TIMEOUT_S,
    PROBES,
    Breaker,
    State,
)


def fail(breaker: Breaker, at_s: float, times: int = CONSECUTIVE_FAILURES) -> None:
    for _ in range(times):
        assert breaker.admit(at_s)
        breaker.failed(at_s, at_s)


class Calls(RuleBasedStateMachine):
    """Calls in any order at any pace, each ended in any way or never."""

    def __init__(self) -> None:
        super().__init__()
        self.breaker = Breaker()
        self.at_s = 0.0
        self.opened_at_s: float | None = None
        self.probes: list[float] = []  # let through since it opened, and not heard of yet

    calls = Bundle("calls")

    @rule(seconds=st.sampled_from([0.0, 0.001, 0.3, 1.0, 5.0, 31.0]))
    def wait(self, seconds: float) -> None:
        self.at_s += seconds

    @rule(target=calls)
    def call(self) -> tuple[float, bool]:
        before, permitted = self.breaker.state(self.at_s), self.breaker.permits(self.at_s)
        admitted = self.breaker.admit(self.at_s)
        assert admitted is permitted
        if before is State.OPEN:
            assert not admitted
        if before is State.CLOSED:
            assert admitted
        if admitted and before is State.HALF_OPEN:
            self.probes.append(self.at_s)
        return self.at_s, admitted

    @rule(call=consumes(calls), ends=st.sampled_from(["succeeded", "failed", "abandoned"]))
    def end(self, call: tuple[float, bool], ends: str) -> None:
        began_s, admitted = call
        if not admitted:
            return
        if ends == "abandoned":
            self.breaker.abandoned(began_s)
        else:
            getattr(self.breaker, ends)(began_s, self.at_s)
        if began_s in self.probes:
            self.probes.remove(began_s)

    @invariant()
    def no_more_than_its_probes_are_out(self) -> None:
        if self.breaker.opened_at_s != self.opened_at_s:  # opened anew, or closed: another count begins
            self.opened_at_s, self.probes = self.breaker.opened_at_s, []
        living = [began_s for began_s in self.probes if self.at_s - began_s < PROBE_TIMEOUT_S]
        assert len(living) <= PROBES

    @invariant()
    def it_waits_no_longer_than_the_longest_cool_off(self) -> None:
        assert COOL_OFF_S <= self.breaker.cool_off_s <= MAX_COOL_OFF_S
        if self.breaker.opened_at_s is not None:
            assert self.breaker.state(self.breaker.opened_at_s + MAX_COOL_OFF_S) is State.HALF_OPEN


def test_it_never_lets_more_than_its_probes_through_while_half_open() -> None:
    run_state_machine_as_test(Calls, settings=settings(max_examples=150, stateful_step_count=60, deadline=None))


@given(st.integers(1, 60))
def test_a_crowd_that_waits_for_half_open_gets_its_probes_and_no_more(crowd: int) -> None:
    breaker = Breaker()
    fail(breaker, 0.0)
    assert sum(breaker.admit(COOL_OFF_S) for _ in range(crowd)) == min(crowd, PROBES)


def test_failures_in_a_row_open_it_and_its_probes_close_it() -> None:
    breaker = Breaker()
    fail(breaker, 10.0)
    assert breaker.state(10.0) is State.OPEN
    assert not breaker.admit(10.9)
    for number in range(PROBES):
        at_s = 11.0 + number
        assert breaker.state(at_s) is State.HALF_OPEN
        assert breaker.admit(at_s)
        breaker.succeeded(at_s, at_s + 0.5)
    assert breaker.state(14.0) is State.CLOSED


def test_a_share_of_failures_opens_it_and_a_few_among_many_do_not() -> None:
    mixed, mostly_well = Breaker(), Breaker()
    for number in range(MIN_CALLS):
        (mixed.failed if number % 2 else mixed.succeeded)(0.0, number / 100)
        (mostly_well.failed if number % 5 == 0 else mostly_well.succeeded)(0.0, number / 100)
    assert mixed.state(0.2) is State.OPEN
    assert mostly_well.state(0.2) is State.CLOSED


def test_old_failures_are_not_counted() -> None:
    breaker = Breaker()
    for number in range(MIN_CALLS - 1):
        breaker.failed(0.0, 0.0) if number % 2 else breaker.succeeded(0.0, 0.0)
    breaker.failed(60.0, 60.0)
    assert breaker.state(60.0) is State.CLOSED


def test_each_failed_probe_makes_the_wait_longer_up_to_the_longest() -> None:
    breaker, at_s, waits = Breaker(), 0.0, []
    fail(breaker, at_s)
    for _ in range(8):
        waits.append(breaker.cool_off_s)
        at_s += breaker.cool_off_s
        assert breaker.admit(at_s)
        breaker.failed(at_s, at_s)
    assert waits == [1.0, 2.0, 4.0, 8.0, 10.0, 10.0, 10.0, 10.0]


def test_what_opens_again_soon_stays_open_for_longer_and_later_is_forgiven() -> None:
    for pause_s, cool_off_s in ((5.0, 2 * COOL_OFF_S), (FORGIVEN_AFTER_S + 1, COOL_OFF_S)):
        breaker = Breaker()
        fail(breaker, 0.0)
        for _ in range(PROBES):
            breaker.admit(1.0)
            breaker.succeeded(1.0, 1.0)
        fail(breaker, 1.0 + pause_s)
        assert breaker.cool_off_s == cool_off_s


def test_answers_to_calls_from_before_it_opened_change_nothing() -> None:
    breaker = Breaker()
    assert breaker.admit(0.0)
    fail(breaker, 1.0)
    breaker.succeeded(0.0, 1.5)
    breaker.failed(0.0, 1.6)
    assert (breaker.state(1.9), breaker.cool_off_s) == (State.OPEN, COOL_OFF_S)


def test_a_probe_that_is_never_heard_of_gives_its_place_back() -> None:
    breaker = Breaker()
    fail(breaker, 0.0)
    assert [breaker.admit(1.0) for _ in range(PROBES + 1)] == [True] * PROBES + [False]
    breaker.abandoned(1.0)
    assert breaker.admit(1.5)
    assert not breaker.admit(2.0)
    assert breaker.admit(1.0 + PROBE_TIMEOUT_S)


def test_a_clock_that_goes_back_opens_nothing() -> None:
    breaker = Breaker()
    fail(breaker, 100.0)
    assert not breaker.admit(50.0)

"""What a process remembers of its attempts: who is at fault for an ending, and nothing twice."""

from __future__ import annotations

from uuid import UUID

import pytest

from inference.routing.breakers import CONSECUTIVE_FAILURES, COOL_OFF_S, PROBES, State
from inference.routing.live import FAULTS, LiveState


def send(live: LiveState, number: int, at_s: float = 0.0) -> UUID:
    exchange = UUID(int=number)
    assert live.begin(exchange, "d", 100, 0.0, at_s)
    return exchange


def fail(live: LiveState, code: str = "engine_failed") -> None:
    for number in range(CONSECUTIVE_FAILURES):
        live.ended(send(live, number), code, 0, 0.0)


@pytest.mark.parametrize("code", sorted(FAULTS))
def test_the_deployments_own_failures_open_its_breaker(code: str) -> None:
    live = LiveState()
    fail(live, code)
    assert live.breaker_state("d", 0.0) is State.OPEN
    assert not live.begin(UUID(int=99), "d", 100, 0.0, 0.5)


@pytest.mark.parametrize("code", ["cancelled", "broker_lost", "context_length_exceeded", "whatever"])
def test_what_is_not_its_fault_does_not(code: str) -> None:
    live = LiveState()
    fail(live, code)
    assert live.breaker_state("d", 0.0) is State.CLOSED
    assert live.outstanding("d") == 0


def test_a_probe_that_says_its_first_word_has_come_back() -> None:
    live = LiveState()
    fail(live)
    for number in range(PROBES):
        live.first_token(send(live, 100 + number, COOL_OFF_S), COOL_OFF_S + 0.1)
    assert live.breaker_state("d", COOL_OFF_S + 0.1) is State.CLOSED


def test_an_end_that_is_told_twice_counts_once() -> None:
    live = LiveState()
    exchange = send(live, 1)
    live.first_token(exchange, 0.2)
    live.ended(exchange, "", 10, 0.5)
    for code in ("", "engine_failed", "cancelled"):
        live.ended(exchange, code, 10, 0.6)
    live.first_token(exchange, 0.7)
    assert live.outstanding("d") == 0
    assert live.latency.of("d").ttft.overall.weight == 1

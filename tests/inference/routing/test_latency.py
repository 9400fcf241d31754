"""The latency model: what it knows of each prompt length, how fast it forgets, and that it stays sane for any input."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference.routing.latency import HALF_LIFE_S, LatencyModel, bucket_of, prior_ttft_ms


def answer(
    model: LatencyModel, at_s: float, ttft_ms: float, *, token_ms: float = 10.0, prompt: int = 400, tokens: int = 20
) -> None:
    exchange = uuid4()
    model.begin("d", exchange, prompt, 0.0, at_s)
    model.first_token("d", exchange, at_s + ttft_ms / 1000)
    model.end("d", exchange, tokens, at_s + (ttft_ms + token_ms * (tokens - 1)) / 1000)


def answers(model: LatencyModel, start_s: float, ttft_ms: float, *, count: int = 20, **more: float) -> float:
    """Four answers a second; the time of the last."""
    for number in range(count):
        answer(model, start_s + number / 4, ttft_ms, **more)  # type: ignore[arg-type]
    return start_s + count / 4


def ttft(model: LatencyModel, at_s: float, prompt: int = 400) -> float:
    return model.of("d").predict(prompt, at_s).ttft_ms


def test_it_predicts_what_it_has_measured() -> None:
    model = LatencyModel()
    at_s = answers(model, 0.0, 250.0, token_ms=12.0)
    prediction = model.of("d").predict(400, at_s)
    assert prediction.ttft_ms == pytest.approx(250, rel=0.1)
    assert prediction.token_ms == pytest.approx(12, rel=0.1)
    assert prediction.is_trusted


def test_prompt_lengths_are_told_apart_and_are_hints_for_each_other() -> None:
    model = LatencyModel()
    answers(model, 0.0, 100.0, prompt=100)
    at_s = answers(model, 0.0, 2_000.0, prompt=3_000)
    assert ttft(model, at_s, 100) == pytest.approx(100, rel=0.25)
    assert ttft(model, at_s, 3_000) == pytest.approx(2_000, rel=0.25)
    assert ttft(model, at_s, 1_500) > prior_ttft_ms(1_500)  # nobody asked so much, but it is slow at both ends


def test_few_samples_leave_doubt() -> None:
    model, fresh = LatencyModel(), LatencyModel().of("d").predict(400, 0.0)
    answer(model, 0.0, 180.0)
    one = model.of("d").predict(400, 1.0)
    at_s = answers(model, 1.0, 180.0)
    many = model.of("d").predict(400, at_s)
    spreads = [(each.ttft_high_ms - each.ttft_ms) / each.ttft_ms for each in (fresh, one, many)]
    assert spreads == sorted(spreads, reverse=True)
    assert (fresh.is_trusted, one.is_trusted, many.is_trusted) == (False, False, True)


def test_it_follows_a_slowdown_of_five_times_within_three_answers() -> None:
    model = LatencyModel()
    at_s = answers(model, 0.0, 200.0, count=40)
    for number in range(3):
        answer(model, at_s + number / 4, 1_000.0)
    assert ttft(model, at_s + 2) > 800
    back_s = answers(model, at_s + 2, 1_000.0)
    for number in range(3):
        answer(model, back_s + number / 4, 200.0)
    assert ttft(model, back_s + 1) < 300


def test_one_slow_answer_is_no_slowdown() -> None:
    model = LatencyModel()
    at_s = answers(model, 0.0, 200.0, count=40)
    answer(model, at_s, 2_000.0)
    assert ttft(model, at_s + 2) < 400


def test_first_tokens_that_do_not_come_are_a_measurement_too() -> None:
    model = LatencyModel()
    at_s = answers(model, 0.0, 200.0, count=40)
    model.begin("d", uuid4(), 400, 0.0, at_s)
    assert ttft(model, at_s + 2) < 250  # one may be lost
    model.begin("d", uuid4(), 400, 0.0, at_s)
    assert ttft(model, at_s + 0.1) < 250
    assert ttft(model, at_s + 2) > 1_500


def test_what_was_measured_long_ago_is_forgotten() -> None:
    model = LatencyModel()
    at_s = answers(model, 0.0, 3_000.0)
    later = model.of("d").predict(400, at_s + 12 * HALF_LIFE_S)
    assert later.ttft_ms < 2 * prior_ttft_ms(400)
    assert not later.is_trusted


def test_a_wait_in_the_queue_is_not_taken_for_slowness() -> None:
    model = LatencyModel()
    at_s = answers(model, 0.0, 200.0)
    for _ in range(5):
        exchange = uuid4()
        model.begin("d", exchange, 400, 3_000.0, at_s)
        model.first_token("d", exchange, at_s + 3.2)
        model.end("d", exchange, 20, at_s + 3.4)
    assert ttft(model, at_s + 4) < 800


def test_reading_changes_nothing_and_an_unknown_deployment_is_the_prior() -> None:
    model = LatencyModel()
    assert model.of("never seen").predict(400, 5.0).ttft_ms == prior_ttft_ms(400)
    assert model.of("never seen") is not model.of("never seen")


def test_what_it_is_told_twice_or_out_of_order_changes_nothing() -> None:
    model, exchange = LatencyModel(), UUID(int=1)
    model.first_token("d", exchange, 1.0)
    model.end("d", exchange, 5, 1.0)
    model.begin("d", exchange, 100, 0.0, 1.0)
    model.end("d", exchange, 5, 2.0)  # no first token: it says nothing of the engine
    model.end("d", exchange, 5, 3.0)
    assert model.of("d").predict(100, 3.0).samples == 0
    assert not model.of("d").outstanding


seconds = st.floats(0, 1e6)


@given(
    st.lists(st.tuples(seconds, seconds, st.integers(0, 100_000), st.integers(-1, 5_000)), max_size=30),
    seconds,
    st.integers(0, 100_000),
)
def test_predictions_are_positive_and_finite_for_any_clock_and_any_lengths(
    told: list[tuple[float, float, int, int]], at_s: float, prompt: int
) -> None:
    model = LatencyModel()
    for number, (began_s, first_s, length, tokens) in enumerate(told):
        model.begin("d", UUID(int=number), length, 0.0, began_s)
        model.first_token("d", UUID(int=number), first_s)
        model.end("d", UUID(int=number), tokens, first_s - 1)
    prediction = model.of("d").predict(prompt, at_s)
    assert 0 <= prediction.ttft_ms <= prediction.ttft_high_ms < 1e18
    assert 0 <= prediction.token_ms <= prediction.token_high_ms < 1e18
    assert 0 < model.answer_tokens(100, at_s) <= 100
    assert model.of("d").service_ms(at_s) >= 0


@given(st.integers(-5, 1_000_000), st.integers(-5, 1_000_000))
def test_longer_prompts_are_in_no_lower_bucket(one: int, other: int) -> None:
    assert bucket_of(min(one, other)) <= bucket_of(max(one, other))

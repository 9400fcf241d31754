"""What attempts are billed for together: the prompt once, every token of the answer once."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from gpu_workers.messages import Usage
from inference.attempts import AttemptRun, total_cost, usage_of
from inference.catalog import Prices
from tests.inference.routing.scenes import candidate

OWN = replace(candidate("own"), prices=Prices(Decimal(1), Decimal("0.1"), Decimal(10)))
DEAR = replace(candidate("dear"), prices=Prices(Decimal(2), Decimal("0.2"), Decimal(20)))
PROMPT = 100


def attempt(number: int, usage: Usage | None, after: int = 0, *, repeats: bool = False) -> AttemptRun:
    return AttemptRun(number, OWN, after_tokens=after, repeats=repeats, usage=usage)


def test_what_gave_nothing_costs_nothing_and_what_went_on_is_billed_with_what_it_went_on_after() -> None:
    attempts = [
        attempt(1, None),
        attempt(2, Usage(PROMPT, 0, 0)),
        attempt(3, Usage(PROMPT, 40, 7)),
        attempt(4, Usage(PROMPT + 7, 60, 5), after=7),
    ]
    assert usage_of(attempts) == Usage(PROMPT, 40, 12)
    assert total_cost(attempts) == (60 * 1 + 40 * Decimal("0.1") + 12 * 10) / Decimal(1_000_000)


def test_each_token_is_paid_at_the_price_of_where_it_was_made() -> None:
    second = attempt(2, Usage(PROMPT + 7, 0, 5), after=7)
    second.candidate = DEAR
    assert total_cost([attempt(1, Usage(PROMPT, 0, 7)), second]) == (PROMPT + 7 * 10 + 5 * 20) / Decimal(1_000_000)


def test_a_prompt_that_was_never_counted_is_counted_by_who_goes_on_and_without_the_answers_beginning() -> None:
    attempts = [attempt(1, Usage(0, 0, 7, estimated=True)), attempt(2, Usage(PROMPT + 7, PROMPT + 2, 5), after=7)]
    assert usage_of(attempts) == Usage(PROMPT, PROMPT, 12, estimated=True)


def test_the_whole_answer_said_again_is_paid_once() -> None:
    first = attempt(1, Usage(PROMPT, 0, 7))
    assert usage_of([first, attempt(2, Usage(PROMPT, 90, 12), after=7, repeats=True)]) == Usage(PROMPT, 90, 12)
    assert usage_of([first, attempt(2, Usage(PROMPT, 90, 3), after=7, repeats=True)]) == Usage(PROMPT, 0, 7)


def test_an_answer_without_any_count_is_an_estimate() -> None:
    assert usage_of([attempt(1, None)]) == Usage(0, 0, 0, estimated=True)
    assert usage_of([attempt(1, Usage(PROMPT, 0, 7)), attempt(2, None, after=7)]).estimated


@given(st.lists(st.integers(0, 20), min_size=1, max_size=6))
def test_however_often_an_answer_is_cut_it_costs_what_it_would_have_cost(made: list[int]) -> None:
    attempts, so_far = [], 0
    for number, tokens in enumerate(made, start=1):
        attempts.append(attempt(number, Usage(PROMPT + so_far, 0, tokens), after=so_far))
        so_far += tokens
    assert usage_of(attempts) == Usage(PROMPT, 0, so_far)
    assert total_cost(attempts) == total_cost([attempt(1, Usage(PROMPT, 0, so_far))])

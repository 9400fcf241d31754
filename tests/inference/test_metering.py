"""Costs are exact: to the last digit that a price has, for any count."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_workers.messages import Usage
from inference.budgets import NANO, Demand
from inference.metering import bounded, cost_of
from inference.snapshot import Prices

price = st.decimals(0, 999_999, places=6, allow_nan=False, allow_infinity=False)
tokens = st.integers(0, 10_000_000)


@given(st.builds(Prices, price, price, price), tokens, tokens, tokens)
def test_a_cost_is_exactly_its_tokens_at_their_prices(prices: Prices, fresh: int, cached: int, completion: int) -> None:
    usage = Usage(prompt_tokens=fresh + cached, cached_tokens=cached, completion_tokens=completion)
    parts = ((fresh, prices.input), (cached, prices.cached), (completion, prices.output))

    assert Fraction(cost_of(usage, prices)) == sum(count * Fraction(each) for count, each in parts) / 1_000_000


def test_cached_tokens_are_paid_once_and_at_their_own_price() -> None:
    prices = Prices(Decimal("2.50"), Decimal("1.25"), Decimal("10"))
    assert cost_of(Usage(1_000_000, 400_000, 0), prices) == Decimal("2.00")
    assert cost_of(Usage(3, 0, 7), prices) == Decimal("0.0000775")


def test_more_cached_tokens_than_prompt_tokens_never_pay_back() -> None:
    assert cost_of(Usage(5, 9, 0), Prices(Decimal(1), Decimal(0), Decimal(0))) == 0


@pytest.mark.parametrize(("usd", "billed"), [("0.5", "0.5"), ("1", "1"), ("1.000000000001", "1"), ("9000", "1")])
def test_an_engine_that_counts_what_nobody_asked_for_is_not_paid_for_it(usd: str, billed: str) -> None:
    assert bounded(Decimal(usd), Demand(10, NANO, 0)) == Decimal(billed)

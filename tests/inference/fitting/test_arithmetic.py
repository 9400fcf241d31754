"""On what a model fits: values worked by hand, and what must hold of every model and accelerator."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference.fitting.arithmetic import BITS_PER_WEIGHT, GB, NODE, Card, Load, fit, fit_all, fits, smallest_count

A100 = Card("A100 80 GB", 80 * GB, 2039 * GB, Decimal("1.90"), fp8_native=False, nvfp4_native=False)
B300 = Card("B300", 288 * GB, 8000 * GB, Decimal("8.00"), fp8_native=True, nvfp4_native=True)
LARGE = Load(2400 * GB, 95 * GB, "nvfp4", None, 131_072, 256)

loads = st.builds(
    Load,
    parameters_total=st.integers(10**6, 10**13),
    parameters_active=st.integers(10**6, 10**12),
    quantization=st.sampled_from(sorted(BITS_PER_WEIGHT)),
    kv_bytes_per_token=st.none() | st.integers(1, 10**7),
    tokens=st.integers(1, 10**6),
    concurrency=st.integers(1, 10_000),
)
cards = st.builds(
    Card,
    name=st.just("card"),
    memory=st.integers(GB, 1000 * GB),
    bandwidth=st.integers(GB, 10_000 * GB),
    usd_per_hour=st.decimals(0, 100, places=4),
    fp8_native=st.booleans(),
    nvfp4_native=st.booleans(),
)


@pytest.mark.parametrize(
    ("quantization", "expected"),
    [
        ("none", 8_000_000_000),  # 4·10⁹ * 2 bytes
        ("fp8", 4_000_976_563),  # 4·10⁹ * (8 + 1/512) bits, rounded up
        ("int4-awq", 2_078_125_000),  # 4·10⁹ * 4.15625 bits
        ("nvfp4", 2_250_000_000),  # 4·10⁹ * 4.5 bits
    ],
)
def test_weights_have_their_bits_and_scales(quantization: str, expected: int) -> None:
    assert Load(4 * GB, 4 * GB, quantization, None, 1, 1).weight_bytes == expected


def test_2400_billion_at_nvfp4_do_not_fit_on_eight_a100_and_do_on_eight_b300() -> None:
    assert LARGE.weight_bytes == 1350 * GB
    assert A100.usable * NODE == 544 * GB  # 8 * 80 * 0.85
    assert not fits(LARGE, A100, 8)
    on_a100 = fit(LARGE, A100)
    # 1,350 / 68 = 19.9: 20 of them, and whole nodes are 24.
    assert (on_a100.count, on_a100.nodes, on_a100.tensor_parallel, on_a100.fits_one_node) == (24, 3, 8, False)
    assert not on_a100.is_native
    on_b300 = fit(LARGE, B300)
    # 288 * 0.85 = 244.8, and 1,350 / 244.8 = 5.5: the next power of two is 8.
    assert (on_b300.count, on_b300.nodes, on_b300.fits_one_node, on_b300.is_native) == (8, 1, True, True)
    assert on_b300.usd_per_month == 8 * 8 * 730
    # 95·10⁹ * 4.5 / 8 bytes over 8 * 8·10¹² bytes a second
    assert on_b300.best_tpot_ms == pytest.approx(0.834961, rel=1e-5)


def test_the_cache_counts_for_every_token_of_every_answer() -> None:
    load = Load(4 * GB, 4 * GB, "fp8", 147_456, 32_768, 128)
    assert load.kv_bytes == 147_456 * 32_768 * 128 == 618_475_290_624
    assert smallest_count(load, A100) == 16  # 622.5 / 68 = 9.2: two nodes
    assert smallest_count(replace(load, concurrency=1), A100) == 1
    assert smallest_count(replace(load, kv_bytes_per_token=None), A100) == 1


@pytest.mark.parametrize(("usable_times", "count"), [(1, 1), (2, 2), (3, 4), (5, 8), (8, 8), (9, 16), (17, 24)])
def test_counts_are_powers_of_two_in_a_node_and_then_whole_nodes(usable_times: int, count: int) -> None:
    card = replace(A100, memory=100 * GB)
    load = Load(card.usable // 2 * usable_times, 1, "none", None, 1, 1)  # two bytes a weight: exactly so many cards
    assert smallest_count(load, card) == count


@pytest.mark.parametrize(
    ("quantization", "on_a100", "on_b300"),
    [("none", True, True), ("fp8", False, True), ("nvfp4", False, True), ("int4-awq", False, False)],
)
def test_what_the_hardware_cannot_compute_is_for_weights_only(quantization: str, on_a100: bool, on_b300: bool) -> None:
    assert (A100.is_native(quantization), B300.is_native(quantization)) == (on_a100, on_b300)


@given(loads, cards)
def test_the_smallest_count_fits_and_the_size_before_it_does_not(load: Load, card: Card) -> None:
    count = smallest_count(load, card)
    assert fits(load, card, count)
    before = count - NODE if count > NODE else count // 2
    assert before == 0 or not fits(load, card, before)


@given(loads, cards, st.integers(1, 200), st.integers(0, 200))
def test_more_accelerators_never_fit_less(load: Load, card: Card, count: int, more: int) -> None:
    assert fits(load, card, count + more) or not fits(load, card, count)


@given(loads, cards, st.integers(0, 10**9), st.integers(0, 100))
def test_a_larger_model_or_more_answers_never_need_fewer(load: Load, card: Card, weights: int, answers: int) -> None:
    larger = replace(load, parameters_total=load.parameters_total + weights, concurrency=load.concurrency + answers)
    assert smallest_count(larger, card) >= smallest_count(load, card)


@given(loads, st.lists(cards, min_size=1, max_size=8))
def test_the_cheapest_stands_first(load: Load, table: list[Card]) -> None:
    costs = [one.usd_per_month for one in fit_all(load, table)]
    assert costs == sorted(costs)
    assert len(costs) == len(table)

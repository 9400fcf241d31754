"""What is held covers the dearest way that an answer can go: no usage that the engine may report costs more."""

from __future__ import annotations

from decimal import Decimal
from uuid import UUID

from hypothesis import example, given
from hypothesis import strategies as st

from gpu_workers.identifiers import uuid7
from gpu_workers.messages import ChatMessage, Sampling, Usage
from inference.budgets import demand_of, nano
from inference.catalog import Candidate, Prices
from inference.events import Ask
from inference.metering import cost_of

price = st.decimals(0, 100, places=6, allow_nan=False, allow_infinity=False)
# What the template of Qwen2.5 makes of a prompt of one message: its own instructions and the marks around both.
QWEN_TEMPLATE_TOKENS = 29


def candidate(prices: Prices, context: int) -> Candidate:
    return Candidate(UUID(int=1), "d", "q", "m", "1", context, prices, True)


def ask(text: str, max_tokens: int) -> Ask:
    return Ask(uuid7(), "r", "http", None, (ChatMessage("user", text),), Sampling(max_tokens))


@given(
    st.builds(Prices, price, price, price),
    st.integers(1, 5000),
    st.integers(1, 5000),
    st.integers(1, 5000),
    st.integers(0, 5000),
    st.integers(0, 5000),
)
@example(Prices(Decimal(10), Decimal(10), Decimal(0)), 4096, 4096, 4000, 4000, 96)
def test_no_split_of_the_context_between_prompt_and_answer_costs_more_than_is_held(
    prices: Prices, context: int, max_tokens: int, characters: int, prompt: int, answer: int
) -> None:
    prompt = min(prompt, characters, context)
    answer = min(answer, max_tokens, context - prompt)
    held = demand_of(ask("x" * characters, max_tokens), [candidate(prices, context)])

    assert nano(cost_of(Usage(prompt, 0, answer), prices)) <= held.cost


def test_a_template_with_instructions_of_its_own_is_held_for() -> None:
    prices = Prices(Decimal(1), Decimal(1), Decimal(1))
    held = demand_of(ask("a", 1), [candidate(prices, 4096)])

    assert nano(cost_of(Usage(1 + QWEN_TEMPLATE_TOKENS, 0, 1), prices)) <= held.cost

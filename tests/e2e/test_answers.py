"""Answers over the socket, from question to receipt, through every process."""

from __future__ import annotations

from tests.client import text_of
from tests.stack import MODEL


async def test_an_answer_streams_in_order_and_ends_with_a_receipt(connect) -> None:
    client = await connect()

    events = await client.answer("why is the sky blue?", parameters={"max_tokens": 12})

    started, *deltas, finished = events
    assert [event["seq"] for event in events] == list(range(len(events)))
    assert started["type"] == "answer.started"
    assert started["model"] == MODEL
    assert started["simulated"] is True
    assert all(event["type"] == "answer.delta" for event in deltas)
    assert text_of(events) == "[simulated] this answer was not written by a model. it has the"
    assert finished["type"] == "answer.finished"
    assert finished["finish_reason"] == "length"
    assert finished["usage"]["completion_tokens"] == 12
    assert finished["receipt"]
    assert 0 < finished["ttft_ms"] <= finished["e2e_ms"]

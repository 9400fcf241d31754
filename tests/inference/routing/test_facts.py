"""What rules know of a request is what it, its caller and its inspection say."""

from __future__ import annotations

from uuid import uuid4

from gpu_workers.messages import ChatMessage, Sampling
from inference.events import Ask, Caller, Limits
from inference.routing.facts import facts_of


def test_a_request_brings_what_rules_ask_for() -> None:
    organisation, key, team, conversation = (uuid4() for _ in range(4))
    caller = Caller(organisation, None, key, Limits("API key", 1, 1), team, "developer")
    ask = Ask(
        uuid4(),
        "request",
        "http",
        "small",
        (ChatMessage("user", "x" * 9),),
        Sampling(max_tokens=7),
        priority="batch",
        tag="summary",
        previous_deployment="second",
        conversation_id=conversation,
        history=(ChatMessage("assistant", "y" * 8),),
    )

    facts = facts_of(ask, caller, ["PERSON", "PERSON", "CREDIT_CARD"])

    assert (facts.organisation, facts.team, facts.key) == (str(organisation), str(team), str(key))
    assert (facts.role, facts.tag, facts.priority, facts.model) == ("developer", "summary", "batch", "small")
    assert (facts.prompt_tokens, facts.max_tokens) == (5, 7)
    assert facts.findings == {"PERSON", "CREDIT_CARD"}
    assert (facts.conversation, facts.previous_deployment) == (conversation, "second")

"""What rules know of a request is what it, its caller and its inspection say."""

from __future__ import annotations

from uuid import uuid4

from gpu_workers.messages import ChatMessage, Sampling
from inference.events import Ask, Caller, Limits
from inference.routing.facts import facts_of
from inference.routing.rules import Conditions, failing_condition


def test_a_request_brings_what_rules_ask_for() -> None:
    organisation, key, team, conversation = (uuid4() for _ in range(4))
    caller = Caller(organisation, None, key, Limits("API key", 1, 1), team, "developer", "eu")
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
    assert facts.residency == "eu"
    assert (facts.conversation, facts.previous_deployment) == (conversation, "second")


def test_the_language_is_that_of_the_user_s_newest_message() -> None:
    messages = (ChatMessage("system", "You are the voice of the bank."), ChatMessage("user", "Was ist mit der Karte?"))
    ask = Ask(uuid4(), "request", "http", "small", messages, Sampling(max_tokens=7))

    facts = facts_of(ask)

    german = Conditions(languages=frozenset({"de"}))
    assert facts.language == "de"
    assert failing_condition(german, facts, frozenset()) is None
    assert failing_condition(Conditions(languages=frozenset({"en"})), facts, frozenset()) == "languages"

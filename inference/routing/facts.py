"""What routing knows of one request: the only thing of it that a decision depends on."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from decimal import Decimal
from uuid import UUID

from msgspec import Struct

from inference.events import Ask, Caller, Priority
from inference.routing.language import language_of

# No tokenizer runs here; English text has about four characters a token.
CHARS_PER_TOKEN = 4


class RequestFacts(Struct, frozen=True, kw_only=True):
    """Identifiers are written as text, as rules name them. What is not known is None and meets no condition on it.

    `language` is ISO 639-1, "" where it could not be told.
    `findings` are the entity types found in the prompt, `at` is aware UTC, `budget_left` is USD, and
    `previous_deployment` is where this conversation's last answer came from.
    """

    exchange_id: UUID
    at: datetime
    model: str | None = None
    prompt_tokens: int = 0
    max_tokens: int = 0
    organisation: str | None = None
    team: str | None = None
    key: str | None = None
    role: str | None = None
    tag: str | None = None
    language: str = ""
    priority: Priority = "interactive"
    findings: frozenset[str] = frozenset()
    residency: str | None = None
    budget_state: str = "calm"
    budget_left: Decimal | None = None
    conversation: UUID | None = None
    previous_deployment: str | None = None


def facts_of(ask: Ask, caller: Caller | None = None, findings: Iterable[str] = ()) -> RequestFacts:
    """What the request, its caller and the inspection of its prompt say; whoever knows more adds it."""
    characters = sum(len(message.content) for message in (*ask.history, *ask.messages))
    return RequestFacts(
        exchange_id=ask.exchange_id,
        at=datetime.now(UTC),
        model=ask.model,
        prompt_tokens=-(-characters // CHARS_PER_TOKEN),
        max_tokens=ask.sampling.max_tokens,
        priority=ask.priority,
        tag=ask.tag,
        language=_language(ask),
        role=caller.role if caller else None,
        previous_deployment=ask.previous_deployment,
        organisation=str(caller.organisation_id) if caller else None,
        team=str(caller.team_id) if caller and caller.team_id else None,
        key=str(caller.api_key_id) if caller and caller.api_key_id else None,
        residency=(caller.residency or None) if caller else None,
        findings=frozenset(findings),
        conversation=ask.conversation_id,
    )


def _language(ask: Ask) -> str:
    """That of the newest message of the user's; what was answered before says nothing of who asks."""
    asked = (message.content for message in reversed(ask.messages) if message.role == "user")
    return language_of(next(asked, ""))

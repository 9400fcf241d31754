"""Reads of conversations, each for one caller: what is not theirs does not exist for them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db.models import Q, QuerySet

from compliance.audit.models import Entry, EntryKind
from compliance.audit.queries import Turn, read_turns
from console.accounts.principal import Principal
from console.chat.models import Conversation
from console.chat.titles import open_title
from inference.exchange_models import Exchange
from inference.models import EngineKind

LISTED = 200
TURNS = 200


@dataclass(frozen=True, slots=True)
class ListedConversation:
    id: UUID
    title: str
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class ReadTurn:
    """One exchange of a conversation with its text. `exchange` holds the facts."""

    exchange: Exchange
    prompt: str | None
    answer: str | None
    receipt: UUID | None
    findings: dict[str, dict[str, int]]


def conversations_of(principal: Principal) -> QuerySet[Conversation]:
    """The caller's own conversations that they have not deleted: the one way to any of them."""
    mine = Q(user=principal.user_id) if principal.user_id else Q(api_key=principal.api_key_id)
    return Conversation.objects.filter(mine, organisation_id=principal.organisation_id, deleted_at=None)


def access_conversation_by_id(principal: Principal, conversation_id: UUID) -> Conversation | None:
    return conversations_of(principal).filter(pk=conversation_id).first()


def list_conversations(principal: Principal) -> list[ListedConversation]:
    """The newest, by their last change."""
    return [listed(row) for row in conversations_of(principal).order_by("-updated_at", "-id")[:LISTED]]


def listed(row: Conversation) -> ListedConversation:
    title = open_title(row.title, organisation_id=row.organisation_id, conversation_id=row.pk)
    return ListedConversation(row.pk, title, row.updated_at)


def read_conversation(conversation: Conversation) -> list[ReadTurn]:
    """The last turns in the order in which they were asked. Raises `PayloadBroken` where an entry was changed."""
    rows = Exchange.objects.filter(
        organisation_id=conversation.organisation_id, conversation_id=conversation.pk
    ).select_related("deployment")
    exchanges = list(rows.order_by("-opened_at", "-id")[:TURNS])[::-1]
    ids = [exchange.pk for exchange in exchanges]
    texts = read_turns(conversation.organisation_id, ids)
    entries = _entries(ids)
    return [_turn(exchange, texts.get(exchange.pk), entries.get(exchange.pk, {})) for exchange in exchanges]


def is_simulated(exchange: Exchange) -> bool:
    return exchange.deployment.engine == EngineKind.SIMULATED


def _turn(exchange: Exchange, text: Turn | None, entries: dict[str, Entry]) -> ReadTurn:
    intent, outcome = entries.get(EntryKind.INTENT), entries.get(EntryKind.OUTCOME)
    return ReadTurn(
        exchange,
        prompt=text.prompt if text else None,
        answer=text.answer if text else None,
        receipt=outcome.pk if outcome else None,
        findings={
            "prompt": intent.facts.get("prompt_findings", {}) if intent else {},
            "answer": outcome.facts.get("answer_findings", {}) if outcome else {},
        },
    )


def _entries(exchange_ids: list[UUID]) -> dict[UUID, dict[str, Entry]]:
    """Intents and outcomes without their payloads, by exchange and kind. An outcome is what a receipt names."""
    found: dict[UUID, dict[str, Entry]] = {}
    for entry in Entry.objects.filter(exchange_id__in=exchange_ids).defer("payload"):
        found.setdefault(entry.exchange_id, {})[entry.kind] = entry
    return found

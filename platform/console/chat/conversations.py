"""Conversations on the request's way: ownership, history and title without the ORM."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from compliance.audit.queries import SELECT_PAYLOADS, turns_from_rows
from compliance.audit.writer import Statement
from console.chat.titles import seal_title
from gpu_workers.messages import ChatMessage
from inference.errors import Refusal
from inference.events import Caller
from inference.snapshot import Pool

# Turns that are sent along; what does not fit the model's context is left out, oldest first.
MAX_TURNS = 20
CHARS_PER_TOKEN = 3

OWNED = (
    "SELECT 1 FROM chat_conversation WHERE id = %s AND organisation_id = %s AND deleted_at IS NULL"
    " AND user_id IS NOT DISTINCT FROM %s AND api_key_id IS NOT DISTINCT FROM %s"
)
TURNS = (
    "SELECT e.id, d.slug FROM inference_exchange e JOIN inference_deployment d ON d.id = e.deployment_id"
    " WHERE e.conversation_id = %s AND e.status IN ('finished', 'cancelled') ORDER BY e.opened_at DESC LIMIT %s"
)
# The title is set once; the first words of the first prompt, masked as the prompt was.
UPSERT = (
    "INSERT INTO chat_conversation (id, organisation_id, user_id, api_key_id, title, created_at, updated_at)"
    " VALUES (%s, %s, %s, %s, %s, now(), now())"
    " ON CONFLICT (id) DO UPDATE SET updated_at = now(), title = COALESCE(chat_conversation.title, excluded.title)"
    " WHERE chat_conversation.deleted_at IS NULL"
)


@dataclass(frozen=True, slots=True)
class History:
    """`deployment` is where the last turn was answered: its engine may still have the prompt's beginning."""

    messages: tuple[ChatMessage, ...] = ()
    exchange_ids: tuple[UUID, ...] = ()
    deployment: str | None = None


async def read_history(pool: Pool, conversation_id: UUID, caller: Caller, max_chars: int) -> History:
    """The last turns, oldest first. Raises `Refusal` where the conversation is not the caller's."""
    owner = [conversation_id, caller.organisation_id, caller.user_id, caller.api_key_id]
    async with pool.connection() as connection:
        if await (await connection.execute(OWNED, owner)).fetchone() is None:
            raise Refusal("conversation_not_found", "No such conversation.", param="conversation")
        found = await (await connection.execute(TURNS, [conversation_id, MAX_TURNS])).fetchall()
        ids = [row[0] for row in found]
        rows = await (await connection.execute(SELECT_PAYLOADS, [caller.organisation_id, ids])).fetchall()
    turns = turns_from_rows(caller.organisation_id, rows)
    kept: list[tuple[UUID, tuple[ChatMessage, ChatMessage]]] = []
    for exchange_id in ids:  # newest first
        turn = turns.get(exchange_id)
        if turn is None or not turn.answer:
            continue
        max_chars -= len(turn.prompt) + len(turn.answer)
        if max_chars < 0:
            break
        kept.insert(0, (exchange_id, (ChatMessage("user", turn.prompt), ChatMessage("assistant", turn.answer))))
    messages = tuple(message for _, pair in kept for message in pair)
    return History(messages, tuple(exchange_id for exchange_id, _ in kept), found[0][1] if found else None)


def touch_conversation(conversation_id: UUID, caller: Caller, title: str) -> Statement:
    """Create the conversation or move it to the top of the list."""
    sealed = seal_title(title, organisation_id=caller.organisation_id, conversation_id=conversation_id)
    values = (conversation_id, caller.organisation_id, caller.user_id, caller.api_key_id, sealed)
    return Statement(UPSERT, values)

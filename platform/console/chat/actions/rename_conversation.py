"""Rename a conversation of the caller's."""

from __future__ import annotations

from uuid import UUID

from console.accounts.principal import Principal
from console.chat.models import Conversation
from console.chat.queries import access_conversation_by_id
from console.chat.titles import seal_title


def rename_conversation(principal: Principal, conversation_id: UUID, title: str) -> Conversation | None:
    """The renamed conversation, or None if the caller has none of this id. Its place in the list stays."""
    conversation = access_conversation_by_id(principal, conversation_id)
    if conversation is None:
        return None
    conversation.title = seal_title(
        title, organisation_id=conversation.organisation_id, conversation_id=conversation.pk
    )
    conversation.save(update_fields=["title"])
    return conversation

"""Take a conversation out of the caller's list. Its exchanges and their record stay."""

from __future__ import annotations

from uuid import UUID

from django.db.models.functions import Now

from console.accounts.principal import Principal
from console.chat.queries import conversations_of


def delete_conversation(principal: Principal, conversation_id: UUID) -> bool:
    """Whether there was such a conversation. The title goes with it: nobody needs it any more."""
    return conversations_of(principal).filter(pk=conversation_id).update(deleted_at=Now(), title=None) > 0

"""Titles of conversations: sealed, since they begin as the first words of what somebody asked."""

from __future__ import annotations

from uuid import UUID

import structlog

from compliance.crypto import record_key

TABLE = "chat_conversation"
COLUMN = "title"
MAX_LENGTH = 120
UNTITLED = "New conversation"
UNREADABLE = "Unreadable title"

log = structlog.get_logger()


def seal_title(title: str, *, organisation_id: UUID, conversation_id: UUID) -> bytes:
    return record_key.seal_text(title, organisation_id=organisation_id, table=TABLE, column=COLUMN, row=conversation_id)


def open_title(sealed: bytes | memoryview | None, *, organisation_id: UUID, conversation_id: UUID) -> str:
    """The title. One that does not open is named so and logged: it must not hide the others of a list."""
    if sealed is None:
        return UNTITLED
    try:
        return record_key.open_text(
            bytes(sealed), organisation_id=organisation_id, table=TABLE, column=COLUMN, row=conversation_id
        )
    except record_key.PayloadBroken:
        log.error("title_broken", conversation_id=str(conversation_id))
        return UNREADABLE

"""Reads of the record: the turns of a conversation, opened for the one whose they are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import msgspec

from compliance.audit.entries import TABLE, IntentPayload, OutcomePayload
from compliance.audit.models import Entry, EntryKind
from compliance.crypto import record_key

SELECT_PAYLOADS = (
    "SELECT exchange_id, kind, id, payload FROM audit_entry"
    " WHERE organisation_id = %s AND exchange_id = ANY(%s) AND payload IS NOT NULL"
)


@dataclass(frozen=True, slots=True)
class Turn:
    """`answer` is None where nothing was released."""

    prompt: str
    answer: str | None


def read_turns(organisation_id: UUID, exchange_ids: Sequence[UUID]) -> dict[UUID, Turn]:
    """What was asked and answered in these exchanges. Raises `PayloadBroken` where an entry was changed."""
    entries = Entry.objects.filter(organisation_id=organisation_id, exchange_id__in=exchange_ids, payload__isnull=False)
    return turns_from_rows(organisation_id, entries.values_list("exchange_id", "kind", "id", "payload"))


def turns_from_rows(organisation_id: UUID, rows: Iterable[tuple[UUID, str, UUID, Any]]) -> dict[UUID, Turn]:
    """Turns from `SELECT_PAYLOADS` or its like, for readers on either side of async."""
    prompts: dict[UUID, str] = {}
    answers: dict[UUID, str] = {}
    key = record_key.current()
    for exchange_id, kind, entry_id, payload in rows:
        opened = key.open(payload, organisation_id=organisation_id, table=TABLE, column="payload", row=entry_id)
        if kind == EntryKind.INTENT:
            messages = msgspec.msgpack.decode(opened, type=IntentPayload).messages
            prompts[exchange_id] = next((m["content"] for m in reversed(messages) if m["role"] == "user"), "")
        elif kind == EntryKind.OUTCOME:
            answers[exchange_id] = msgspec.msgpack.decode(opened, type=OutcomePayload).answer
    return {exchange_id: Turn(prompt, answers.get(exchange_id)) for exchange_id, prompt in prompts.items()}

"""Entries of the record as statements: facts in clear, content sealed."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import msgspec
from psycopg.types.json import Jsonb

from compliance.audit.models import EntryKind
from compliance.audit.writer import Statement
from compliance.crypto import record_key

TABLE = "audit_entry"
INSERT = (
    "INSERT INTO audit_entry (id, organisation_id, exchange_id, kind, recorded_at, facts, payload, key_id)"
    " VALUES (%s, %s, %s, %s, %s, %s, %s, %s)"
)


class IntentPayload(msgspec.Struct, frozen=True):
    """What was asked, as it was sent to the model: personal data is already masked."""

    messages: list[dict[str, str]]
    history: list[UUID] = []
    parameters: dict[str, Any] = {}


class OutcomePayload(msgspec.Struct, frozen=True):
    """What was released to the user."""

    answer: str


def insert_entry(
    entry_id: UUID,
    *,
    organisation_id: UUID | None,
    exchange_id: UUID,
    kind: EntryKind,
    facts: Mapping[str, Any],
    payload: IntentPayload | OutcomePayload | None = None,
) -> Statement:
    """The statement that adds one entry. `facts` must hold no content: they lie in clear."""
    sealed, key_id = None, ""
    if payload is not None and organisation_id is not None:
        key = record_key.current()
        key_id = key.id
        sealed = key.seal(
            msgspec.msgpack.encode(payload),
            organisation_id=organisation_id,
            table=TABLE,
            column="payload",
            row=entry_id,
        )
    values = (entry_id, organisation_id, exchange_id, kind.value, datetime.now(UTC), Jsonb(facts), sealed, key_id)
    return Statement(INSERT, values)

"""Entries of the record: added and never changed, and their payloads bound to where they lie."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import pytest
from django.db import DatabaseError, connection, transaction

from compliance.audit.entries import IntentPayload, OutcomePayload, insert_entry
from compliance.audit.models import Entry, EntryKind
from compliance.audit.queries import read_turns
from compliance.crypto.record_key import PayloadBroken
from gpu_workers.identifiers import uuid7

pytestmark = pytest.mark.django_db
SECRET = "the patient is Jane Doe"


def add(
    organisation_id: UUID | None,
    exchange_id: UUID,
    kind: EntryKind = EntryKind.INTENT,
    payload: IntentPayload | OutcomePayload | None = None,
) -> UUID:
    entry_id = uuid7()
    statement = insert_entry(
        entry_id,
        organisation_id=organisation_id,
        exchange_id=exchange_id,
        kind=kind,
        facts={"caller": "user:1"},
        payload=payload,
    )
    with connection.cursor() as cursor:
        cursor.execute(statement.sql, statement.values)
    return entry_id


def ask(organisation_id: UUID, exchange_id: UUID, text: str = SECRET) -> UUID:
    return add(organisation_id, exchange_id, payload=IntentPayload([{"role": "user", "content": text}]))


def sql(statement: str) -> Callable[[Entry], object]:
    def run(entry: Entry) -> None:
        with connection.cursor() as cursor:
            cursor.execute(statement.replace(":id", f"'{entry.pk}'"))

    return run


def save(entry: Entry) -> None:
    entry.facts = {"caller": "somebody else"}
    entry.save()


def bulk_update(entry: Entry) -> None:
    entry.kind = EntryKind.REFUSAL
    Entry.objects.bulk_update([entry], ["kind"])


def bulk_create(entry: Entry) -> None:
    Entry.objects.bulk_create([entry], update_conflicts=True, update_fields=["facts"], unique_fields=["id"])


CHANGES = {
    "save": save,
    "delete": lambda entry: entry.delete(),
    "update of a queryset": lambda entry: Entry.objects.filter(pk=entry.pk).update(facts={}),
    "delete of a queryset": lambda entry: Entry.objects.all().delete(),
    "raw delete": lambda entry: Entry.objects.all()._raw_delete("default"),
    "bulk_update": bulk_update,
    "bulk_create": bulk_create,
    "update_or_create": lambda entry: Entry.objects.update_or_create(pk=entry.pk, defaults={"facts": {}}),
    "UPDATE": sql("UPDATE audit_entry SET facts = '{}'"),
    "UPDATE to the same": sql("UPDATE audit_entry SET kind = kind WHERE id = :id"),
    "DELETE": sql("DELETE FROM audit_entry WHERE id = :id"),
    "TRUNCATE": sql("TRUNCATE audit_entry"),
    "TRUNCATE with others": sql("TRUNCATE audit_entry, chat_conversation CASCADE"),
    "DO UPDATE": sql(
        "INSERT INTO audit_entry SELECT * FROM audit_entry WHERE id = :id"
        " ON CONFLICT (id) DO UPDATE SET facts = '{\"a\": 1}'"
    ),
    "MERGE": sql("MERGE INTO audit_entry a USING (SELECT 1) b ON a.id = :id WHEN MATCHED THEN DELETE"),
    "WITH": sql("WITH gone AS (DELETE FROM audit_entry RETURNING 1) SELECT count(*) FROM gone"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_an_entry_cannot_be_changed_or_removed(change: Callable[[Entry], object]) -> None:
    organisation_id, exchange_id = uuid7(), uuid7()
    entry = Entry.objects.get(pk=ask(organisation_id, exchange_id))
    before = list(Entry.objects.values())

    with pytest.raises(DatabaseError, match="append-only"), transaction.atomic():
        change(entry)

    assert list(Entry.objects.values()) == before


def test_an_exchange_has_one_entry_of_a_kind() -> None:
    organisation_id, exchange_id = uuid7(), uuid7()
    ask(organisation_id, exchange_id)
    with pytest.raises(DatabaseError, match="entry_once"), transaction.atomic():
        ask(organisation_id, exchange_id)
    add(organisation_id, exchange_id, EntryKind.OUTCOME, OutcomePayload("fine"))

    turn = read_turns(organisation_id, [exchange_id])[exchange_id]
    assert (turn.prompt, turn.answer) == (SECRET, "fine")


def test_a_payload_lies_sealed_and_its_entry_names_the_key() -> None:
    entry = Entry.objects.get(pk=ask(uuid7(), uuid7()))

    assert entry.key_id
    assert b"Jane" not in bytes(entry.payload)
    assert "Jane" not in str(entry.facts)


def copy_payload(source: UUID, organisation_id: UUID, exchange_id: UUID) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO audit_entry (id, organisation_id, exchange_id, kind, facts, payload, key_id)"
            " SELECT %s, %s, %s, kind, facts, payload, key_id FROM audit_entry WHERE id = %s",
            [uuid7(), organisation_id, exchange_id, source],
        )


def test_a_payload_that_was_copied_to_another_row_or_organisation_does_not_open() -> None:
    organisation_id, exchange_id = uuid7(), uuid7()
    source = ask(organisation_id, exchange_id)

    for moved_to in (organisation_id, uuid7()):
        other = uuid7()
        copy_payload(source, moved_to, other)
        with pytest.raises(PayloadBroken) as caught:
            read_turns(moved_to, [other])
        assert "Jane" not in repr(caught.value)


def test_turns_of_another_organisation_are_not_read() -> None:
    organisation_id, exchange_id = uuid7(), uuid7()
    ask(organisation_id, exchange_id)
    assert read_turns(uuid7(), [exchange_id]) == {}

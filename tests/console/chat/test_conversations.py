"""Conversations over /api: listed, read, renamed and deleted by the one whose they are."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any
from uuid import UUID

import msgspec
import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from compliance.audit.entries import TABLE, IntentPayload, OutcomePayload
from compliance.audit.models import Entry
from compliance.crypto import record_key
from console.accounts.models import Organisation, User
from console.chat.models import Conversation
from console.chat.titles import seal_title
from gpu_workers.identifiers import uuid7
from inference.exchange_models import Exchange
from tests.console import people

pytestmark = pytest.mark.django_db
PATH = "/api/conversations"


@pytest.fixture
def acme() -> Organisation:
    return people.organisation("Acme")


@pytest.fixture
def user(acme: Organisation, client: Client) -> User:
    someone = people.member(acme)
    client.force_login(someone)
    return someone


def begin(of: Organisation, title: str | None = None, **owner: Any) -> Conversation:
    row = Conversation(organisation=of, **owner)
    if title is not None:
        row.title = seal_title(title, organisation_id=of.pk, conversation_id=row.pk)
    row.save()
    row.refresh_from_db()
    return row


def record(exchange: Exchange, kind: str, payload: IntentPayload | OutcomePayload) -> UUID:
    entry_id = uuid7()
    place = {"organisation_id": exchange.organisation_id, "table": TABLE, "column": "payload", "row": entry_id}
    sealed = record_key.current().seal(msgspec.msgpack.encode(payload), **place)
    Entry.objects.create(
        id=entry_id,
        organisation_id=exchange.organisation_id,
        exchange_id=exchange.pk,
        kind=kind,
        facts={},
        payload=sealed,
    )
    return entry_id


def say(conversation: Conversation, prompt: str, answer: str | None, **fields: Any) -> tuple[Exchange, UUID | None]:
    """An exchange of this conversation and, where it was answered, its receipt."""
    exchange = people.exchange(
        conversation.organisation, people.deployment(), conversation_id=conversation.pk, **fields
    )
    record(exchange, "intent", IntentPayload(messages=[{"role": "user", "content": prompt}]))
    return exchange, None if answer is None else record(exchange, "outcome", OutcomePayload(answer=answer))


def error(response: Any) -> tuple[int, str, str | None]:
    body = response.json()["error"]
    assert set(body) == {"message", "type", "param", "code"}
    return response.status_code, body["code"], body["param"]


def patch(client: Client, conversation: Conversation | str, body: Any, **options: Any) -> Any:
    identifier = conversation if isinstance(conversation, str) else conversation.pk
    data = body if isinstance(body, bytes | str) else json.dumps(body)
    return client.patch(f"{PATH}/{identifier}", data, content_type="application/json", **options)


def test_it_lists_the_callers_own_newest_first(client: Client, user: User, acme: Organisation) -> None:
    now = timezone.now()
    for days, title in ((3, "oldest"), (1, "newest"), (2, None)):
        begin(acme, title, user=user, updated_at=now - timedelta(days=days))
    begin(acme, "a colleague's", user=people.member(acme))
    begin(acme, "a program's", api_key=people.api_key(acme)[0])
    begin(acme, "deleted", user=user, deleted_at=now)
    listed = client.get(PATH).json()["conversations"]
    assert [row["title"] for row in listed] == ["newest", "New conversation", "oldest"]
    assert set(listed[0]) == {"id", "title", "updated_at"}


def test_it_lists_200_at_most_without_a_query_for_each(client: Client, user: User, acme: Organisation) -> None:
    Conversation.objects.bulk_create(Conversation(organisation=acme, user=user) for _ in range(201))
    with CaptureQueriesContext(connection) as captured:
        assert len(client.get(PATH).json()["conversations"]) == 200
    assert len(captured) <= 4


def test_a_title_that_was_tampered_with_hides_no_other(client: Client, user: User, acme: Organisation) -> None:
    begin(acme, "first", user=user)
    moved = begin(acme, "second", user=user)
    Conversation.objects.filter(pk=moved.pk).update(title=b"\x01" + bytes(40))
    titles = {row["title"] for row in client.get(PATH).json()["conversations"]}
    assert titles == {"first", "Unreadable title"}


def test_it_reads_the_turns_in_order_with_their_receipts(client: Client, user: User, acme: Organisation) -> None:
    conversation = begin(acme, "The sky", user=user)
    earlier = timezone.now() - timedelta(minutes=5)
    first, receipt = say(conversation, "Why is it blue?", "Scattering.", user=user, opened_at=earlier)
    unanswered = {"status": "failed", "error_code": "engine_failed", "finish_reason": "", "prompt_tokens": None}
    say(conversation, "And red?", None, user=user, **unanswered)
    body = client.get(f"{PATH}/{conversation.pk}").json()
    assert (body["id"], body["title"]) == (str(conversation.pk), "The sky")
    answered, failed = body["turns"]
    assert answered == {
        "exchange": str(first.pk),
        "prompt": "Why is it blue?",
        "answer": "Scattering.",
        "status": "finished",
        "finish_reason": "stop",
        "error_code": None,
        "model": "simulated",
        "simulated": True,
        "receipt": str(receipt),
        "usage": {
            "prompt_tokens": 12,
            "cached_tokens": 4,
            "completion_tokens": 30,
            "total_tokens": 42,
            "cost_usd": "0.0000012",
        },
        "ttft_ms": 41.5,
        "e2e_ms": 180.25,
        "at": earlier.isoformat().replace("+00:00", "Z"),
        "findings": {"prompt": {}, "answer": {}},
    }
    assert (failed["prompt"], failed["answer"], failed["usage"]) == ("And red?", None, None)
    assert (failed["status"], failed["error_code"], failed["receipt"]) == ("failed", "engine_failed", None)


def test_reading_takes_as_many_queries_for_many_turns_as_for_few(
    client: Client, user: User, acme: Organisation
) -> None:
    conversation = begin(acme, user=user)

    def queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            assert client.get(f"{PATH}/{conversation.pk}").status_code == 200
        return len(captured)

    say(conversation, "one", "1", user=user)
    few = queries()
    for _ in range(10):
        say(conversation, "more", "2", user=user)
    assert queries() == few


def test_a_record_that_was_changed_is_not_shown_as_if_it_were_whole(
    client: Client, user: User, acme: Organisation
) -> None:
    conversation = begin(acme, user=user)
    say(conversation, "question", "answer", user=user)
    place = {"organisation_id": acme.pk, "table": TABLE, "column": "payload", "row": uuid7()}
    exchange = people.exchange(acme, people.deployment(), conversation_id=conversation.pk)
    Entry.objects.create(
        organisation_id=acme.pk,
        exchange_id=exchange.pk,
        kind="intent",
        facts={},
        payload=record_key.current().seal(b"moved from another row", **place),
    )
    assert error(client.get(f"{PATH}/{conversation.pk}"))[:2] == (500, "internal_error")


def test_it_renames(client: Client, user: User, acme: Organisation) -> None:
    conversation = begin(acme, "before", user=user)
    response = patch(client, conversation, {"title": "  Grüße 👋  "})
    assert response.status_code == 200
    assert response.json()["title"] == "Grüße 👋"
    row = Conversation.objects.get(pk=conversation.pk)
    assert "Grüße".encode() not in bytes(row.title)
    assert row.updated_at == conversation.updated_at
    assert client.get(PATH).json()["conversations"][0]["title"] == "Grüße 👋"


@pytest.mark.parametrize(
    ("body", "code", "param"),
    [
        ({}, "invalid_value", "title"),
        ({"title": ""}, "invalid_value", "title"),
        ({"title": " \t\n"}, "invalid_value", "title"),
        ({"title": "x" * 121}, "invalid_value", "title"),
        ({"title": "x" * 200_000}, "invalid_value", "title"),
        ({"title": None}, "invalid_value", "title"),
        ({"title": 7}, "invalid_value", "title"),
        ({"title": True}, "invalid_value", "title"),
        ({"title": ["a"]}, "invalid_value", "title"),
        ({"title": "a\x00b"}, "invalid_value", "title"),
        (b'{"title": "a\\ud800b"}', "invalid_value", "title"),
        ({"title": "a", "organisation": "b"}, "invalid_value", "organisation"),
        ([], "invalid_value", None),
        ('"title"', "invalid_value", None),
        ("null", "invalid_value", None),
        (b'{"title": ', "invalid_json", None),
        (b'{"title": NaN}', "invalid_json", None),
        (b'{"title": "\xff\xfe"}', "invalid_json", None),
        (b"[" * 100_000, "invalid_json", None),
        (b"", "missing_body", None),
    ],
)
def test_it_refuses_what_is_no_title(
    client: Client, user: User, acme: Organisation, body: Any, code: str, param: str | None
) -> None:
    conversation = begin(acme, "kept", user=user)
    assert error(patch(client, conversation, body)) == (400, code, param)
    assert client.get(PATH).json()["conversations"][0]["title"] == "kept"


def test_it_refuses_a_body_over_a_mebibyte(client: Client, user: User, acme: Organisation) -> None:
    conversation = begin(acme, user=user)
    assert error(patch(client, conversation, {"title": "x" * 1_100_000}))[:2] == (413, "body_too_large")


def test_it_refuses_another_content_type(client: Client, user: User, acme: Organisation) -> None:
    conversation = begin(acme, user=user)
    response = client.patch(f"{PATH}/{conversation.pk}", "title=x", content_type="application/x-www-form-urlencoded")
    assert error(response)[:2] == (400, "unsupported")


def test_deleting_hides_a_conversation_and_keeps_its_record(client: Client, user: User, acme: Organisation) -> None:
    conversation = begin(acme, "gone", user=user)
    say(conversation, "question", "answer", user=user)
    response = client.delete(f"{PATH}/{conversation.pk}")
    assert (response.status_code, response.content) == (204, b"")
    assert client.get(PATH).json() == {"conversations": []}
    assert error(client.get(f"{PATH}/{conversation.pk}"))[:2] == (404, "conversation_not_found")
    assert error(client.delete(f"{PATH}/{conversation.pk}"))[:2] == (404, "conversation_not_found")
    assert Entry.objects.count() == 2
    assert Conversation.objects.get(pk=conversation.pk).deleted_at is not None


@pytest.mark.parametrize("whose", ["unknown", "malformed", "colleague", "program", "stranger", "former"])
def test_what_is_not_the_callers_is_as_unknown_as_what_never_was(
    client: Client, user: User, acme: Organisation, whose: str
) -> None:
    globex = people.organisation("Globex")
    identifiers = {
        "unknown": lambda: str(uuid7()),
        "malformed": lambda: "7",
        "colleague": lambda: str(begin(acme, "x", user=people.member(acme)).pk),
        "program": lambda: str(begin(acme, "x", api_key=people.api_key(acme)[0]).pk),
        "stranger": lambda: str(begin(globex, "x", user=people.member(globex)).pk),
        "former": lambda: str(begin(globex, "x", user=user).pk),  # from when they belonged there
    }
    identifier = identifiers[whose]()
    expected = (404, "conversation_not_found", "conversation")
    answers = [
        client.get(f"{PATH}/{identifier}"),
        patch(client, identifier, {"title": "mine"}),
        client.delete(f"{PATH}/{identifier}"),
    ]
    assert [error(answer) for answer in answers] == [expected] * 3
    assert len({answer.content for answer in answers}) == 1
    assert not Conversation.objects.exclude(deleted_at=None).exists()

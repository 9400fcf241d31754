"""Who may call /api: sessions with their CSRF token and API keys, each for what is theirs."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import OperationalError
from django.test import Client
from django.utils import timezone
from drf_spectacular.generators import SchemaGenerator

from console import urls
from console.accounts.models import Organisation, User
from console.chat.models import Conversation
from tests.console import people

pytestmark = pytest.mark.django_db
PATH = "/api/conversations"


@pytest.fixture
def acme() -> Organisation:
    return people.organisation("Acme")


def test_a_key_sees_the_conversations_it_began(client: Client, acme: Organisation) -> None:
    row, key = people.api_key(acme)
    _, other = people.api_key(acme)
    Conversation.objects.create(organisation=acme, api_key=row)
    assert len(client.get(PATH, headers=people.bearer(key)).json()["conversations"]) == 1
    assert client.get(PATH, headers=people.bearer(other)).json() == {"conversations": []}


@pytest.mark.parametrize("path", [PATH, f"{PATH}/7", "/api/models"])
@pytest.mark.parametrize("state", ["none", "unknown", "malformed", "revoked", "expired", "inactive", "empty"])
def test_whoever_is_not_known_is_refused(client: Client, acme: Organisation, path: str, state: str) -> None:
    now = timezone.now()
    keys = {
        "revoked": lambda: people.api_key(acme, revoked_at=now)[1],
        "expired": lambda: people.api_key(acme, expires_at=now - timedelta(seconds=1))[1],
        "inactive": lambda: people.api_key(people.organisation(is_active=False))[1],
        "unknown": lambda: f"bsk_{'u' * 43}",
        "malformed": lambda: "sk-1234",
        "empty": lambda: "",
    }
    headers = {} if state == "none" else people.bearer(keys[state]())
    response = client.get(path, headers=headers)
    assert response.status_code == 401
    assert response.json()["error"]["code"] == "invalid_api_key"
    assert response["WWW-Authenticate"] == "Bearer"


def test_a_key_that_has_not_expired_is_good(client: Client, acme: Organisation) -> None:
    _, key = people.api_key(acme, expires_at=timezone.now() + timedelta(hours=1))
    assert client.get(PATH, headers=people.bearer(key)).status_code == 200


def test_a_bad_key_is_refused_whatever_session_comes_with_it(client: Client, acme: Organisation) -> None:
    client.force_login(people.member(acme))
    assert client.get(PATH, headers=people.bearer("nonsense")).status_code == 401


def test_a_session_changes_nothing_without_its_csrf_token(acme: Organisation) -> None:
    client = Client(enforce_csrf_checks=True)
    user = people.member(acme)
    client.force_login(user)
    conversation = Conversation.objects.create(organisation=acme, user=user)
    for answer in (client.delete(f"{PATH}/{conversation.pk}"), client.post("/api/chat/ticket")):
        assert answer.status_code == 403
        assert answer.json()["error"]["code"] == "permission_denied"
    assert Conversation.objects.get().deleted_at is None


def test_a_session_with_its_csrf_token_may(acme: Organisation) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(people.member(acme))
    client.get("/sign-in")
    token = client.cookies["csrftoken"].value
    assert client.generic("POST", "/api/chat/ticket", headers={"x-csrftoken": token}).status_code == 200


def test_a_key_needs_no_csrf_token(acme: Organisation) -> None:
    client = Client(enforce_csrf_checks=True)
    assert client.post("/api/chat/ticket", headers=people.bearer(people.api_key(acme)[1])).status_code == 200


def test_somebody_without_an_organisation_is_told_so(client: Client) -> None:
    client.force_login(User.objects.create(username="nobody"))
    response = client.get(PATH)
    assert (response.status_code, response.json()["error"]["type"]) == (403, "permission_error")


@pytest.mark.parametrize(("method", "path"), [("POST", PATH), ("PUT", f"{PATH}/7"), ("GET", "/api/chat/ticket")])
def test_another_method_is_refused(client: Client, acme: Organisation, method: str, path: str) -> None:
    client.force_login(people.member(acme))
    response = client.generic(method, path)
    assert (response.status_code, response.json()["error"]["code"]) == (405, "method_not_allowed")


def test_a_database_that_is_gone_is_said_to_be(
    client: Client, acme: Organisation, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OperationalError("connection to server at 10.0.0.5 failed")

    _, key = people.api_key(acme)
    monkeypatch.setattr("console.chat.queries.list_conversations", fail)
    response = client.get(PATH, headers=people.bearer(key))
    assert (response.status_code, response.json()["error"]["code"]) == (503, "audit_unavailable")
    assert int(response["Retry-After"]) > 0
    assert b"10.0.0.5" not in response.content


def test_the_schema_describes_every_call_without_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    schema = SchemaGenerator(patterns=urls.api).get_schema(request=None, public=True)  # type: ignore[no-untyped-call]
    assert set(schema["paths"]) == {PATH, f"{PATH}/{{conversation_id}}", "/api/chat/ticket", "/api/models"}
    printed = capsys.readouterr()
    assert "Warning" not in printed.err
    assert "Error" not in printed.err

"""The admin of the catalog and of what happened: facts for those who may see them, content for nobody, no changes."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from compliance.audit.models import Entry
from console.accounts.models import Organisation, Role
from console.chat.models import Conversation
from console.chat.titles import seal_title
from gpu_workers.identifiers import uuid7
from inference.exchange_models import Exchange
from inference.models import ModelVersion
from tests.console import people

pytestmark = pytest.mark.django_db
EXCHANGES, ENTRIES = "/admin/inference/exchange/", "/admin/audit/entry/"
CONVERSATIONS, DEPLOYMENTS = "/admin/chat/conversation/", "/admin/inference/deployment/"
VERSIONS = "/admin/inference/modelversion/"
RECORDS = [EXCHANGES, ENTRIES, CONVERSATIONS]
TITLE = "Lump in my left breast"


@pytest.fixture
def acme() -> Organisation:
    return people.organisation("Acme")


@pytest.fixture
def enter(acme: Organisation) -> Callable[[str], Client]:
    def _enter(role: str) -> Client:
        client = Client()
        client.force_login(people.superuser(acme) if role == "superuser" else people.member(acme, role))
        return client

    return _enter


def happen(of: Organisation) -> dict[str, str]:
    """One conversation of one exchange with its entry, each as the path of its page in the admin."""
    conversation = Conversation(organisation=of, user=people.member(of))
    conversation.title = seal_title(TITLE, organisation_id=of.pk, conversation_id=conversation.pk)
    conversation.save()
    exchange = people.exchange(
        of, people.deployment(), user=conversation.user, conversation_id=conversation.pk, prompt_findings=7
    )
    entry = Entry.objects.create(
        organisation_id=of.pk,
        exchange_id=exchange.pk,
        kind="intent",
        facts={"model": "simulated", "note": "<b>fact</b>"},
        payload=b"sealed-bytes",
        key_id="k1",
    )
    return {
        EXCHANGES: f"{EXCHANGES}{exchange.pk}/",
        ENTRIES: f"{ENTRIES}{entry.pk}/",
        CONVERSATIONS: f"{CONVERSATIONS}{conversation.pk}/",
    }


@pytest.mark.parametrize("role", ["superuser", Role.ADMINISTRATOR, Role.OFFICER])
def test_it_shows_facts_and_no_content(enter: Callable[[str], Client], acme: Organisation, role: str) -> None:
    paths = happen(acme)
    client = enter(role)
    for path in [*RECORDS, *(f"{page}change/" for page in paths.values())]:
        response = client.get(path)
        assert response.status_code == 200, path
        page = response.content.decode()
        assert TITLE not in page
        assert "sealed-bytes" not in page
        assert "sealed" not in page or path.startswith(ENTRIES)


def test_an_exchange_shows_its_route_attempts_time_and_use(enter: Callable[[str], Client], acme: Organisation) -> None:
    page = enter(Role.OFFICER).get(f"{happen(acme)[EXCHANGES]}change/").content.decode()
    for shown in ("gpu-host-1", "simulated-local", "180.25", "0.0000012", "request-", "Finished"):
        assert shown in page, shown


def test_an_entry_shows_its_facts_escaped_and_how_large_its_payload_is(
    enter: Callable[[str], Client], acme: Organisation
) -> None:
    page = enter(Role.OFFICER).get(f"{happen(acme)[ENTRIES]}change/").content.decode()
    assert "&lt;b&gt;fact" in page
    assert "12 bytes" in page


def test_a_payload_is_not_even_fetched(enter: Callable[[str], Client], acme: Organisation) -> None:
    paths = happen(acme)
    client = enter("superuser")
    with CaptureQueriesContext(connection) as captured:
        client.get(ENTRIES)
        client.get(f"{paths[ENTRIES]}change/")
        client.get(CONVERSATIONS)
        client.get(f"{paths[CONVERSATIONS]}change/")
    statements = [query["sql"] for query in captured]
    assert any("audit_entry" in sql for sql in statements)
    assert not [sql for sql in statements if re.search(r'"audit_entry"\."payload",|"chat_conversation"\."title"', sql)]


@pytest.mark.parametrize("role", ["superuser", Role.ADMINISTRATOR, Role.OFFICER])
def test_nobody_adds_changes_or_deletes_a_record(enter: Callable[[str], Client], acme: Organisation, role: str) -> None:
    paths = happen(acme)
    client = enter(role)
    for path in RECORDS:
        assert client.get(f"{path}add/").status_code == 403
        assert client.post(f"{path}add/", {}).status_code == 403
        assert client.post(f"{paths[path]}change/", {"status": "failed"}).status_code == 403
        assert client.post(f"{paths[path]}delete/", {"post": "yes"}).status_code == 403
        client.post(path, {"action": "delete_selected", "_selected_action": paths[path].split("/")[-2]})
    assert (Exchange.objects.count(), Entry.objects.count(), Conversation.objects.count()) == (1, 1, 1)
    assert Exchange.objects.get().status == "finished"


@pytest.mark.parametrize("role", [Role.ADMINISTRATOR, Role.OFFICER])
def test_another_organisations_records_do_not_exist(enter: Callable[[str], Client], role: str) -> None:
    paths = happen(people.organisation("Globex"))
    client = enter(role)
    for path in RECORDS:
        page = client.get(path).content.decode()
        identifier = paths[path].split("/")[-2]
        assert "Globex" not in page
        assert identifier not in page
        assert client.get(f"{paths[path]}change/").status_code == 302
        assert f"{paths[path]}change/" not in client.get(f"{path}?q={identifier}").content.decode()


@pytest.mark.parametrize("path", RECORDS)
def test_it_finds_a_record_by_its_id(enter: Callable[[str], Client], acme: Organisation, path: str) -> None:
    happen(acme)
    identifier = happen(acme)[path].split("/")[-2]
    client = enter(Role.OFFICER)
    assert f"{path}{identifier}/change/" in client.get(f"{path}?q={identifier}").content.decode()


@pytest.mark.parametrize("path", RECORDS)
@pytest.mark.parametrize("words", ["alice", "%27%3B--", "%00", "a" * 3000, "1234", "%ED%A0%80"])
def test_a_search_for_anything_is_answered(enter: Callable[[str], Client], path: str, words: str) -> None:
    assert enter(Role.OFFICER).get(f"{path}?q={words}").status_code == 200


@pytest.mark.parametrize(
    "lookup", ["user__password__startswith=p", "api_key__digest__startswith=a", "title__contains=a"]
)
def test_it_filters_by_nothing_secret(enter: Callable[[str], Client], lookup: str) -> None:
    path = CONVERSATIONS if lookup.startswith("title") else EXCHANGES
    assert enter("superuser").get(f"{path}?{lookup}").status_code == 400


@pytest.mark.parametrize("path", [*RECORDS, DEPLOYMENTS, VERSIONS])
def test_a_list_takes_as_many_queries_for_many_rows_as_for_few(enter: Callable[[str], Client], path: str) -> None:
    client = enter("superuser")

    def rows(count: int) -> None:
        for number in range(count):
            happen(people.organisation())
            people.deployment(f"d-{uuid7()}", model=f"model-{uuid7()}-{number}")

    def queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            assert client.get(path).status_code == 200
        return len(captured)

    rows(2)
    queries()
    few = queries()
    rows(8)
    assert queries() == few


@pytest.mark.parametrize("role", [Role.ADMINISTRATOR, Role.OFFICER])
def test_the_catalog_is_the_operators(enter: Callable[[str], Client], role: str) -> None:
    deployment = people.deployment()
    client = enter(role)
    for path, row in ((DEPLOYMENTS, deployment.pk), (VERSIONS, deployment.model_version_id)):
        assert client.get(path).status_code == 200
        assert client.get(f"{path}{row}/change/").status_code == 200
        assert client.post(f"{path}{row}/change/", {}).status_code == 403
        assert client.post(f"{path}{row}/delete/", {"post": "yes"}).status_code == 403
        assert client.post(f"{path}add/", {}).status_code == 403


def deployment_fields(version: ModelVersion, **fields: str) -> dict[str, str]:
    usual = {"slug": "m-1", "model_version": str(version.pk), "engine": "vllm", "is_enabled": "on"}
    return usual | {"desired_replicas": "1", "hourly_price": "0"} | fields


def version_fields(**fields: str) -> dict[str, str]:
    usual = {"name": "m", "version": "2", "context_length": "4096", "quantization": "none", "engine_arguments": "[]"}
    return usual | {"input_price": "0.05", "cached_price": "0.01", "output_price": "0.10"} | fields


def test_the_operator_adds_a_model_version_and_a_deployment(enter: Callable[[str], Client]) -> None:
    client = enter("superuser")
    assert client.post(f"{VERSIONS}add/", version_fields()).status_code == 302
    version = ModelVersion.objects.get(name="m")
    assert client.post(f"{DEPLOYMENTS}add/", deployment_fields(version)).status_code == 302
    assert version.deployments.get().queue == "gpu.m-1"


@pytest.mark.parametrize(
    "fields",
    [
        {"input_price": "-1"},
        {"output_price": "10000.01"},
        {"cached_price": "NaN"},
        {"context_length": "63"},
        {"context_length": "0"},
        {"context_length": "100000001"},
        {"checksum": "abc"},
        {"checksum": "g" * 64},
        {"source": "/models/small"},
        {"source_kind": "hub", "source": "https://user:pass@hub.example/x"},
        {"quantization": "int3"},
        {"engine_arguments": '{"a": 1}'},
        {"engine_arguments": '["--hf-token", "abc"]'},
        {"parameters_total": "3", "parameters_active": "4"},
        {
            "embargo_until_0": "2027-01-02",
            "embargo_until_1": "00:00",
            "retires_at_0": "2027-01-01",
            "retires_at_1": "00:00",
        },
    ],
)
def test_a_model_version_that_cannot_be_is_refused(enter: Callable[[str], Client], fields: dict[str, str]) -> None:
    assert enter("superuser").post(f"{VERSIONS}add/", version_fields(**fields)).status_code == 200
    assert not ModelVersion.objects.exists()


def test_a_deployment_keeps_its_slug(enter: Callable[[str], Client]) -> None:
    deployment = people.deployment()
    fields = deployment_fields(deployment.model_version, slug="other")
    enter("superuser").post(f"{DEPLOYMENTS}{deployment.pk}/change/", fields)
    deployment.refresh_from_db()
    assert (deployment.slug, deployment.engine) == ("simulated-local", "vllm")


@pytest.mark.parametrize(
    "fields",
    [
        {"hourly_price": "-0.01"},
        {"hourly_price": "100001"},
        {"desired_replicas": "-1"},
        {"desired_replicas": "1001"},
        {"concurrency": "0"},
        {"zone": "not a zone"},
        {"engine": "openai", "hourly_price": "3"},
    ],
)
def test_a_deployment_that_cannot_be_is_refused(enter: Callable[[str], Client], fields: dict[str, str]) -> None:
    version = ModelVersion.objects.create(name="m", version="1", context_length=4096)
    assert enter("superuser").post(f"{DEPLOYMENTS}add/", deployment_fields(version, **fields)).status_code == 200
    assert not version.deployments.exists()


def test_a_deployment_runs_its_versions_engine_or_a_simulation(enter: Callable[[str], Client]) -> None:
    version = ModelVersion.objects.create(name="m", version="1", context_length=4096, engine="vllm")
    client = enter("superuser")
    client.post(f"{DEPLOYMENTS}add/", deployment_fields(version, slug="other", engine="openai"))
    client.post(f"{DEPLOYMENTS}add/", deployment_fields(version, slug="stand-in", engine="simulated", zone="eu-1"))
    assert [(row.slug, row.zone) for row in version.deployments.all()] == [("stand-in", "eu-1")]


def test_a_version_that_runs_somewhere_is_not_deleted(enter: Callable[[str], Client]) -> None:
    version = people.deployment().model_version
    assert enter("superuser").post(f"{VERSIONS}{version.pk}/delete/", {"post": "yes"}).status_code in (200, 403)
    assert ModelVersion.objects.filter(pk=version.pk).exists()

"""`manage.py seed_demo`: what is there after it, and that running it again changes nothing."""

from __future__ import annotations

import pytest
from auditlog.models import LogEntry
from django.core.management import CommandError, call_command
from django.test import Client

from console.accounts import credentials
from console.accounts.models import APIKey, Member, Organisation, User
from inference.models import Deployment, ModelVersion
from tests.console import people

pytestmark = pytest.mark.django_db
KEY = f"bsk_{'k' * 43}"
ENVIRONMENT = {
    "BURSAR_ADMIN_USER": "admin",
    "BURSAR_ADMIN_PASSWORD": "admin-password",
    "BURSAR_OFFICER_USER": "officer",
    "BURSAR_OFFICER_PASSWORD": "officer-password",
    "BURSAR_USER": "user",
    "BURSAR_USER_PASSWORD": "user-password",
    "BURSAR_API_KEY": KEY,
    "BURSAR_MODEL_NAME": "smollm2-135m-instruct",
    "BURSAR_DEPLOYMENT": "smollm2-local",
    "BURSAR_ENGINE": "vllm",
}


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)


def state() -> list[list[dict[str, object]]]:
    models = (Organisation, User, Member, APIKey, ModelVersion, Deployment, LogEntry)
    return [[*model.objects.order_by("pk").values()] for model in models]  # type: ignore[attr-defined]


def signs_in(client: Client, password: str) -> bool:
    return client.post("/sign-in", {"username": "user", "password": password}).status_code == 302


def test_it_makes_an_organisation_three_people_and_a_key(client: Client) -> None:
    call_command("seed_demo")
    roles = {member.user.username: member.role for member in Member.objects.filter(organisation__name="Demo")}
    assert roles == {"admin": "administrator", "officer": "officer", "user": "end_user"}
    assert [*User.objects.filter(is_superuser=True)] == [User.objects.get(username="admin")]
    assert {*User.objects.filter(is_staff=True).values_list("username", flat=True)} == {"admin", "officer"}
    assert signs_in(client, "user-password")
    assert client.get("/api/conversations", headers=people.bearer(KEY)).status_code == 200


def test_one_person_approves_alone_in_the_demo_and_nowhere_else() -> None:
    call_command("seed_demo")
    assert not Organisation.objects.get().four_eyes
    assert people.organisation().four_eyes


def test_it_offers_the_model_with_its_prices() -> None:
    call_command("seed_demo")
    deployment = Deployment.objects.get()
    version = deployment.model_version
    assert (deployment.queue, deployment.engine, deployment.is_enabled) == ("gpu.smollm2-local", "vllm", True)
    assert (version.name, version.context_length, version.lifecycle) == ("smollm2-135m-instruct", 4096, "live")
    prices = [str(price) for price in (version.input_price, version.cached_price, version.output_price)]
    assert prices == ["0.050000", "0.010000", "0.100000"]


def test_a_second_run_changes_nothing() -> None:
    call_command("seed_demo")
    before = state()
    call_command("seed_demo")
    assert state() == before


def test_it_keeps_what_an_administrator_changed() -> None:
    call_command("seed_demo")
    ModelVersion.objects.update(input_price=7)
    Organisation.objects.update(requests_per_minute=3, name="Renamed")
    Member.objects.filter(user__username="user").update(role="developer")
    before = state()
    call_command("seed_demo")
    assert state() == before


def test_a_password_that_differs_is_replaced(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    call_command("seed_demo")
    monkeypatch.setenv("BURSAR_USER_PASSWORD", "another-password")
    call_command("seed_demo")
    assert not signs_in(client, "user-password")
    assert signs_in(client, "another-password")


def test_a_key_that_differs_replaces_the_one_before(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    call_command("seed_demo")
    another = credentials.new_key()
    monkeypatch.setenv("BURSAR_API_KEY", another)
    call_command("seed_demo")
    assert client.get("/api/conversations", headers=people.bearer(KEY)).status_code == 401
    assert client.get("/api/conversations", headers=people.bearer(another)).status_code == 200


def test_a_revoked_key_stays_revoked(client: Client) -> None:
    call_command("seed_demo")
    APIKey.objects.update(revoked_at="2026-01-01T00:00:00Z")
    call_command("seed_demo")
    assert client.get("/api/conversations", headers=people.bearer(KEY)).status_code == 401


def test_only_this_runs_deployment_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    own = people.deployment("made-by-hand", model="other")
    call_command("seed_demo")
    monkeypatch.setenv("BURSAR_DEPLOYMENT", "simulated-local")
    monkeypatch.setenv("BURSAR_ENGINE", "simulated")
    call_command("seed_demo")
    enabled = {*Deployment.objects.filter(is_enabled=True).values_list("slug", flat=True)}
    assert enabled == {"simulated-local", own.slug}
    monkeypatch.setenv("BURSAR_DEPLOYMENT", "smollm2-local")
    call_command("seed_demo")
    assert Deployment.objects.get(slug="smollm2-local").is_enabled


@pytest.mark.parametrize("name", ENVIRONMENT)
def test_it_names_a_variable_that_is_missing(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.delenv(name)
    with pytest.raises(CommandError, match=f"{name} is not set"):
        call_command("seed_demo")
    assert not Organisation.objects.exists()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("BURSAR_API_KEY", "bsk_short"),
        ("BURSAR_ENGINE", "abacus"),
        ("BURSAR_DEPLOYMENT", "not a slug"),
        ("BURSAR_USER", "two words"),
        ("BURSAR_MODEL_NAME", "m" * 101),
    ],
)
def test_it_refuses_what_cannot_be_and_leaves_nothing_half_done(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(CommandError) as refused:
        call_command("seed_demo")
    assert "password" not in str(refused.value)
    assert not Organisation.objects.exists()
    assert not Deployment.objects.exists()

"""A version's page: its lifecycle is shown and moved by buttons, by the operator's people alone."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.test import Client

from console.accounts.models import Organisation, Role
from inference.models import ModelVersion
from tests.console import people

pytestmark = pytest.mark.django_db
VERSIONS = "/admin/inference/modelversion/"
NO_OBJECTIVE = {"canary_policy-TOTAL_FORMS": "0", "canary_policy-INITIAL_FORMS": "0"}
BUTTONS = ("propose", "approve", "withdraw", "revert", "retire")


@pytest.fixture
def enter(organisation: Organisation) -> Callable[..., Client]:
    def _enter(role: str = "superuser") -> Client:
        client = Client()
        is_super = role == "superuser"
        client.force_login(people.superuser(organisation) if is_super else people.member(organisation, role))
        return client

    return _enter


def page(client: Client, version: ModelVersion) -> str:
    return client.get(f"{VERSIONS}{version.pk}/change/").content.decode()


def step(client: Client, version: ModelVersion, name: str, **fields: str) -> str:
    path = f"{VERSIONS}{version.pk}/{name}/"
    assert client.get(path, follow=True).status_code == 200
    answered = client.post(path, fields, follow=True)
    assert answered.status_code == 200
    version.refresh_from_db()
    return answered.content.decode()


def offered(client: Client, version: ModelVersion) -> list[str]:
    shown = page(client, version)
    return [name for name in BUTTONS if f"{version.pk}/{name}" in shown]


def test_a_version_goes_to_live_through_two_people_and_back_in_one_step(
    enter: Callable[..., Client], version: ModelVersion
) -> None:
    one, other = enter(), enter()
    assert offered(one, version) == ["propose", "retire"]
    for state in ("validated", "canary", "live"):
        step(one, version, "propose")
        assert "Somebody else must approve" in step(one, version, "approve")
        assert version.lifecycle != state
        step(other, version, "approve")
        assert version.lifecycle == state
    assert offered(one, version) == ["revert", "retire"]
    step(one, version, "revert")
    assert version.lifecycle == "canary"
    step(one, version, "retire")
    assert version.lifecycle == "retired"
    assert offered(one, version) == ["revert"]


def test_it_shows_who_proposed_who_approved_and_from_when(enter: Callable[..., Client], version: ModelVersion) -> None:
    one, other = enter(), enter()
    step(one, version, "propose", effective_from="2036-05-06T07:08")
    assert offered(other, version) == ["approve", "withdraw", "retire"]
    assert "Draft to validated: approved" in step(other, version, "approve")
    assert version.lifecycle == "draft"
    shown = page(one, version)
    assert "approved, proposed by administrator-" in shown
    assert "2036-05-06 07:08" in shown
    assert offered(other, version) == ["withdraw", "retire"]


def test_a_time_that_is_none_is_asked_for_again(enter: Callable[..., Client], version: ModelVersion) -> None:
    assert "Enter a valid date/time" in step(enter(), version, "propose", effective_from="soon")
    assert not version.steps.exists()


def test_the_row_itself_does_not_change_its_lifecycle(enter: Callable[..., Client], version: ModelVersion) -> None:
    fields = {"name": "new", "version": "1", "context_length": "8192", "quantization": "none"}
    fields |= {"engine_arguments": "[]", "input_price": "1", "cached_price": "0", "output_price": "0"}
    fields |= {"lifecycle": "live", "steps-TOTAL_FORMS": "0", "steps-INITIAL_FORMS": "0"} | NO_OBJECTIVE
    client = enter()
    assert client.post(f"{VERSIONS}{version.pk}/change/", fields).status_code == 302
    version.refresh_from_db()
    assert (version.lifecycle, version.context_length, version.input_price) == ("draft", 8192, 1)


def test_what_was_proposed_keeps_its_weights_and_engine(enter: Callable[..., Client], version: ModelVersion) -> None:
    client = enter()
    step(client, version, "propose")
    fields = {"source_kind": "path", "source": "/other", "context_length": "8192", "engine_arguments": '["--x"]'}
    fields |= {"input_price": "2", "cached_price": "0", "output_price": "0"}
    fields |= {"steps-TOTAL_FORMS": "0", "steps-INITIAL_FORMS": "0"} | NO_OBJECTIVE
    assert client.post(f"{VERSIONS}{version.pk}/change/", fields).status_code == 302
    version.refresh_from_db()
    assert (version.source, version.context_length, version.engine_arguments) == ("", 4096, [])
    assert version.input_price == 2
    assert client.post(f"{VERSIONS}{version.pk}/delete/", {"post": "yes"}).status_code == 403


@pytest.mark.parametrize("role", [Role.ADMINISTRATOR, Role.OFFICER])
def test_others_see_the_steps_and_take_none(enter: Callable[..., Client], version: ModelVersion, role: str) -> None:
    step(enter(), version, "propose")
    client = enter(role)
    shown = page(client, version)
    assert "Draft to validated" in shown
    assert offered(client, version) == []
    for name in BUTTONS:
        path = f"{VERSIONS}{version.pk}/{name}/"
        assert client.get(path).status_code == 403
        assert client.post(path).status_code == 403
    assert version.steps.get().state == "proposed"

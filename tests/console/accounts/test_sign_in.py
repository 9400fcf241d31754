"""Signing in and out, and how soon it ends for those who may no longer."""

from __future__ import annotations

import pytest
from django.test import Client

from console.accounts.models import Organisation, Role, User
from tests.console import people

pytestmark = pytest.mark.django_db


@pytest.fixture
def acme() -> Organisation:
    return people.organisation("Acme")


@pytest.fixture
def user(acme: Organisation) -> User:
    return people.member(acme, username="ada")


def sign_in(client: Client, username: str = "ada", password: str = people.PASSWORD, path: str = "/sign-in") -> int:
    return client.post(path, {"username": username, "password": password}).status_code


def is_signed_in(client: Client) -> bool:
    return client.get("/api/conversations").status_code == 200


def test_a_member_signs_in_and_out(client: Client, user: User) -> None:
    assert sign_in(client) == 302
    assert is_signed_in(client)
    assert client.post("/sign-out").headers["Location"] == "/sign-in"
    assert not is_signed_in(client)


def test_a_link_does_not_sign_anybody_out(client: Client, user: User) -> None:
    sign_in(client)
    assert client.get("/sign-out").status_code == 405
    assert is_signed_in(client)


@pytest.mark.parametrize(("username", "password"), [("ada", "wrong"), ("nobody", people.PASSWORD), ("", "")])
def test_wrong_credentials_are_refused_alike(client: Client, user: User, username: str, password: str) -> None:
    assert sign_in(client, username, password) == 200
    assert not is_signed_in(client)


@pytest.mark.parametrize("username", ["a\x00b", "a" * 5000, "\ud800"])
def test_names_that_no_database_holds_are_refused(client: Client, user: User, username: str) -> None:
    body = f"username={'%ED%A0%80' if username == chr(0xD800) else username}&password=x"
    answered = client.post("/sign-in", body, content_type="application/x-www-form-urlencoded")
    assert answered.status_code == 200


def test_it_leads_to_no_other_site(client: Client, user: User) -> None:
    response = client.post("/sign-in?next=https://evil.example/", {"username": "ada", "password": people.PASSWORD})
    assert response.headers["Location"] == "/"


def test_signing_in_needs_the_forms_token(user: User) -> None:
    assert sign_in(Client(enforce_csrf_checks=True)) == 403


def test_an_inactive_organisation_ends_its_sessions(client: Client, user: User, acme: Organisation) -> None:
    sign_in(client)
    acme.is_active = False
    acme.save()
    assert not is_signed_in(client)
    assert sign_in(client) == 200


def test_an_inactive_user_is_out_at_once(client: Client, user: User) -> None:
    sign_in(client)
    User.objects.filter(pk=user.pk).update(is_active=False)
    assert not is_signed_in(client)


def test_the_admin_sends_visitors_to_the_one_form(client: Client) -> None:
    response = client.get("/admin/", follow=True)
    assert response.redirect_chain[-1][0] == "/sign-in?next=%2Fadmin%2F"


@pytest.mark.parametrize("role", [Role.END_USER, Role.DEVELOPER])
def test_members_without_work_there_do_not_enter_the_admin(client: Client, acme: Organisation, role: str) -> None:
    client.force_login(people.member(acme, role))
    assert client.get("/admin/").status_code == 302
    assert client.get("/admin/inference/exchange/").status_code == 302

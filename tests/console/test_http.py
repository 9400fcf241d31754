"""What every HTTP response carries, and what programs get when there is nothing or something breaks."""

from __future__ import annotations

import re

import pytest
from django.http import HttpResponse
from django.test import AsyncClient, Client

from console.accounts.models import Role
from console.http import ADMIN_POLICY, STRICT_POLICY
from tests.console import people

pytestmark = pytest.mark.django_db


def test_it_keeps_a_well_formed_request_id(client: Client) -> None:
    assert client.get("/sign-in", headers={"x-request-id": "ticket-7.a_B"})["x-request-id"] == "ticket-7.a_B"


@pytest.mark.parametrize("given", ["", "a" * 65, "two words", "line\nbreak", "späte", "{}"])
def test_it_replaces_a_malformed_request_id(client: Client, given: str) -> None:
    answered = client.get("/sign-in", headers={"x-request-id": given})["x-request-id"]
    assert answered != given
    assert len(answered) == 36


async def test_it_gives_a_request_id_to_asynchronous_callers_too(async_client: AsyncClient) -> None:
    response = await async_client.get("/sign-in", headers={"x-request-id": "abc"})
    assert response["x-request-id"] == "abc"


def test_pages_allow_no_inline_script_and_no_other_origin(client: Client) -> None:
    policy = client.get("/sign-in")["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self';" in policy
    assert "unsafe" not in policy
    assert "http:" not in policy
    assert "connect-src 'self' ws://testserver wss://testserver" in policy


def test_the_admin_has_a_policy_of_its_own(admin_client: Client) -> None:
    policy = admin_client.get("/admin/")["Content-Security-Policy"]
    assert f"script-src {ADMIN_POLICY['script-src']};" in policy
    assert f"frame-ancestors {STRICT_POLICY['frame-ancestors']}" in policy
    assert "'unsafe-inline'" not in ADMIN_POLICY["script-src"]


def test_a_forged_host_does_not_reach_the_policy(client: Client) -> None:
    response = client.get("/sign-in", headers={"host": "evil.example; script-src *"})
    assert response.status_code == 400
    assert "evil" not in response["Content-Security-Policy"]


def test_an_ipv6_host_is_left_out_of_the_policy(client: Client) -> None:
    policy = client.get("/sign-in", headers={"host": "[::1]:8000"})["Content-Security-Policy"]
    assert "connect-src 'self';" in policy


@pytest.mark.parametrize("path", ["/api/nothing", "/v1/nothing"])
def test_an_unknown_address_answers_programs_in_json(client: Client, path: str) -> None:
    response = client.get(path)
    assert response.status_code == 404
    assert response.json()["error"]["code"] == "not_found"


def test_an_unknown_address_answers_people_with_a_page(client: Client) -> None:
    response = client.get("/nothing")
    assert response.status_code == 404
    assert response["Content-Type"].startswith("text/html")


def assert_is_a_page_of_ours(response: HttpResponse, heading: str, *ways_back: str) -> None:
    page = response.content.decode()
    assert response["Content-Type"].startswith("text/html")
    assert heading in page
    assert re.findall(r'class="button [^"]*" href="([^"]*)"', page) == list(ways_back)
    assert not re.search(r"<style|\sstyle=|<script|Traceback|Exception", page)


def test_an_unknown_address_leads_back_to_where_one_was(client: Client) -> None:
    client.force_login(people.member(people.organisation(), Role.OFFICER))
    assert_is_a_page_of_ours(client.get("/nothing"), "nothing at this address", "/")
    assert_is_a_page_of_ours(client.get("/admin/nothing/"), "nothing at this address", "/admin/", "/")


def test_a_page_that_ones_role_may_not_open_says_so(client: Client) -> None:
    client.force_login(people.member(people.organisation(), Role.OFFICER))
    response = client.get("/admin/accounts/configurationchange/")
    assert response.status_code == 403
    assert_is_a_page_of_ours(response, "not yours to open", "/admin/", "/")


def test_a_request_that_cannot_be_read_gets_a_page(client: Client) -> None:
    response = client.get("/sign-in", headers={"host": "evil.example; script-src *"})
    assert response.status_code == 400
    assert_is_a_page_of_ours(response, "cannot be read", "/")
    assert b"evil" not in response.content


def test_a_form_without_its_token_gets_a_page() -> None:
    response = Client(enforce_csrf_checks=True).post("/sign-in", {"username": "a", "password": "b"})
    assert response.status_code == 403
    assert_is_a_page_of_ours(response, "too old to send", "/")


def test_a_broken_view_answers_people_with_a_number_and_no_detail(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("secret detail")

    client.force_login(people.member(people.organisation()))
    monkeypatch.setattr("console.chat.views.render", fail)
    client.raise_request_exception = False
    response = client.get("/", headers={"x-request-id": "number-7"})
    assert response.status_code == 500
    assert_is_a_page_of_ours(response, "Something went wrong", "/")
    assert b"number-7" in response.content
    assert b"secret" not in response.content


def test_a_broken_view_answers_programs_in_json_without_its_error(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("secret detail")

    monkeypatch.setattr("console.accounts.queries.usable_key", fail)
    client.raise_request_exception = False
    response = client.get("/api/conversations", headers={"authorization": f"Bearer bsk_{'a' * 43}"})
    assert response.status_code == 500
    assert response.json()["error"]["code"] == "internal_error"
    assert b"secret" not in response.content


@pytest.mark.parametrize("path", ["/static/unfold/css/styles.css", "/static/admin/js/core.js"])
async def test_static_files_are_served_without_a_web_server_in_front(async_client: AsyncClient, path: str) -> None:
    response = await async_client.get(path)
    assert response.status_code == 200
    assert response["X-Content-Type-Options"] == "nosniff"
    assert "Access-Control-Allow-Origin" not in response


@pytest.mark.parametrize("path", ["/static/../manage.py", "/static/%2e%2e/%2e%2e/manage.py", "/static/nothing.js"])
async def test_nothing_but_static_files_is_served(async_client: AsyncClient, path: str) -> None:
    assert (await async_client.get(path)).status_code == 404


def test_the_schema_is_for_those_who_signed_in(client: Client, admin_client: Client) -> None:
    assert client.get("/api/schema").status_code == 401
    assert "/api/conversations" in admin_client.get("/api/schema").json()["paths"]

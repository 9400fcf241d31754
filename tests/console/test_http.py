"""What every HTTP response carries, and what programs get when there is nothing or something breaks."""

from __future__ import annotations

import pytest
from django.test import AsyncClient, Client

from console.http import ADMIN_POLICY, STRICT_POLICY

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

"""Alerts over HTTP: signed or by bearer, once each, within the bounds, and every other body refused by its field."""

from __future__ import annotations

import hashlib
import hmac
import json
import time
from typing import Any

import pytest
import redis
from django.http import HttpResponse
from django.test import Client

from inference.models import Deployment
from inference.scaling.models import ScalingPolicy, ScalingStep
from tests.inference.scaling.conftest import policy, show, valkey  # noqa: F401 - fixtures

pytestmark = pytest.mark.django_db
SECRET = "s" * 40
PLAIN = {"deployment": "scaled"}


@pytest.fixture(autouse=True)
def _secret(settings: Any, valkey: redis.Redis, policy: ScalingPolicy) -> None:  # noqa: F811
    settings.ALERT_SECRET = SECRET
    show(valkey, "w-1")


def signature(body: bytes, *, secret: str = SECRET, ago_s: float = 0) -> str:
    at = str(int(time.time() - ago_s))
    return f"t={at},v1={hmac.new(secret.encode(), at.encode() + b'.' + body, hashlib.sha256).hexdigest()}"


def send(document: Any, *, bearer: str = "", signed: str | None = None) -> HttpResponse:
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    headers = {"Authorization": f"Bearer {bearer}"} if bearer else {}
    if not bearer:
        headers["X-Bursar-Signature"] = signed if signed is not None else signature(body)
    return Client(enforce_csrf_checks=True).generic(  # type: ignore[no-any-return]
        "POST", "/api/alerts", body, content_type="application/json", headers=headers
    )


def alertmanager(*alerts: dict[str, Any]) -> dict[str, Any]:
    usual = {"status": "firing", "labels": {"deployment": "scaled", "alertname": "slow"}, "fingerprint": "f1"}
    return {
        "version": "4",
        "groupKey": "{}",
        "status": "firing",
        "receiver": "bursar",
        "alerts": [{**usual, "startsAt": "2026-01-01T00:00:00Z", **alert} for alert in alerts],
    }


def wanted() -> int:
    return Deployment.objects.get(slug="scaled").desired_replicas


def test_a_signed_alert_adds_a_replica_and_is_taken_once() -> None:
    body = json.dumps(PLAIN).encode()
    signed = signature(body)
    first = send(body, signed=signed)
    assert (first.status_code, first.json()) == (200, {"scaled": ["scaled"], "unchanged": []})
    again = send(body, signed=signed)
    assert (again.status_code, again.json()["error"]["code"]) == (400, "duplicate_id")
    assert wanted() == 2
    assert ScalingStep.objects.get().trigger == "alert"


def test_alerts_come_fast_and_replicas_do_not() -> None:
    assert send(PLAIN).json()["scaled"] == ["scaled"]
    assert send({"deployment": "scaled", "status": "firing"}).json() == {"scaled": [], "unchanged": ["scaled"]}
    assert wanted() == 2


def test_alertmanager_comes_with_a_bearer_and_the_same_alert_counts_once(valkey: redis.Redis) -> None:  # noqa: F811
    assert send(alertmanager({}), bearer=SECRET).json()["scaled"] == ["scaled"]
    valkey.delete("bursar:alerted:scaled")  # a minute later
    assert send(alertmanager({}), bearer=SECRET).json()["scaled"] == []
    assert send(alertmanager({"fingerprint": "f2"}), bearer=SECRET).json()["scaled"] == ["scaled"]
    assert wanted() == 3


def test_an_alert_that_is_over_asks_for_nothing() -> None:
    assert send(alertmanager({"status": "resolved"})).json() == {"scaled": [], "unchanged": []}
    assert send({"deployment": "scaled", "status": "resolved"}).status_code == 200
    assert wanted() == 1


def test_no_alert_goes_beyond_the_bounds() -> None:
    ScalingPolicy.objects.update(at_most=1)
    assert send(PLAIN).json() == {"scaled": [], "unchanged": ["scaled"]}
    assert wanted() == 1


@pytest.mark.parametrize(
    ("signed", "code"),
    [
        ("", "invalid_api_key"),
        ("t=1,v1=00", "invalid_api_key"),
        ("t=,v1=", "invalid_api_key"),
        ("t=٣,v1=00", "invalid_api_key"),
        ("v1=00", "invalid_api_key"),
        ("," * 500, "invalid_api_key"),
        (signature(b"{}"), "invalid_api_key"),
        (signature(json.dumps(PLAIN).encode(), secret="another secret, just as long as it"), "invalid_api_key"),
        (signature(json.dumps(PLAIN).encode(), ago_s=400), "invalid_value"),
        (signature(json.dumps(PLAIN).encode(), ago_s=-400), "invalid_value"),
    ],
)
def test_what_is_not_signed_now_and_for_this_body_is_refused(signed: str, code: str) -> None:
    refused = send(PLAIN, signed=signed)
    assert (refused.status_code, refused.json()["error"]["code"]) == ({"invalid_value": 400}.get(code, 401), code)
    assert wanted() == 1


def test_a_wrong_bearer_is_refused() -> None:
    assert send(PLAIN, bearer="x" * 40).status_code == 401


@pytest.mark.parametrize(
    ("document", "status", "param"),
    [
        (b"{", 400, None),
        (b"\xff\xfe", 400, None),
        (b"[" * 10_000, 400, None),
        (b"[]", 400, None),
        ({}, 400, None),
        ({"deployment": ""}, 400, "deployment"),
        ({"deployment": 5}, 400, "deployment"),
        ({"deployment": "scaled", "status": "maybe"}, 400, "status"),
        ({"deployment": "scaled", "replicas": 900}, 400, None),
        ({"deployment": "unknown"}, 400, "alerts[0].labels.deployment"),
        ({"version": "4", "alerts": []}, 400, "alerts"),
        ({"version": "3", "alerts": [{}]}, 400, "version"),
        ({"version": "4", "alerts": [{"status": "firing", "labels": {}}]}, 400, "alerts[0].labels"),
        ({"deployment": "scaled", "status": "firing" + " " * 70_000}, 413, None),
    ],
)
def test_every_other_body_is_refused_by_its_field(document: Any, status: int, param: str | None) -> None:
    refused = send(document)
    assert refused.status_code == status
    assert refused.json()["error"]["param"] == param
    assert wanted() == 1


@pytest.mark.parametrize("secret", ["", "short"])
def test_without_a_secret_worth_its_name_no_alert_is_taken(settings: Any, secret: str) -> None:
    settings.ALERT_SECRET = secret
    assert send(PLAIN, bearer=secret or "x").status_code == 404


def test_the_secret_is_in_no_answer() -> None:
    for document in (b"{", PLAIN, {"deployment": "unknown"}):
        assert SECRET not in send(document).content.decode()

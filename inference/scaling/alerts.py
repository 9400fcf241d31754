"""Alerts of a monitoring system that ask for a replica: whose they are, and that each counts once."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec
import redis
from asgiref.sync import async_to_sync
from django.conf import settings
from msgspec import Meta, Struct

from inference.errors import Refusal
from inference.fleet_now import fleet_now
from inference.scaling.loop import scale
from inference.scaling.models import ScalingPolicy

MAX_BYTES = 65_536
SHORTEST_SECRET = 32
# How far the sender's clock may be off, and how long a signature is remembered: longer than it is good for.
WINDOW_S = 300
REMEMBERED_S = 2 * WINDOW_S + 60
# An alert that is told again is the same one for so long; a deployment gets one replica a minute by alerts.
SAME_ALERT_S = 900
ONE_IN_S = 60

NOT_SIGNED = Refusal("invalid_api_key", "The signature, or the bearer secret, is missing or wrong.")
Name = Annotated[str, Meta(min_length=1, max_length=60)]
Short = Annotated[str, Meta(max_length=200)]


class Labels(Struct):
    """Of an alert's labels the one that matters here."""

    deployment: Name


class Alert(Struct):
    status: Literal["firing", "resolved"]
    labels: Labels
    fingerprint: Short = ""
    startsAt: Short = ""


class AlertmanagerBody(Struct, tag_field="version", tag="4"):
    """https://prometheus.io/docs/alerting/latest/configuration/#webhook_config"""

    alerts: Annotated[list[Alert], Meta(min_length=1, max_length=100)]


class PlainBody(Struct, forbid_unknown_fields=True):
    """For whoever writes a body by hand, as Elastic's webhook connector has one written."""

    deployment: Name
    status: Literal["firing", "resolved"] = "firing"


class Outcome(Struct, frozen=True):
    """Deployments by name: those that got a replica, and those that have what their bounds allow, or had one lately."""

    scaled: list[str]
    unchanged: list[str]


def check_signature(secret: str, header: str, body: bytes, now_s: float) -> None:
    """`header` is `t=<Unix seconds>,v1=<hex>` of HMAC-SHA256 over `<seconds>.<body>`. Raises `Refusal`."""
    parts = dict(part.partition("=")[::2] for part in header.split(",", 4))
    sent, given = parts.get("t", ""), parts.get("v1", "")
    if not (sent.isascii() and sent.isdigit() and len(sent) <= 12):
        raise NOT_SIGNED
    expected = hmac.new(secret.encode(), sent.encode() + b"." + body, hashlib.sha256).hexdigest()
    if not hmac.compare_digest(expected.encode(), given.encode()):
        raise NOT_SIGNED
    if abs(now_s - int(sent)) > WINDOW_S:
        raise Refusal("invalid_value", f"The signature is more than {WINDOW_S} seconds old, or ahead.", param="t")


def check_bearer(secret: str, header: str) -> None:
    """For senders that cannot sign, such as Alertmanager, over TLS. Raises `Refusal`."""
    if not hmac.compare_digest(f"Bearer {secret}".encode(), header.encode()):
        raise NOT_SIGNED


def parse(body: bytes) -> list[Alert]:
    """Raises `Refusal` that names the field."""
    try:
        document = msgspec.json.decode(body)
        if isinstance(document, dict) and "alerts" in document:
            return msgspec.convert(document, AlertmanagerBody).alerts
        plain = msgspec.convert(document, PlainBody)
    except msgspec.ValidationError as error:
        what, _, field = str(error).partition(" - at `$.")
        raise Refusal("invalid_value", f"{what}.", param=field.rstrip("`") or None) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise Refusal("invalid_json", "The body is not valid JSON.") from None
    return [Alert(plain.status, Labels(plain.deployment))]


def remember(valkey: redis.Redis, signature: str) -> None:
    """Raises `Refusal` for a signature that was used before."""
    digest = hashlib.sha256(signature.encode()).hexdigest()
    if not valkey.set(f"bursar:alert:{digest}", b"1", nx=True, ex=REMEMBERED_S):
        raise Refusal("duplicate_id", "This alert was delivered before.", param="v1")


def act_on(alerts: Sequence[Alert], valkey: redis.Redis) -> Outcome:
    """Raises `Refusal` where one names a deployment that does not scale by itself; then nothing was done."""
    firing = [(number, alert) for number, alert in enumerate(alerts) if alert.status == "firing"]
    slugs = {alert.labels.deployment for _, alert in firing}
    found = ScalingPolicy.objects.filter(is_enabled=True, deployment__slug__in=slugs)
    policies = {policy.deployment.slug: policy for policy in found.select_related("deployment")}
    for number, alert in firing:
        if alert.labels.deployment not in policies:
            raise Refusal(
                "invalid_value", "No such deployment scales by itself.", param=f"alerts[{number}].labels.deployment"
            )
    new = {alert.labels.deployment for _, alert in firing if _is_new(valkey, alert)}
    scaled = _scale(sorted(new), policies) if new else []
    return Outcome(scaled, sorted(slugs - set(scaled)))


def _scale(slugs: Sequence[str], policies: dict[str, ScalingPolicy]) -> list[str]:
    fleet = async_to_sync(fleet_now)()
    return [slug for slug in slugs if scale(policies[slug].pk, fleet.workers, alerted=True)]


def _is_new(valkey: redis.Redis, alert: Alert) -> bool:
    slug = alert.labels.deployment
    name = hashlib.sha256(f"{slug}\n{alert.fingerprint}\n{alert.startsAt}".encode()).hexdigest()
    if alert.fingerprint and not valkey.set(f"bursar:alert:{name}", b"1", nx=True, ex=SAME_ALERT_S):
        return False
    return bool(valkey.set(f"bursar:alerted:{slug}", b"1", nx=True, ex=ONE_IN_S))


def alert_secret() -> str:
    """Empty where alerts are not taken."""
    secret: str = settings.ALERT_SECRET
    return secret if len(secret) >= SHORTEST_SECRET else ""

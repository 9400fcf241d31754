"""Organisations, people, keys and exchanges as tests need them."""

from __future__ import annotations

from datetime import timedelta
from itertools import count
from typing import Any

from django.contrib.auth.hashers import make_password
from django.utils import timezone

from console.accounts import credentials
from console.accounts.models import APIKey, Member, Organisation, Role, User
from inference.exchange_models import Attempt, Exchange
from inference.models import Deployment, Lifecycle, ModelVersion

PASSWORD = "correct horse battery"
_hash = make_password(PASSWORD, hasher="pbkdf2_sha256")
_numbers = count(1)


def organisation(name: str = "", **fields: Any) -> Organisation:
    slug = name.lower() or f"organisation-{next(_numbers)}"
    return Organisation.objects.create(name=name or slug, slug=slug, **fields)


def member(of: Organisation, role: str = Role.END_USER, *, username: str = "", **fields: Any) -> User:
    user = User.objects.create(
        username=username or f"{role}-{next(_numbers)}",
        password=_hash,
        is_staff=role in (Role.ADMINISTRATOR, Role.OFFICER) or fields.get("is_superuser", False),
        **fields,
    )
    Member.objects.create(user=user, organisation=of, role=role)
    return user


def superuser(of: Organisation) -> User:
    return member(of, Role.ADMINISTRATOR, is_superuser=True)


def api_key(of: Organisation, **fields: Any) -> tuple[APIKey, str]:
    """A key's row and the key itself."""
    key = credentials.new_key()
    named = {"name": f"key {next(_numbers)}"} | fields
    row = APIKey.objects.create(
        organisation=of, prefix=credentials.prefix(key), digest=credentials.digest(key), **named
    )
    return row, key


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


def deployment(slug: str = "simulated-local", *, model: str = "simulated", engine: str = "simulated") -> Deployment:
    version, _ = ModelVersion.objects.get_or_create(
        name=model, version="1", defaults={"context_length": 4096, "lifecycle": Lifecycle.LIVE}
    )
    row, _ = Deployment.objects.get_or_create(slug=slug, defaults={"model_version": version, "engine": engine})
    return row


def exchange(of: Organisation, on: Deployment, **fields: Any) -> Exchange:
    """An exchange that finished, as the pipeline leaves it."""
    now = timezone.now()
    finished = {
        "request_id": f"request-{next(_numbers)}",
        "channel": "socket",
        "model": "simulated",
        "status": "finished",
        "finish_reason": "stop",
        "owner": "web-1",
        "configuration": 1,
        "opened_at": now,
        "deadline_at": now + timedelta(seconds=60),
        "finished_at": now,
        "answer_findings": 0,
        "prompt_tokens": 12,
        "cached_tokens": 4,
        "completion_tokens": 30,
        "cost": "0.00000120",
        "ttft_ms": 41.5,
        "e2e_ms": 180.25,
    }
    row = Exchange.objects.create(organisation=of, deployment=on, **finished | fields)
    Attempt.objects.create(
        exchange=row, number=1, deployment=on, worker="gpu-host-1", status="finished", queued_ms=3.0, ttft_ms=40.0
    )
    return row

"""Tickets and the list of models: what the page needs before it opens its socket."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator, Iterator
from typing import Any
from uuid import uuid4

import pytest
import redis
import redis.asyncio
from django.test import Client
from msgspec import msgpack

from console.accounts.models import Organisation
from console.accounts.principal import Principal
from console.chat import tickets
from console.chat.tickets import Bearer
from gpu_workers.messages import WORKERS_KEY, Heartbeat, worker_key
from gpu_workers.sealing import fingerprint
from gpu_workers.settings import seal_key
from inference.models import Deployment, ModelVersion
from tests.console import people
from tests.services import Services

TICKET, MODELS = "/api/chat/ticket", "/api/models"
SESSION_KEY = "k3" * 16
MEMBER = Bearer(Principal(uuid4(), uuid4(), None), SESSION_KEY)


@pytest.fixture(autouse=True)
def valkey(services: Services, settings: Any) -> Iterator[redis.Redis]:
    """A database of Valkey that nobody else uses: heartbeats and tickets of other tests lie elsewhere."""
    settings.VALKEY_URL = services.valkey.url(database=15)
    with redis.Redis.from_url(settings.VALKEY_URL) as client:
        client.flushdb()
        yield client


@pytest.fixture
async def async_valkey(valkey: redis.Redis, settings: Any) -> AsyncIterator[redis.asyncio.Redis]:
    client = redis.asyncio.Redis.from_url(settings.VALKEY_URL)
    yield client
    await client.aclose()


@pytest.mark.parametrize("bearer", [MEMBER, Bearer(Principal(uuid4(), None, uuid4()))], ids=["member", "program"])
async def test_a_ticket_is_redeemed_once(
    valkey: redis.Redis, async_valkey: redis.asyncio.Redis, bearer: Bearer
) -> None:
    ticket = tickets.issue(valkey, bearer)
    assert await tickets.redeem(async_valkey, ticket) == bearer
    assert await tickets.redeem(async_valkey, ticket) is None


async def test_a_ticket_ends_by_itself(valkey: redis.Redis, async_valkey: redis.asyncio.Redis) -> None:
    ticket = tickets.issue(valkey, MEMBER)
    (key,) = valkey.keys("*")  # type: ignore[misc]
    assert 0 < valkey.ttl(key) <= 30  # type: ignore[operator]
    valkey.pexpireat(key, 1)  # its time has come
    assert await tickets.redeem(async_valkey, ticket) is None


def test_valkey_holds_neither_the_ticket_nor_its_session(valkey: redis.Redis) -> None:
    ticket = tickets.issue(valkey, MEMBER)
    (key,) = valkey.keys("*")  # type: ignore[misc]
    stored = key + valkey.get(key)  # type: ignore[operator]
    assert ticket.encode() not in stored
    assert SESSION_KEY.encode() not in stored
    assert b64encode(SESSION_KEY.encode()) not in stored


@pytest.mark.parametrize("ticket", ["", "x", "a" * 43, "a" * 44, "é" * 43, "a" * 42 + "\n", "a" * 10_000_000])
async def test_what_is_no_ticket_opens_nothing(async_valkey: redis.asyncio.Redis, ticket: str) -> None:
    assert await tickets.redeem(async_valkey, ticket) is None


@pytest.mark.django_db
def test_a_member_gets_a_ticket_in_their_own_name(client: Client, valkey: redis.Redis) -> None:
    user = people.member(people.organisation())
    client.force_login(user)
    response = client.post(TICKET)
    assert response.json()["expires_in"] == 30
    assert response["Cache-Control"] == "no-store"
    (key,) = valkey.keys("ticket:*")  # type: ignore[misc]
    assert str(user.pk).encode() in valkey.get(key)  # type: ignore[operator]


async def redeem(url: str, ticket: str) -> Bearer | None:
    async with redis.asyncio.Redis.from_url(url) as client:
        return await tickets.redeem(client, ticket)


@pytest.mark.django_db
def test_a_ticket_carries_the_session_that_it_was_asked_for_in_and_a_keys_carries_none(
    client: Client, settings: Any
) -> None:
    of = people.organisation()
    _, key = people.api_key(of)
    client.force_login(people.member(of))
    for headers, expected in (({}, client.cookies["sessionid"].value), (people.bearer(key), None)):
        ticket = client.post(TICKET, headers=headers).json()["ticket"]
        bearer = asyncio.run(redeem(settings.VALKEY_URL, ticket))
        assert bearer is not None
        assert bearer.session_key == expected


@pytest.mark.django_db
def test_without_the_broker_there_is_no_ticket(client: Client, settings: Any) -> None:
    client.force_login(people.member(people.organisation()))
    settings.VALKEY_URL = "redis://127.0.0.1:1/0"
    response = client.post(TICKET)
    assert (response.status_code, response.json()["error"]["code"]) == (503, "overloaded")
    assert response["Retry-After"] == "2"


def beat(
    valkey: redis.Redis,
    worker: str,
    deployment: Deployment,
    *,
    engine_ready: bool = True,
    key: bytes | None = None,
) -> None:
    heartbeat = Heartbeat(
        worker,
        deployment.slug,
        deployment.engine,
        engine_ready,
        simulated=True,
        running=0,
        capacity=8,
        seal=fingerprint(key or seal_key()),
    )
    valkey.sadd(WORKERS_KEY, worker)
    valkey.set(worker_key(worker), msgpack.encode(heartbeat), px=3000)


@pytest.fixture
def acme(client: Client, db: None) -> Organisation:
    acme = people.organisation("Acme")
    client.force_login(people.member(acme))
    return acme


def test_it_lists_the_models_and_who_is_ready(client: Client, acme: Organisation, valkey: redis.Redis) -> None:
    first = people.deployment()
    people.deployment("vllm-1", model="smollm2", engine="vllm")
    beat(valkey, "w1", first)
    assert client.get(MODELS).json() == {
        "models": [
            {"name": "simulated", "simulated": True, "ready": True},
            {"name": "smollm2", "simulated": False, "ready": False},
        ]
    }


def test_a_model_is_listed_once_and_ready_if_any_deployment_is(
    client: Client, acme: Organisation, valkey: redis.Redis
) -> None:
    people.deployment("a")
    beat(valkey, "w1", people.deployment("b"))
    assert [model["ready"] for model in client.get(MODELS).json()["models"]] == [True]


def test_a_worker_whose_engine_warms_up_is_not_ready(client: Client, acme: Organisation, valkey: redis.Redis) -> None:
    beat(valkey, "w1", people.deployment(), engine_ready=False)
    valkey.sadd(WORKERS_KEY, "gone", "garbled")
    valkey.set(worker_key("garbled"), b"\xff\x00")
    assert client.get(MODELS).json()["models"][0]["ready"] is False


def test_a_worker_with_another_seal_key_is_not_ready(client: Client, acme: Organisation, valkey: redis.Redis) -> None:
    beat(valkey, "w1", people.deployment(), key=b"x" * 32)
    assert client.get(MODELS).json()["models"][0]["ready"] is False


def test_without_the_broker_no_model_is_ready(client: Client, acme: Organisation, settings: Any) -> None:
    people.deployment()
    settings.VALKEY_URL = "redis://127.0.0.1:1/0"
    assert client.get(MODELS).json()["models"] == [{"name": "simulated", "simulated": True, "ready": False}]


@pytest.mark.parametrize("lifecycle", ["draft", "validated", "retired"])
def test_a_model_that_is_not_served_is_not_listed(client: Client, acme: Organisation, lifecycle: str) -> None:
    people.deployment()
    ModelVersion.objects.update(lifecycle=lifecycle)
    assert client.get(MODELS).json() == {"models": []}


def test_a_disabled_deployment_is_not_listed(client: Client, acme: Organisation) -> None:
    people.deployment()
    Deployment.objects.update(is_enabled=False)
    assert client.get(MODELS).json() == {"models": []}

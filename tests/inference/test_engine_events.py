"""What supervisors tell of their engines is written down once, shown to the operator, and readable to nobody else."""

from __future__ import annotations

import asyncio
import math
import time
from typing import Any
from uuid import uuid4

import msgspec
import pytest
import redis
from django.test import Client

from console.accounts.models import Role
from gpu_workers.connecting import connect
from gpu_workers.engine_events import PLACE, STREAM, EngineEvent, EventSender, Kind
from gpu_workers.identifiers import uuid7
from gpu_workers.messages import WORKERS_KEY, Heartbeat, encode, worker_key
from gpu_workers.sealing import Sealer, fingerprint
from gpu_workers.settings import seal_key
from inference.engine_events import collect_engine_events
from inference.engine_models import EngineEvent as Row
from inference.models import Deployment, ModelVersion
from tests.console import people
from tests.services import Services

pytestmark = pytest.mark.django_db
LINES = ("loading weights", "CUDA out of memory \x00 <b>")


@pytest.fixture
def valkey_url(services: Services, settings: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    url = services.valkey.url(database=12)
    monkeypatch.setenv("BURSAR_SEAL_KEY", "5e" * 32)
    settings.VALKEY_URL = url
    with redis.Redis.from_url(url) as valkey:
        valkey.flushdb()
    return url


def tell(url: str, kind: Kind, *, key: bytes | None = None, **more: Any) -> None:
    async def send() -> None:
        valkey = connect(url)
        await EventSender(valkey, key or seal_key(), "d", "host-1").send("http://127.0.0.1:1", kind, **more)
        await valkey.aclose()

    asyncio.run(send())


def test_an_event_is_written_down_once_with_the_engines_last_words(valkey_url: str) -> None:
    tell(valkey_url, "ready")
    tell(valkey_url, "exited", exit_code=-9, lines=LINES)
    assert collect_engine_events() == 2
    assert collect_engine_events() == 0

    exited = Row.objects.get(kind="exited")
    assert (exited.deployment, exited.host, exited.exit_code) == ("d", "host-1", -9)
    assert exited.lines == "loading weights\nCUDA out of memory  <b>"
    with redis.Redis.from_url(valkey_url) as valkey:
        assert valkey.xlen(STREAM) == 0


def test_nothing_lies_in_clear_and_what_another_key_sealed_is_passed_over(valkey_url: str) -> None:
    tell(valkey_url, "exited", key=b"k" * 32, lines=LINES)
    tell(valkey_url, "active")
    with redis.Redis.from_url(valkey_url) as valkey:
        assert b"weights" not in repr(valkey.xrange(STREAM)).encode()
    assert collect_engine_events() == 1
    assert Row.objects.get().kind == "active"


def test_what_no_supervisor_sent_is_passed_over_and_goes(valkey_url: str) -> None:
    with redis.Redis.from_url(valkey_url) as valkey:
        for fields in ({"x": b"y"}, {"i": b"short", "s": b""}, {"i": b"i" * 16}, {"i": b"i" * 16, "s": b"\xff" * 40}):
            valkey.xadd(STREAM, fields)
        now = time.time()
        times = [("host\x00", now), ("h" * 500, now), ("never", 1e300), ("before", -1.0), ("nan", math.nan)]
        for host, at in (*times, ("code", now)):
            event = EngineEvent("d\x00", host, "e\x00" * 200, "ready", at, 2**40 if host == "code" else 1)
            identifier = uuid7()
            sealed = Sealer(seal_key(), identifier).seal(msgspec.msgpack.encode(event), place=PLACE)
            valkey.xadd(STREAM, {"i": identifier.bytes, "s": sealed})
        assert collect_engine_events() == 2
        assert valkey.xlen(STREAM) == 0
    assert set(Row.objects.values_list("deployment", "host")) == {("d", "host"), ("d", "h" * 100)}


def test_the_operator_reads_them_and_others_do_not(valkey_url: str) -> None:
    tell(valkey_url, "exited", exit_code=1, lines=LINES)
    collect_engine_events()
    acme = people.organisation("Acme")
    page = f"/admin/inference/engineevent/{Row.objects.get().pk}/change/"
    client = Client()
    client.force_login(people.superuser(acme))
    assert "CUDA out of memory  &lt;b&gt;" in client.get(page).content.decode()
    client.force_login(people.member(acme, Role.ADMINISTRATOR))
    assert client.get(page).status_code == 403


@pytest.mark.parametrize(
    ("checksum", "shown"),
    [("", "start 4 of vllm"), ("ab" * 32, "model abababababab, as its version&#x27;s"), ("cd" * 32, "cdcdcd, not its")],
)
def test_a_deployments_page_shows_the_replicas_that_show_life(valkey_url: str, checksum: str, shown: str) -> None:
    deployment: Deployment = people.deployment()
    ModelVersion.objects.update(checksum="ab" * 32)
    with redis.Redis.from_url(valkey_url) as valkey:
        seal = fingerprint(seal_key())
        alive = Heartbeat(
            *("host-1-7", deployment.slug, "vllm", True, False, 3, 256, seal, 2, 0.25),
            epoch=4,
            tokens_per_s=81.5,
            model_checksum=checksum,
        )
        other = Heartbeat("host-2-8", f"other-{uuid4()}", "vllm", True, False, 0, 1, seal)
        foreign = Heartbeat("host-3-9", deployment.slug, "vllm", True, False, 0, 1, "another")
        for beat in (alive, other, foreign):
            valkey.set(worker_key(beat.worker), encode(beat))
            valkey.sadd(WORKERS_KEY, beat.worker)
        valkey.set(worker_key("broken"), b"\xc1")
        valkey.sadd(WORKERS_KEY, "broken", "gone")
    client = Client()
    client.force_login(people.superuser(people.organisation("Acme")))
    page = client.get(f"/admin/inference/deployment/{deployment.pk}/change/").content.decode()
    said = "host-1-7: ready, 3 of 256 answers, 2 waiting in the engine, 81.5 tokens/s, 25% of the context memory"
    assert f"{said}, start 4 of vllm" in page
    assert shown in page
    assert "host-2-8" not in page
    assert "host-3-9: has another seal key, and is sent nothing" in page

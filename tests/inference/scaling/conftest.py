"""A deployment that scales by itself, over a real Valkey whose workers and queues the tests fill."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import redis

from gpu_workers.messages import WORKERS_KEY, Heartbeat, encode, worker_key
from gpu_workers.sealing import fingerprint
from gpu_workers.settings import seal_key
from inference.models import Deployment
from inference.scaling.models import ScalingPolicy
from tests.console import people
from tests.services import Services

DATABASE = 14


@pytest.fixture
def valkey(services: Services, settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[redis.Redis]:
    monkeypatch.setenv("BURSAR_SEAL_KEY", "5e" * 32)
    settings.VALKEY_URL = services.valkey.url(DATABASE)
    with redis.Redis.from_url(settings.VALKEY_URL) as client:
        client.flushdb()
        yield client
        client.flushdb()


def policy_for(deployment: Deployment, **fields: Any) -> ScalingPolicy:
    usual = {"is_enabled": True, "driver": "local", "at_least": 1, "at_most": 8}
    policy = ScalingPolicy(deployment=deployment, **usual | fields)
    policy.full_clean()
    policy.save()
    return policy


@pytest.fixture
def policy(valkey: redis.Redis) -> ScalingPolicy:
    return policy_for(people.deployment("scaled", model="scaled"))


def show(valkey: redis.Redis, worker: str, **said: Any) -> None:
    plain = {"deployment": "scaled", "engine": "vllm", "engine_ready": True, "simulated": False, "running": 0}
    beat = Heartbeat(**{"worker": worker, "capacity": 10, "seal": fingerprint(seal_key()), **plain, **said})
    valkey.set(worker_key(worker), encode(beat))
    valkey.sadd(WORKERS_KEY, worker)

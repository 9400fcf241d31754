"""The models that a caller can name, and whether somebody is there to answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import msgspec
import redis
import structlog

from gpu_workers.messages import WORKERS_KEY, decode_heartbeat, worker_key
from gpu_workers.sealing import fingerprint
from gpu_workers.settings import seal_key
from inference.lifecycle.queries import served_deployments
from inference.models import Deployment, EngineKind

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class AvailableModel:
    name: str
    simulated: bool
    ready: bool


def available_models(valkey: redis.Redis) -> list[AvailableModel]:
    """Every model that is served, the default first. Without the broker none of them is ready."""
    rows = served_deployments().select_related("model_version").order_by("model_version__created_at", "created_at")
    ready = _ready_deployments(valkey)
    by_name: dict[str, list[Deployment]] = {}
    for row in rows:
        by_name.setdefault(row.model_version.name, []).append(row)
    return [
        AvailableModel(
            name=name,
            simulated=all(row.engine == EngineKind.SIMULATED for row in candidates),
            ready=any(row.slug in ready for row in candidates),
        )
        for name, candidates in by_name.items()
    ]


def _ready_deployments(valkey: redis.Redis) -> set[str]:
    try:
        names = sorted(name.decode() for name in cast(set[bytes], valkey.smembers(WORKERS_KEY)))
        beats = cast(list[bytes | None], valkey.mget([worker_key(name) for name in names])) if names else []
    except redis.RedisError as error:
        log.warning("broker_unreachable", error=type(error).__name__)
        return set()
    return {deployment for beat in beats if beat and (deployment := _ready_deployment(beat))}


def _ready_deployment(beat: bytes) -> str | None:
    try:
        heartbeat = decode_heartbeat(beat)
    except msgspec.MsgspecError:
        return None
    usable = heartbeat.engine_ready and heartbeat.seal == fingerprint(seal_key())
    return heartbeat.deployment if usable else None

"""Engine events from the broker into their table, each once; old ones go."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import cast
from uuid import UUID

import msgspec
import redis
import structlog
from django.conf import settings
from django.db.models.functions import Now

from gpu_workers import settings as worker_settings
from gpu_workers.engine_events import STREAM, open_event
from gpu_workers.messages import WORKERS_KEY, Heartbeat, decode_heartbeat, worker_key
from inference.engine_models import EngineEvent

log = structlog.get_logger(__name__)

AT_ONCE = 500
KEPT = timedelta(days=30)


def collect_engine_events() -> int:
    """Write down what supervisors have told since the last time; how many. Raises `redis.RedisError`."""
    seal_key = worker_settings.seal_key()
    with redis.Redis.from_url(settings.VALKEY_URL, socket_timeout=5) as valkey:
        entries = cast(list[tuple[bytes, dict[bytes, bytes]]], valkey.xrange(STREAM, count=AT_ONCE))
        rows = [row for _, fields in entries if (row := _row(seal_key, fields)) is not None]
        EngineEvent.objects.bulk_create(rows, ignore_conflicts=True)
        if entries:  # they are written by now; another who reads them too writes the same rows
            valkey.xdel(STREAM, *(entry for entry, _ in entries))
    EngineEvent.objects.filter(at__lt=Now() - KEPT).delete()
    return len(rows)


def _row(seal_key: bytes, fields: dict[bytes, bytes]) -> EngineEvent | None:
    identifier = UUID(bytes=fields[b"i"])
    event = open_event(seal_key, identifier, fields[b"s"])
    if event is None:
        log.warning("engine_event_does_not_open")
        return None
    # What a database cannot hold is not worth losing the rest for.
    lines = "\n".join(event.lines).replace("\x00", "")
    return EngineEvent(
        id=identifier,
        deployment=event.deployment[:60],
        host=event.host[:100],
        engine=event.engine[:100],
        kind=event.kind,
        at=datetime.fromtimestamp(event.at, UTC),
        exit_code=event.exit_code,
        lines=lines,
    )


def replicas_of(deployment: str) -> list[Heartbeat] | None:
    """The workers of a deployment that show life now, by name; None where the broker does not answer."""
    try:
        with redis.Redis.from_url(settings.VALKEY_URL, socket_timeout=2, socket_connect_timeout=2) as valkey:
            names = sorted(name.decode() for name in cast(set[bytes], valkey.smembers(WORKERS_KEY)))
            found = cast(list[bytes | None], valkey.mget([worker_key(name) for name in names]) if names else [])
    except redis.RedisError:
        return None
    beats = [decoded for beat in found if beat is not None and (decoded := _decoded(beat)) is not None]
    return [beat for beat in beats if beat.deployment == deployment]


def _decoded(beat: bytes) -> Heartbeat | None:
    try:
        return decode_heartbeat(beat)
    except msgspec.MsgspecError:
        return None  # of a worker of another version: it is not counted on either

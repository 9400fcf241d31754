"""Engine events from the broker into their table, each once; old ones go."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import cast
from uuid import UUID

import redis
import structlog
from django.conf import settings
from django.db.models.functions import Now

from gpu_workers import settings as worker_settings
from gpu_workers.engine_events import STREAM, open_event
from inference.engine_models import EngineEvent

log = structlog.get_logger(__name__)

AT_ONCE = 500
KEPT = timedelta(days=30)
LATEST = datetime(9999, 1, 1, tzinfo=UTC).timestamp()


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
    """None, and a line in the log, for what no supervisor with this seal key has sent."""
    identifier, sealed = fields.get(b"i", b""), fields.get(b"s", b"")
    event = open_event(seal_key, UUID(bytes=identifier), sealed) if len(identifier) == 16 else None
    if event is None or not 0 < event.at < LATEST:
        log.warning("engine_event_does_not_open")
        return None
    return EngineEvent(
        id=UUID(bytes=identifier),
        deployment=_storable(event.deployment)[:60],
        host=_storable(event.host)[:100],
        engine=_storable(event.engine)[:100],
        kind=event.kind,
        at=datetime.fromtimestamp(event.at, UTC),
        exit_code=event.exit_code,
        lines=_storable("\n".join(event.lines)),
    )


def _storable(text: str) -> str:
    """Without what PostgreSQL's text cannot hold: that is not worth losing the rest for."""
    return text.replace("\x00", "")

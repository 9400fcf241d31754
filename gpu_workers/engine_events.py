"""What happens to a host's engines, told to the platform: sealed, on a stream of which the newest are kept."""

from __future__ import annotations

import time
from typing import Annotated, Literal
from uuid import UUID

import msgspec
import structlog
from msgspec import Meta, Struct
from redis.asyncio import Redis
from redis.exceptions import RedisError

from gpu_workers.identifiers import uuid7
from gpu_workers.sealing import SealBroken, Sealer

log = structlog.get_logger(__name__)

STREAM = "bursar:engine-events"
KEPT = 1_000
PLACE = "engine-event"

Kind = Literal["ready", "active", "exited", "silent", "stuck"]


class EngineEvent(Struct, frozen=True):
    """`at` is in Unix seconds. `lines` are the last that the engine said before it ended."""

    deployment: str
    host: str
    engine: str
    kind: Kind
    at: float
    exit_code: Annotated[int, Meta(ge=-255, le=255)] | None = None
    lines: tuple[str, ...] = ()


_decoder = msgspec.msgpack.Decoder(EngineEvent)


class EventSender:
    """Tells what happens; a broker that does not answer loses the event and delays nothing."""

    def __init__(self, valkey: Redis, seal_key: bytes, deployment: str, host: str) -> None:
        self._valkey = valkey
        self._seal_key = seal_key
        self._deployment = deployment
        self._host = host

    async def send(self, engine: str, kind: Kind, *, exit_code: int | None = None, lines: tuple[str, ...] = ()) -> None:
        event = EngineEvent(self._deployment, self._host, engine, kind, time.time(), exit_code, lines)
        identifier = uuid7()
        sealed = Sealer(self._seal_key, identifier).seal(msgspec.msgpack.encode(event), place=PLACE)
        try:
            await self._valkey.xadd(STREAM, {"i": identifier.bytes, "s": sealed}, maxlen=KEPT, approximate=True)
        except (RedisError, OSError) as error:
            log.warning("engine_event_lost", kind=kind, error=type(error).__name__)


def open_event(seal_key: bytes, identifier: UUID, sealed: bytes) -> EngineEvent | None:
    """None for one that was sealed with another key, or that is no event."""
    try:
        return _decoder.decode(Sealer(seal_key, identifier).open(sealed, place=PLACE))
    except (SealBroken, msgspec.MsgspecError):
        return None

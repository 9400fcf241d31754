"""What the catalog says of a deployment's engine, told to its hosts through the broker: sealed, a hash for each."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import structlog
from msgspec import Struct
from redis.asyncio import Redis
from redis.exceptions import RedisError

from gpu_workers.sealing import SealBroken, open_fields, seal_fields

log = structlog.get_logger(__name__)

RETRY_S = 1.0


class Specification(Struct, frozen=True):
    """`model` is the version's name and version; `arguments` are the engine's own, as they were approved.

    `checksum` is that of the weights (gpu_workers.model_directory), empty where the catalog has none.
    """

    model: str = ""
    arguments: tuple[str, ...] = ()
    checksum: str = ""


class SpecificationRefused(ValueError):
    """What lies in the broker for this deployment was not told by a platform with this seal key."""


_decoder = msgspec.msgpack.Decoder(Specification)


def specification_key(deployment: str) -> str:
    return f"bursar:specification:{deployment}"


def sealed_fields(seal_key: bytes, deployment: str, specification: Specification) -> dict[str, bytes]:
    """The hash that stands under `specification_key`."""
    return seal_fields(seal_key, msgspec.msgpack.encode(specification), place=specification_key(deployment))


async def read_specification(valkey: Redis, seal_key: bytes, deployment: str) -> Specification | None:
    """None where the platform has told nothing. Raises `SpecificationRefused`.

    Waits for the broker: an engine that starts without its arguments is another engine.
    """
    while True:
        try:
            fields: Any = await valkey.hgetall(specification_key(deployment))
            return _opened(seal_key, deployment, fields) if fields else None
        except (RedisError, OSError) as error:
            log.warning("specification_not_read", error=type(error).__name__)
            await asyncio.sleep(RETRY_S)


def _opened(seal_key: bytes, deployment: str, fields: dict[bytes, Any]) -> Specification:
    try:
        return _decoder.decode(open_fields(seal_key, fields, place=specification_key(deployment)))
    except (SealBroken, msgspec.MsgspecError):
        raise SpecificationRefused("the platform at this broker has another seal key.") from None

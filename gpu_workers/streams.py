"""Reads of Valkey streams, with the types that this platform's clients give: everything is bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from redis.asyncio import Redis

Entry = tuple[str, dict[bytes, bytes]]


async def read_stream(valkey: Redis, key: str, after: str, *, count: int, block_ms: int | None = None) -> list[Entry]:
    """The entries after the identifier `after`, waiting up to `block_ms` for the first. Raises `RedisError`."""
    answer = await valkey.xread({key: after}, count=count, block=block_ms)
    streams = cast(list[tuple[bytes, list[tuple[bytes, dict[bytes, bytes]]]]], answer or [])
    return [(entry_id.decode(), fields) for _, entries in streams for entry_id, fields in entries]


async def newest_entry(valkey: Redis, key: str) -> Entry | None:
    """The last entry of a stream; None where it is empty or not there. Raises `RedisError`."""
    newest = cast(list[tuple[bytes, dict[bytes, bytes]]], await valkey.xrevrange(key, count=1))
    return (newest[0][0].decode(), newest[0][1]) if newest else None


async def set_members(valkey: Redis, key: str) -> list[str]:
    """The members of a set of names, sorted. Raises `RedisError`."""
    members: Any = await valkey.smembers(key)
    return sorted(member.decode() for member in members)


async def present_values(valkey: Redis, keys: Sequence[str | bytes]) -> list[bytes]:
    """The values of those keys that are there. Raises `RedisError`."""
    values: Any = await valkey.mget(list(keys)) if keys else []
    return [value for value in values if value is not None]

"""The reply stream of a web process: what was read is forgotten, and it outlives its reader by a minute at most."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from uuid import uuid4

import pytest
from redis.asyncio import Redis

from gpu_workers.replies import STREAM_TTL_S
from inference.replies import ReplyReader, Sealed

PATIENCE_S = 30.0


@pytest.fixture
async def reader(valkeys: list[Redis], monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ReplyReader]:
    monkeypatch.setattr("inference.replies.TRIM_EVERY_S", 0.1)
    monkeypatch.setattr("inference.replies.BLOCK_MS", 100)
    reader = ReplyReader(valkeys[0], f"reader-{uuid4()}")
    reader.start()
    yield reader
    await reader.stop()


async def becomes(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not await condition():  # type: ignore[misc]
            await asyncio.sleep(0.02)


async def test_frames_reach_the_attempt_that_waits_and_the_stream_gets_an_end(
    valkeys: list[Redis], reader: ReplyReader
) -> None:
    valkey, exchange = valkeys[1], uuid4()
    inbox = reader.open(exchange, 1)
    # Written as no worker does, without an end: the reader sees to it, too.
    await valkey.xadd(reader.stream, {"x": exchange.bytes, "a": 2, "n": 0, "s": b"of another attempt"})
    await valkey.xadd(reader.stream, {"x": exchange.bytes, "a": 1, "n": 0, "s": b"sealed"})

    async with asyncio.timeout(PATIENCE_S):
        assert await inbox.get() == Sealed(0, b"sealed")
    assert inbox.empty()

    async def ends() -> bool:
        return 0 < await valkey.ttl(reader.stream) <= STREAM_TTL_S

    await becomes(ends)
    await reader.stop()
    assert await ends()

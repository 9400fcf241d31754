"""The reply stream: one per web process, read by one task, given out to the attempts that wait for it."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from uuid import UUID

import structlog
from redis.asyncio import Redis
from redis.exceptions import RedisError

from gpu_workers.replies import STREAM_TTL_S
from gpu_workers.streams import read_stream

log = structlog.get_logger(__name__)

BLOCK_MS = 1_000
READ_COUNT = 500
TRIM_EVERY_S = 5.0
MANY = 32
GATHER_S = 0.002


@dataclass(frozen=True, slots=True)
class Sealed:
    """A frame as it came: still sealed, with its place in the attempt."""

    sequence: int
    data: bytes


class BrokerLost:
    """Put into every inbox when Valkey stops answering: frames may be missing from here on."""


class CancelAsked:
    """Put into an inbox by the exchange itself, so that its reader wakes at once."""


Inbox = asyncio.Queue[Sealed | BrokerLost | CancelAsked]


class ReplyReader:
    def __init__(self, valkey: Redis, owner: str) -> None:
        self.stream = f"bursar:reply:{owner}"
        self._valkey = valkey
        self._inboxes: dict[tuple[bytes, int], Inbox] = {}
        self._last = "0-0"
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._read(), name="reply-reader")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def open(self, exchange: UUID, attempt: int) -> Inbox:
        """The inbox of an attempt; open it before the task is sent and `close` it after."""
        inbox: Inbox = asyncio.Queue()
        self._inboxes[exchange.bytes, attempt] = inbox
        return inbox

    def close(self, exchange: UUID, attempt: int) -> None:
        self._inboxes.pop((exchange.bytes, attempt), None)

    async def _read(self) -> None:
        forget_at = 0.0
        while True:
            try:
                entries = await read_stream(self._valkey, self.stream, self._last, count=READ_COUNT, block_ms=BLOCK_MS)
                for entry_id, fields in entries:
                    self._deliver(fields)
                    self._last = entry_id
                if len(self._inboxes) > MANY:
                    await asyncio.sleep(GATHER_S)  # one read then brings the frames of many answers
                if time.monotonic() >= forget_at:
                    await self._forget_read()
                    forget_at = time.monotonic() + TRIM_EVERY_S
            except (RedisError, OSError) as error:
                log.warning("reply_stream_lost", error=type(error).__name__, waiting=len(self._inboxes))
                for inbox in self._inboxes.values():
                    inbox.put_nowait(BrokerLost())
                self._last = "0-0"  # a Valkey that lost its data numbers from the beginning
                await asyncio.sleep(0.5)

    def _deliver(self, fields: dict[bytes, bytes]) -> None:
        inbox = self._inboxes.get((fields[b"x"], int(fields[b"a"])))
        if inbox is not None:
            inbox.put_nowait(Sealed(int(fields[b"n"]), fields[b"s"]))

    async def _forget_read(self) -> None:
        async with self._valkey.pipeline(transaction=False) as pipe:
            pipe.xtrim(self.stream, minid=self._last, approximate=True)
            pipe.expire(self.stream, STREAM_TTL_S)
            await pipe.execute()

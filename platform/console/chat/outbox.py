"""What waits to be sent on one socket: in order, bounded, and never in the way of others."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

MAX_BACKLOG_BYTES = 1_048_576

SendText = Callable[[str], Awaitable[None]]


class Outbox:
    """`put` never waits. Past `MAX_BACKLOG_BYTES` the reader has stopped reading, and `on_overflow` is called once."""

    def __init__(self, send: SendText, on_overflow: Callable[[], None]) -> None:
        self._send = send
        self._on_overflow = on_overflow
        self._frames: deque[bytes] = deque()
        self._bytes = 0
        self._sender: asyncio.Task[None] | None = None
        self._closed = False

    def put(self, frame: bytes) -> None:
        if self._closed:
            return
        self._frames.append(frame)
        self._bytes += len(frame)
        if self._bytes > MAX_BACKLOG_BYTES:
            self.close()
            self._on_overflow()
        elif self._sender is None:
            # Only while there is something to send: an idle socket has no task of its own.
            self._sender = asyncio.create_task(self._send_all())

    def close(self) -> None:
        """Send nothing more and forget what waits."""
        self._closed = True
        self._frames.clear()
        self._bytes = 0
        if self._sender is not None:
            self._sender.cancel()

    async def _send_all(self) -> None:
        try:
            while self._frames:
                frame = self._frames[0]
                await self._send(frame.decode())
                if self._frames:
                    self._frames.popleft()
                    self._bytes -= len(frame)
        except (OSError, RuntimeError):
            self.close()  # the connection is gone; its end is told to the consumer by the server
        finally:
            self._sender = None

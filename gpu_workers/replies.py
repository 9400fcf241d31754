"""The way back: an attempt's frames, sealed and numbered, onto the stream of the process that asked."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from redis.asyncio import Redis

from gpu_workers.messages import Claimed, Delta, Frame, GenerateTask, encode
from gpu_workers.sealing import Sealer, frame_place

# The answer's beginning goes out token by token, since inspection holds a word until the next one begins;
# after that, deltas are gathered for this long.
EAGER_DELTAS = 4
COALESCE_S = 0.025
# A stream that nobody reads any more must not grow without end. Far above what a living reader leaves.
STREAM_MAXLEN = 50_000


class ReplyWriter:
    """Frames of one attempt, in order. Not for use by two tasks at once."""

    def __init__(self, valkey: Redis, sealer: Sealer, task: GenerateTask) -> None:
        self._valkey = valkey
        self._sealer = sealer
        self._task = task
        self._sequence = 0
        self._deltas = 0
        self._held: list[str] = []
        self._flusher: asyncio.Task[None] | None = None
        self._lock = asyncio.Lock()

    async def delta(self, text: str) -> None:
        self._deltas += 1
        if self._flusher is not None and self._flusher.done():
            self._flusher.result()  # a flush that failed ends the attempt
        if self._deltas <= EAGER_DELTAS:
            await self._send(Delta(text))
            return
        self._held.append(text)
        if self._flusher is None or self._flusher.done():
            self._flusher = asyncio.create_task(self._flush_later())

    async def frame(self, frame: Frame) -> None:
        """Send what is held, then `frame`."""
        if self._flusher is not None and not self._flusher.done():
            self._flusher.cancel()
        await self._flush()
        await self._send(frame)

    async def claim(self, frame: Claimed, cancelled: str) -> bool:
        """Send the first frame; whether the attempt was cancelled before it was taken."""
        async with self._valkey.pipeline(transaction=False) as pipe:
            self._add(pipe, frame)
            pipe.exists(cancelled)
            _, found = await pipe.execute()
        return bool(found)

    async def _flush_later(self) -> None:
        await asyncio.sleep(COALESCE_S)
        # Shielded: a frame that cancels the wait must not cancel a send that has begun.
        await asyncio.shield(self._flush())

    async def _flush(self) -> None:
        async with self._lock:
            if self._held:
                text = "".join(self._held)
                self._held.clear()
                await self._add(self._valkey, Delta(text))

    async def _send(self, frame: Frame) -> None:
        async with self._lock:
            await self._add(self._valkey, frame)

    def _add(self, client: Redis, frame: Frame) -> Awaitable[object]:
        """Append one frame, at once or as part of a pipeline."""
        task = self._task
        sealed = self._sealer.seal(encode(frame), place=frame_place(task.attempt, self._sequence))
        fields = {"x": task.exchange.bytes, "a": task.attempt, "n": self._sequence, "s": sealed}
        self._sequence += 1
        return client.xadd(task.reply_to, fields, maxlen=STREAM_MAXLEN, approximate=True)  # type: ignore[arg-type]

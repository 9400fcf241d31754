"""The way back: frames of attempts, sealed and numbered, onto the streams of the processes that asked."""

from __future__ import annotations

import asyncio

from redis.asyncio import Redis
from redis.exceptions import RedisError

from gpu_workers.messages import Delta, Frame, GenerateTask, Usage, encode
from gpu_workers.sealing import Sealer, frame_place

# The answer's beginning goes out token by token, since inspection holds a word until the next one begins;
# after that, deltas are gathered for this long.
EAGER_DELTAS = 3
COALESCE_S = 0.025
# A stream that nobody reads any more must not grow without end. Far above what a living reader leaves.
STREAM_MAXLEN = 50_000
# And it disappears this long after its last frame: the process that it belongs to may be dead.
STREAM_TTL_S = 60

Fields = dict[str, bytes | int]


class ReplyChannel:
    """Sends the frames of every attempt of this worker, in the order in which they were handed over."""

    def __init__(self, valkey: Redis) -> None:
        self._valkey = valkey
        self._waiting: list[tuple[str, Fields, asyncio.Future[None]]] = []
        self._sender: asyncio.Task[None] | None = None

    def send(self, stream: str, fields: Fields) -> asyncio.Future[None]:
        """Done when Valkey has the frame; fails with `RedisError`."""
        sent: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        sent.add_done_callback(lambda future: future.cancelled() or future.exception())
        self._waiting.append((stream, fields, sent))
        if self._sender is None:
            self._sender = asyncio.create_task(self._send_all())
        return sent

    async def _send_all(self) -> None:
        try:
            while self._waiting:
                batch, self._waiting = self._waiting, []
                await self._send(batch)  # meanwhile others gather
        finally:
            self._sender = None

    async def _send(self, batch: list[tuple[str, Fields, asyncio.Future[None]]]) -> None:
        error: BaseException | None = None
        try:
            async with self._valkey.pipeline(transaction=False) as pipe:
                for stream, fields, _ in batch:
                    pipe.xadd(stream, fields, maxlen=STREAM_MAXLEN, approximate=True)  # type: ignore[arg-type]
                for stream in {stream for stream, _, _ in batch}:
                    pipe.expire(stream, STREAM_TTL_S)
                await pipe.execute()
        except (RedisError, OSError) as failure:
            error = failure
        for _, _, sent in batch:
            if sent.done():
                continue
            if error is None:
                sent.set_result(None)
            else:
                sent.set_exception(RedisError(type(error).__name__))


class ReplyWriter:
    """Frames of one attempt, in order."""

    def __init__(self, channel: ReplyChannel, sealer: Sealer, task: GenerateTask) -> None:
        self._channel = channel
        self._sealer = sealer
        self._task = task
        self._sequence = 0
        self._deltas = 0
        self._held: list[str] = []
        self._held_usage: Usage | None = None
        self._flush_at: asyncio.TimerHandle | None = None
        self._last: asyncio.Future[None] | None = None

    def delta(self, text: str, usage: Usage) -> None:
        """Send or hold some text. Raises `RedisError` where what was sent before did not arrive."""
        if self._last is not None and self._last.done():
            self._last.result()
        self._deltas += 1
        if self._deltas <= EAGER_DELTAS:
            self._send(Delta(text, usage))
            return
        self._held.append(text)
        self._held_usage = usage
        if self._flush_at is None:
            self._flush_at = asyncio.get_running_loop().call_later(COALESCE_S, self._flush)

    def now(self, frame: Frame) -> None:
        """Send `frame` and do not wait; a failure shows with the next one."""
        self._send(frame)

    async def frame(self, frame: Frame) -> None:
        """Send what is held, then `frame`, and wait until it has arrived. Raises `RedisError`."""
        self._flush()
        await asyncio.shield(self._send(frame))

    def _flush(self) -> None:
        if self._flush_at is not None:
            self._flush_at.cancel()
            self._flush_at = None
        if self._held:
            text = "".join(self._held)
            self._held.clear()
            self._send(Delta(text, self._held_usage))

    def _send(self, frame: Frame) -> asyncio.Future[None]:
        task = self._task
        sealed = self._sealer.seal(encode(frame), place=frame_place(task.attempt, self._sequence))
        fields: Fields = {"x": task.exchange.bytes, "a": task.attempt, "n": self._sequence, "s": sealed}
        self._sequence += 1
        self._last = self._channel.send(task.reply_to, fields)
        return self._last

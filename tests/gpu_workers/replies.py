"""The reading end of a reply stream, for tests."""

from __future__ import annotations

from redis.asyncio import Redis

from gpu_workers.messages import Delta, Frame, GenerateTask, decode_frame
from gpu_workers.sealing import Sealer, frame_place
from tests.gpu_workers.tasks import SEAL_KEY


async def frames_of(valkey: Redis, task: GenerateTask) -> list[Frame]:
    """All frames of an attempt in the order of the stream. Fails where their numbers have a gap."""
    sealer = Sealer(SEAL_KEY, task.exchange)
    frames = []
    for expected, (_, fields) in enumerate(await valkey.xrange(task.reply_to)):
        assert fields[b"x"] == task.exchange.bytes
        assert int(fields[b"n"]) == expected
        frames.append(decode_frame(sealer.open(fields[b"s"], place=frame_place(task.attempt, expected))))
    return frames


def text_of(frames: list[Frame]) -> str:
    return "".join(frame.text for frame in frames if isinstance(frame, Delta))

"""The way back: text and order are kept, and numbers have no gap whenever the attempt is cut."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress

import pytest
from redis.asyncio import Redis

from gpu_workers.messages import Claimed, Delta, Done, Usage
from gpu_workers.replies import EAGER_DELTAS, STREAM_TTL_S, ReplyChannel, ReplyWriter
from gpu_workers.sealing import Sealer
from tests.gpu_workers.replies import frames_of, text_of
from tests.gpu_workers.tasks import SEAL_KEY, task

DONE = Done("stop", Usage(1, 0, 1))


def made(tokens: int) -> Usage:
    return Usage(5, 0, tokens)


async def test_text_and_order_are_kept_and_later_deltas_are_gathered(valkey: Redis) -> None:
    asked = task()
    writer = ReplyWriter(ReplyChannel(valkey), Sealer(SEAL_KEY, asked.exchange), asked)
    words = [f"{n} " for n in range(200)]

    await writer.frame(Claimed("w"))
    for number, word in enumerate(words, start=1):
        writer.delta(word, made(number))
    await writer.frame(DONE)

    frames = await frames_of(valkey, asked)
    assert frames[0] == Claimed("w")
    assert frames[-1] == DONE
    assert text_of(frames) == "".join(words)
    assert frames[1 : 1 + EAGER_DELTAS] == [
        Delta(word, made(number)) for number, word in enumerate(words[:EAGER_DELTAS], start=1)
    ]
    assert len(frames) < 100


async def test_what_is_gathered_is_sent_without_waiting_for_more(valkey: Redis) -> None:
    asked = task()
    writer = ReplyWriter(ReplyChannel(valkey), Sealer(SEAL_KEY, asked.exchange), asked)
    for number, word in enumerate("abcdef", start=1):
        writer.delta(word, made(number))
    async with asyncio.timeout(10):
        while text_of(await frames_of(valkey, asked)) != "abcdef":
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("seed", range(20))
async def test_a_cut_at_any_moment_leaves_no_gap_and_no_text_after_the_last_frame(valkey: Redis, seed: int) -> None:
    rng = random.Random(seed)
    asked = [task() for _ in range(20)]

    channel = ReplyChannel(valkey)

    async def run(number: int) -> None:
        own = asked[number]
        writer = ReplyWriter(channel, Sealer(SEAL_KEY, own.exchange), own)

        async def work() -> None:
            await writer.frame(Claimed("w"))
            for n in range(60):
                writer.delta(f"{n} ", made(n + 1))
                await asyncio.sleep(0.001 if n > 6 else 0)

        working = asyncio.create_task(work())
        for _ in range(rng.randrange(60)):
            await asyncio.sleep(0)
        await asyncio.sleep(rng.choice([0, 0, 0, 0.001, 0.03]))
        working.cancel()
        with suppress(asyncio.CancelledError):
            await working
        await writer.frame(DONE)

    await asyncio.gather(*(run(number) for number in range(20)))
    await asyncio.sleep(0.05)

    for own in asked:
        frames = await frames_of(valkey, own)
        assert frames[-1] == DONE
        assert frames.count(DONE) == 1
        assert "".join(f"{n} " for n in range(60)).startswith(text_of(frames))
        # Whatever of it arrives, what it is billed for by its last delta is what arrived.
        billed = [frame.usage for frame in frames if isinstance(frame, Delta)]
        assert billed[-1:] == [made(count) for count in [text_of(frames).count(" ")] if count]


async def test_nothing_that_was_said_lies_in_clear_on_the_stream(valkey: Redis) -> None:
    asked = task()
    writer = ReplyWriter(ReplyChannel(valkey), Sealer(SEAL_KEY, asked.exchange), asked)
    writer.delta("xyzzysecret", made(1))
    await writer.frame(DONE)
    assert text_of(await frames_of(valkey, asked)) == "xyzzysecret"
    assert b"xyzzysecret" not in await valkey.dump(asked.reply_to)


async def test_a_stream_that_nobody_reads_disappears(valkey: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = task()
    writer = ReplyWriter(ReplyChannel(valkey), Sealer(SEAL_KEY, asked.exchange), asked)
    await writer.frame(Claimed("w"))
    assert 0 < await valkey.ttl(asked.reply_to) <= STREAM_TTL_S

    monkeypatch.setattr("gpu_workers.replies.STREAM_TTL_S", 1)
    await writer.frame(DONE)
    assert len(await frames_of(valkey, asked)) == 2
    async with asyncio.timeout(30):
        while await valkey.exists(asked.reply_to):
            await asyncio.sleep(0.05)

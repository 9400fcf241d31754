"""Generation over several attempts, with workers that do what the test says: how it ends when nothing can go on."""

from __future__ import annotations

import asyncio
from base64 import b64decode
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import msgspec
import pytest
from celery import Celery
from redis.asyncio import Redis

from gpu_workers.connecting import connect
from gpu_workers.messages import (
    WORKERS_KEY,
    ChatMessage,
    Claimed,
    Delta,
    Done,
    Failed,
    Frame,
    GenerateTask,
    Heartbeat,
    Sampling,
    Usage,
    cancelled_key,
    decode_task,
    encode,
    worker_key,
)
from gpu_workers.replies import ReplyChannel, ReplyWriter
from gpu_workers.sealing import Sealer, fingerprint, task_place
from gpu_workers.transport import configure_transport, own_queue
from inference.catalog import Candidate
from inference.dispatch import Dispatcher, Prompt
from inference.errors import Refusal
from inference.fleet import Fleet
from inference.generation import MAX_ATTEMPTS, MAX_WITHOUT_PROGRESS, Generation
from inference.publishing import list_of
from inference.replies import ReplyReader
from tests.inference.routing.scenes import candidate
from tests.services import Services

SEAL_KEY = b"g" * 32
PATIENCE_S = 30.0
PLACE = candidate("place")


class Worker:
    """Takes tasks from the queues and answers with the frames it is given; it survives what it fails."""

    def __init__(self, valkey: Redis, name: str, place: Candidate = PLACE) -> None:
        self.valkey, self.name, self.place = valkey, name, place
        self.epoch = 1
        self._channel = ReplyChannel(valkey)

    async def beat(self) -> None:
        beat = Heartbeat(
            self.name, self.place.deployment, "vllm", True, False, 0, 8, fingerprint(SEAL_KEY), epoch=self.epoch
        )
        await self.valkey.set(worker_key(self.name), encode(beat))
        await self.valkey.sadd(WORKERS_KEY, self.name)

    async def take(self, *frames: Frame) -> GenerateTask:
        """The next task from the deployment's queue or its own, after answering it with `frames`."""
        queues = [own_queue(self.place.queue, self.name), self.place.queue]
        _, message = await self.valkey.brpop([list_of(queue, 0) for queue in queues], timeout=PATIENCE_S)
        body = msgspec.json.decode(b64decode(msgspec.json.decode(message)["body"]))
        exchange, attempt, sealed = body[0]
        task = decode_task(Sealer(SEAL_KEY, UUID(exchange)).open(b64decode(sealed), place=task_place(attempt)))
        reply = ReplyWriter(self._channel, Sealer(SEAL_KEY, task.exchange), task)
        for frame in (Claimed(self.name, self.epoch), *frames):
            await reply.frame(frame)
        return task


@pytest.fixture
async def valkey(services: Services) -> AsyncIterator[Redis]:
    client = connect(services.valkey.url(database=13))
    await client.flushdb()
    yield client
    await client.aclose()


@pytest.fixture
async def dispatcher(valkey: Redis) -> AsyncIterator[Dispatcher]:
    app = Celery("tests", set_as_current=False)
    configure_transport(app)
    replies, fleet = ReplyReader(valkey, f"tests-{uuid4()}"), Fleet(valkey, fingerprint(SEAL_KEY))
    replies.start()
    fleet.start()
    yield Dispatcher(app, valkey, replies, fleet, SEAL_KEY, "tests")
    await fleet.stop()
    await replies.stop()


@pytest.fixture
async def worker(valkey: Redis) -> Worker:
    worker = Worker(valkey, "w")
    await worker.beat()
    return worker


def prompt(**more: Any) -> Prompt:
    fields: dict[str, Any] = {
        "exchange_id": uuid4(),
        "request_id": "r",
        "messages": (ChatMessage("user", "why"),),
        "sampling": Sampling(max_tokens=10, seed=7),
        "cache_salt": "",
        "deadline_at": datetime.now(UTC) + timedelta(seconds=PATIENCE_S),
    }
    return Prompt(**fields | more)


async def read(generation: Generation) -> str:
    async with asyncio.timeout(PATIENCE_S):
        await generation.start()
        return "".join([text async for text in generation.text()])


def broken(tokens: int = 0) -> Failed:
    return Failed("engine_failed", "It broke.", Usage(5, 0, tokens))


async def test_an_answer_goes_on_after_what_was_said_with_what_is_left_of_its_tokens(
    dispatcher: Dispatcher, worker: Worker
) -> None:
    generation = Generation(dispatcher, PLACE, prompt())
    reading = asyncio.create_task(read(generation))
    first = await worker.take(Delta("the sky ", Usage(5, 0, 3)), broken(3))
    second = await worker.take(Delta(" is blue", Usage(8, 0, 2)), Done("stop", Usage(8, 0, 2)))

    assert await reading == "the sky is blue"
    assert (first.continued, first.sampling.max_tokens) == ("", 10)
    assert (second.continued, second.sampling.max_tokens, second.sampling.seed) == ("the sky", 7, 7)
    assert generation.usage == Usage(5, 0, 5)


async def test_an_answer_whose_engines_all_break_is_given_to_so_many_and_then_refused(
    dispatcher: Dispatcher, worker: Worker
) -> None:
    generation = Generation(dispatcher, PLACE, prompt())
    reading = asyncio.create_task(read(generation))
    for number in range(MAX_ATTEMPTS):
        await worker.take(Delta(f"{number}", Usage(5, 0, 1)), broken(1))
        worker.epoch += 1
        await worker.beat()
    with pytest.raises(Refusal) as refused:
        await reading

    assert refused.value.code == "engine_failed"
    assert len(generation.attempts) == MAX_ATTEMPTS
    assert generation.usage == Usage(5, 0, MAX_ATTEMPTS)


async def test_a_prompt_that_gets_nowhere_is_refused_sooner(dispatcher: Dispatcher, worker: Worker) -> None:
    generation = Generation(dispatcher, PLACE, prompt())
    reading = asyncio.create_task(read(generation))
    for _ in range(MAX_WITHOUT_PROGRESS):
        await worker.take(broken())
        worker.epoch += 1
        await worker.beat()
    with pytest.raises(Refusal) as refused:
        await reading

    assert refused.value.code == "engine_failed"
    assert len(generation.attempts) == MAX_WITHOUT_PROGRESS
    assert generation.usage == Usage(5, 0, 0)


async def test_an_answer_of_which_only_the_last_frame_is_missing_is_whole(
    dispatcher: Dispatcher, worker: Worker
) -> None:
    generation = Generation(dispatcher, PLACE, prompt(sampling=Sampling(max_tokens=3)))
    reading = asyncio.create_task(read(generation))
    await worker.take(Delta("the sky is", Usage(5, 0, 3)), broken(3))

    assert await reading == "the sky is"
    assert generation.finish_reason == "length"
    assert len(generation.attempts) == 1


async def test_what_was_lost_is_told_to_stop_and_its_late_frames_go_nowhere(
    dispatcher: Dispatcher, worker: Worker, valkey: Redis
) -> None:
    generation = Generation(dispatcher, PLACE, prompt())
    reading = asyncio.create_task(read(generation))
    task = await worker.take(Delta("a", Usage(5, 0, 1)), broken(1), Delta("b", Usage(5, 0, 2)))
    await worker.take(Delta("c", Usage(6, 0, 1)), Done("stop", Usage(6, 0, 1)))

    assert await reading == "ac"
    assert await valkey.exists(cancelled_key(task.exchange, 1))


async def test_a_cancel_ends_the_wait_for_another_worker(dispatcher: Dispatcher, worker: Worker) -> None:
    generation = Generation(dispatcher, PLACE, prompt())
    reading = asyncio.create_task(read(generation))
    await worker.take(Delta("a", Usage(5, 0, 1)))
    await worker.valkey.delete(worker_key("w"))  # and with it every sign of life
    async with asyncio.timeout(PATIENCE_S):
        while not generation.attempts[0].error_code:
            await asyncio.sleep(0.05)
    generation.cancel()

    assert await reading == "a"
    assert generation.finish_reason == "cancelled"
    assert generation.usage == Usage(5, 0, 1)


@pytest.mark.parametrize("again", ["another answer", "the"])
async def test_an_external_server_that_says_something_else_ends_the_answer(
    dispatcher: Dispatcher, valkey: Redis, again: str
) -> None:
    external = replace(PLACE, external=True, continues=False)
    worker = Worker(valkey, "w", external)
    await worker.beat()
    generation = Generation(dispatcher, external, prompt())
    reading = asyncio.create_task(read(generation))
    await worker.take(Delta("the sky", Usage(5, 0, 2)), broken(2))
    task = await worker.take(Delta(again, Usage(5, 0, 1)), Done("stop", Usage(5, 0, 1)))
    with pytest.raises(Refusal) as refused:
        await reading

    assert refused.value.code == "engine_failed"
    assert (task.continued, task.sampling.max_tokens) == ("", 10)
    assert generation.attempts[-1].error_code == "answers_differ"
    assert generation.usage == Usage(5, 0, 2)

"""Asks a version's deployment through its queue, as exchanges are asked, for a process that is no web process."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from celery import Celery
from django.conf import settings
from redis.asyncio import Redis

from gpu_workers import settings as worker_settings
from gpu_workers.connecting import connect
from gpu_workers.identifiers import uuid7
from gpu_workers.messages import HEARTBEAT_TTL_MS, ChatMessage, Sampling, owner_key
from gpu_workers.sealing import fingerprint
from gpu_workers.transport import configure_transport
from inference.catalog import Candidate
from inference.dispatch import Dispatcher, Prompt
from inference.errors import Refusal
from inference.fleet import Fleet
from inference.generation import Generation
from inference.replies import ReplyReader

AT_ONCE = 4
READY_TIMEOUT_S = 10.0
ANSWER_TIMEOUT_S = 120


@dataclass(frozen=True, slots=True)
class Question:
    prompt: str
    max_tokens: int


@dataclass(frozen=True, slots=True)
class Answer:
    text: str
    completion_tokens: int


async def ask_all(candidate: Candidate, questions: Sequence[Question]) -> list[Answer]:
    """The answers in order. Raises `Refusal` when one of them does not come: a part of a run is no run."""
    async with _dispatcher() as dispatcher:
        ready = await dispatcher.fleet.wait_ready([candidate.deployment], timeout_s=READY_TIMEOUT_S)
        if ready is None:
            raise Refusal("overloaded", "No worker of the deployment is ready.", retry_after_s=5)
        room = asyncio.Semaphore(AT_ONCE)

        async def ask(question: Question) -> Answer:
            async with room:
                return await _ask(dispatcher, candidate, question)

        return list(await asyncio.gather(*(ask(question) for question in questions)))


async def _ask(dispatcher: Dispatcher, candidate: Candidate, question: Question) -> Answer:
    exchange = uuid7()
    prompt = Prompt(
        exchange_id=exchange,
        request_id=str(exchange),
        messages=(ChatMessage("user", question.prompt),),
        sampling=Sampling(max_tokens=question.max_tokens, temperature=0.0),
        cache_salt=secrets.token_hex(16),
        deadline_at=datetime.now(UTC) + timedelta(seconds=ANSWER_TIMEOUT_S),
        priority="batch",  # nobody waits for an evaluation as a user waits for an answer
    )
    generation = Generation(dispatcher, candidate, prompt)
    try:
        await generation.start()
        text = "".join([piece async for piece in generation.text()])
    finally:
        await generation.close()
    return Answer(text, generation.usage.completion_tokens)


@asynccontextmanager
async def _dispatcher() -> AsyncIterator[Dispatcher]:
    owner = f"evaluation-{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
    seal_key = worker_settings.seal_key()
    app = Celery("evaluation", set_as_current=False)
    configure_transport(app)
    async with AsyncExitStack() as stack:
        valkey = connect(settings.VALKEY_URL)
        stack.push_async_callback(valkey.aclose)
        replies, fleet = ReplyReader(valkey, owner), Fleet(valkey, fingerprint(seal_key))
        dispatcher = Dispatcher(app, valkey, replies, fleet, seal_key, owner)
        life = asyncio.create_task(_show_life(valkey, owner), name="life")
        stack.callback(life.cancel)
        for part in (replies, fleet):
            part.start()
            stack.push_async_callback(part.stop)
        yield dispatcher


async def _show_life(valkey: Redis, owner: str) -> None:
    """Workers give up the attempts of a process that shows no life."""
    while True:
        await valkey.set(owner_key(owner), b"1", px=HEARTBEAT_TTL_MS)
        await asyncio.sleep(1.0)

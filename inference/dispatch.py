"""Dispatch: a prompt goes to a deployment's queue through Celery, and a cancel to whichever worker has it."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

import structlog
from celery import Celery
from msgspec import structs
from redis.asyncio import Redis
from redis.exceptions import RedisError

from gpu_workers.messages import CANCEL_CHANNEL, ChatMessage, GenerateTask, Sampling, cancelled_key, encode
from gpu_workers.sealing import Sealer, task_place
from gpu_workers.transport import GENERATE, own_queue
from inference.admission import broker_gone
from inference.events import Priority
from inference.fleet import Fleet
from inference.publishing import TaskMessages, list_of
from inference.replies import ReplyReader
from inference.snapshot import Candidate

log = structlog.get_logger(__name__)

CANCELLED_TTL_S = 600
OWN_QUEUE_TTL_S = 600
# Lower goes first in both; those of the queue are among `PRIORITY_STEPS`.
QUEUE_PRIORITIES: dict[Priority, int] = {"interactive": 0, "standard": 3, "batch": 6}
ENGINE_PRIORITIES: dict[Priority, int] = {"interactive": 0, "standard": 10, "batch": 20}


@dataclass(frozen=True, slots=True)
class Prompt:
    """What a worker is asked for. `deadline_at` is aware UTC; `continued` is how the answer begins already."""

    exchange_id: UUID
    request_id: str
    messages: tuple[ChatMessage, ...]
    sampling: Sampling
    cache_salt: str
    deadline_at: datetime
    priority: Priority = "interactive"
    continued: str = ""

    def after(self, said: str, tokens: int) -> Prompt:
        """The same, to go on after `said`: so many tokens of the answer are made already."""
        sampling = structs.replace(self.sampling, max_tokens=self.sampling.max_tokens - tokens)
        return replace(self, continued=said, sampling=sampling)


class Dispatcher:
    """Sends attempts and cancels. One per process."""

    def __init__(
        self, app: Celery, valkey: Redis, replies: ReplyReader, fleet: Fleet, seal_key: bytes, owner: str
    ) -> None:
        self._messages = TaskMessages(app)
        self._valkey = valkey
        self._seal_key = seal_key
        self._owner = owner
        self.replies = replies
        self.fleet = fleet

    def sealer(self, exchange: UUID) -> Sealer:
        return Sealer(self._seal_key, exchange)

    async def publish(self, candidate: Candidate, prompt: Prompt, attempt: int, worker: str | None = None) -> None:
        """Send one attempt to the deployment's queue, or to one worker's own. Raises `Refusal`."""
        task = GenerateTask(
            exchange=prompt.exchange_id,
            attempt=attempt,
            request_id=prompt.request_id,
            reply_to=self.replies.stream,
            owner=self._owner,
            deadline=prompt.deadline_at.timestamp(),
            priority=ENGINE_PRIORITIES[prompt.priority],
            cache_salt=prompt.cache_salt,
            messages=prompt.messages,
            sampling=prompt.sampling,
            continued=prompt.continued,
        )
        sealed = self.sealer(task.exchange).seal(encode(task), place=task_place(attempt))
        arguments = (str(task.exchange), attempt, b64encode(sealed).decode())
        priority = QUEUE_PRIORITIES[prompt.priority]
        queue = candidate.queue if worker is None else own_queue(candidate.queue, worker)
        message = self._messages.build(
            GENERATE, task_id=f"{task.exchange}:{attempt}", args=arguments, queue=queue, priority=priority
        )
        try:
            await self._push(list_of(queue, priority), message, expires=worker is not None)
        except (RedisError, OSError):
            raise broker_gone() from None

    async def _push(self, name: str, message: str, *, expires: bool) -> None:
        if not expires:
            await self._valkey.lpush(name, message)
            return
        async with self._valkey.pipeline(transaction=False) as pipe:
            pipe.lpush(name, message)
            pipe.expire(name, OWN_QUEUE_TTL_S)  # its worker may never come back to read it
            await pipe.execute()

    async def cancel(self, exchange: UUID, attempt: int) -> None:
        """Tell whichever worker has the attempt, or will take it, to stop."""
        try:
            async with self._valkey.pipeline(transaction=False) as pipe:
                pipe.set(cancelled_key(exchange, attempt), b"1", ex=CANCELLED_TTL_S)
                pipe.publish(CANCEL_CHANNEL, f"{exchange}:{attempt}")
                await pipe.execute()
        except (RedisError, OSError) as error:
            # The worker notices by itself: it cannot reply either, and its deadline holds.
            log.warning("cancel_not_sent", exchange=str(exchange), error=type(error).__name__)

"""Dispatch: a prompt goes to a deployment's queue through Celery, and a cancel to whichever worker has it."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

import structlog
from celery import Celery
from kombu.exceptions import OperationalError
from redis.asyncio import Redis
from redis.exceptions import RedisError

from gpu_workers.messages import CANCEL_CHANNEL, ChatMessage, GenerateTask, Sampling, cancelled_key, encode
from gpu_workers.sealing import Sealer, task_place
from gpu_workers.transport import GENERATE
from inference.admission import broker_gone
from inference.events import Priority
from inference.fleet import Fleet
from inference.replies import ReplyReader
from inference.snapshot import Candidate

log = structlog.get_logger(__name__)

CANCELLED_TTL_S = 600
SLOW_PUBLISH_S = 0.05
AVOID_SLOW_S = 5.0
# Lower goes first in both. Over Redis, kombu keeps a list for each third priority of a queue.
QUEUE_PRIORITIES: dict[Priority, int] = {"interactive": 0, "standard": 3, "batch": 6}
ENGINE_PRIORITIES: dict[Priority, int] = {"interactive": 0, "standard": 10, "batch": 20}
# What a broker that stopped answering can hold the event loop for, once.
PUBLISH_TIMEOUT_S = 1.0


@dataclass(frozen=True, slots=True)
class Prompt:
    """What a worker is asked for. `deadline_at` is aware UTC."""

    exchange_id: UUID
    request_id: str
    messages: tuple[ChatMessage, ...]
    sampling: Sampling
    cache_salt: str
    deadline_at: datetime
    priority: Priority = "interactive"


class Dispatcher:
    """Sends attempts and cancels. One per process."""

    def __init__(
        self, app: Celery, valkey: Redis, replies: ReplyReader, fleet: Fleet, seal_key: bytes, owner: str
    ) -> None:
        self._app = app
        app.conf.broker_transport_options = {
            **app.conf.broker_transport_options,
            "socket_timeout": PUBLISH_TIMEOUT_S,
            "socket_connect_timeout": PUBLISH_TIMEOUT_S,
        }
        self._valkey = valkey
        self._seal_key = seal_key
        self._owner = owner
        self.replies = replies
        self.fleet = fleet
        # kombu is synchronous. Over a local or near broker a publish takes less time than handing it to a thread and
        # back; once one has been slow, a thread publishes for a while, so that the event loop waits for no socket.
        self._publisher = ThreadPoolExecutor(max_workers=1, thread_name_prefix="publish")
        self._slow_until = 0.0

    def close(self) -> None:
        self._publisher.shutdown(wait=False, cancel_futures=True)

    def sealer(self, exchange: UUID) -> Sealer:
        return Sealer(self._seal_key, exchange)

    async def publish(self, candidate: Candidate, prompt: Prompt, attempt: int) -> None:
        """Send one attempt to the deployment's queue. Raises `Refusal`."""
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
        )
        sealed = self.sealer(task.exchange).seal(encode(task), place=task_place(attempt))
        arguments = (str(task.exchange), attempt, b64encode(sealed).decode())
        try:
            await self._send_fast(candidate.queue, arguments, QUEUE_PRIORITIES[prompt.priority])
        except (OperationalError, RedisError, OSError):
            raise broker_gone() from None

    async def _send_fast(self, queue: str, arguments: tuple[str, int, str], priority: int) -> None:
        loop = asyncio.get_running_loop()
        started = loop.time()
        try:
            if started < self._slow_until:
                await loop.run_in_executor(self._publisher, self._send, queue, arguments, priority)
            else:
                self._send(queue, arguments, priority)
        finally:
            if loop.time() - started > SLOW_PUBLISH_S:
                self._slow_until = loop.time() + AVOID_SLOW_S

    def _send(self, queue: str, arguments: tuple[str, int, str], priority: int) -> None:
        self._app.send_task(
            GENERATE,
            args=arguments,
            queue=queue,
            task_id=f"{arguments[0]}:{arguments[1]}",
            argsrepr="sealed",
            kwargsrepr="",
            retry=False,
            priority=priority,
        )

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

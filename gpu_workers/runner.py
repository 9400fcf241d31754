"""One event loop per worker process carries every stream; Celery's threads only wait for it."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Coroutine
from concurrent.futures import Future

import structlog
import uvloop
from redis.exceptions import RedisError

from gpu_workers.attempts import Attempts
from gpu_workers.connecting import connect
from gpu_workers.engine_state import ActiveEngine, state_file
from gpu_workers.engines.base import Engine
from gpu_workers.engines.metrics import EngineLoad
from gpu_workers.engines.openai import OpenAIEngine
from gpu_workers.messages import (
    CANCEL_CHANNEL,
    HEARTBEAT_S,
    HEARTBEAT_TTL_MS,
    WORKERS_KEY,
    GenerateTask,
    Heartbeat,
    encode,
    owner_key,
    worker_key,
)
from gpu_workers.priority_probe import honours_priority
from gpu_workers.sealing import fingerprint
from gpu_workers.settings import WorkerSettings

log = structlog.get_logger(__name__)

SHORTEST_BEAT_S = 0.1
# Together with the beat's own rhythm less than a heartbeat lives.
ENGINE_ANSWERS_S = 1.5
# Sweeps in which an owner shows no sign of life before its attempts are given up.
OWNER_MISSED_SWEEPS = 3


def active_engine(settings: WorkerSettings) -> ActiveEngine:
    file = state_file(settings.run_directory, settings.deployment) if settings.supervised else None
    return ActiveEngine(settings.engine_url, file)


def build_engine(settings: WorkerSettings, active: ActiveEngine) -> Engine:
    if settings.engine == "sagemaker":
        # boto3 is heavy, and only these workers need it.
        from gpu_workers.engines.sagemaker import sagemaker_engine

        return sagemaker_engine(settings)
    return OpenAIEngine(
        active,
        settings.engine_model,
        settings.engine_api_key,
        vllm=settings.engine in ("vllm", "simulated"),
        simulated=settings.engine == "simulated",
    )


class Runner:
    """The worker's loop in a thread of its own: the engine's client, the attempts, heartbeat and cancels."""

    def __init__(self, settings: WorkerSettings, capacity: int) -> None:
        self._settings = settings
        self._capacity = capacity
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="runner", daemon=True)
        self._background: list[asyncio.Task[None]] = []
        self._missed: dict[str, int] = {}
        self._was_ready = False
        self._active_epoch = 0
        self._engine_version = ""
        self._generated = (0, time.monotonic())
        self._asserting: asyncio.Task[None] | None = None
        self._asserted = False
        self._fault = ""

    def start(self) -> None:
        self._thread.start()
        self._call(self._start())

    def stop(self) -> None:
        self._call(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=5)

    def generate(self, task: GenerateTask) -> None:
        """Run one attempt to its end; called from a Celery thread."""
        self._call(self.attempts.run(task))

    def give_up_all(self) -> None:
        """Cut what is running, so that whoever asked can go elsewhere; called when the worker shuts down."""
        self._loop.call_soon_threadsafe(self.attempts.drain)

    def _call(self, coroutine: Coroutine[None, None, None]) -> None:
        future: Future[None] = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        future.result()

    async def _start(self) -> None:
        self._active = active_engine(self._settings)
        self._valkey = connect(self._settings.valkey_url)
        self._engine = build_engine(self._settings, self._active)
        await self._engine.start()
        self._beat_now = asyncio.Event()
        settings = self._settings
        self.attempts = Attempts(
            self._valkey, self._engine, settings.seal_key, settings.worker, on_broken=self._beat_now.set
        )
        self._background = [asyncio.create_task(self._beat()), asyncio.create_task(self._hear_cancels())]

    async def _stop(self) -> None:
        background = [*self._background, *([self._asserting] if self._asserting else [])]
        for task in background:
            task.cancel()
        await asyncio.gather(*background, return_exceptions=True)
        self.attempts.drain()
        await self.attempts.settled()
        with contextlib.suppress(RedisError):
            await self._valkey.delete(worker_key(self._settings.worker))
        await self._engine.stop()
        await self._valkey.aclose()

    async def _beat(self) -> None:
        while True:
            started = time.monotonic()
            self._beat_now.clear()
            try:
                await self._publish_heartbeat()
                await self._give_up_orphans()
            except (RedisError, OSError) as error:
                log.warning("heartbeat_failed", error=type(error).__name__)
            # A broken engine is told at once: whoever lost an answer with it looks for another now.
            await asyncio.sleep(SHORTEST_BEAT_S)
            while time.monotonic() - started < HEARTBEAT_S and not self._has_news():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(SHORTEST_BEAT_S):
                        await self._beat_now.wait()

    def _has_news(self) -> bool:
        return self._beat_now.is_set() or self._active.current().epoch != self._active_epoch

    async def _publish_heartbeat(self) -> None:
        settings, active = self._settings, self._active.current()
        load, answers = await self._ask_engine()
        if answers and self._asserting is None:
            self._asserting = asyncio.create_task(self._assert_priority(), name="priority")
        ready = answers and self._asserted
        if ready and not (self._was_ready and active.epoch == self._active_epoch):
            self.attempts.epoch += 1
            if isinstance(self._engine, OpenAIEngine):
                self._engine_version = await self._engine.version()
        self._was_ready, self._active_epoch = ready, active.epoch
        beat = Heartbeat(
            worker=settings.worker,
            deployment=settings.deployment,
            engine=settings.engine,
            engine_ready=ready,
            simulated=self._engine.simulated,
            running=self.attempts.running,
            capacity=self._capacity,
            seal=fingerprint(settings.seal_key),
            waiting=load.waiting,
            kv_use=load.kv_use,
            prefix_hits=load.prefix_hits,
            epoch=self.attempts.epoch,
            fault=self._fault,
            tokens_per_s=self._rate(load.generated),
            engine_version=self._engine_version,
            zone=settings.zone,
            model_checksum=active.model_checksum,
        )
        async with self._valkey.pipeline(transaction=False) as pipe:
            pipe.set(worker_key(settings.worker), encode(beat), px=HEARTBEAT_TTL_MS)
            pipe.sadd(WORKERS_KEY, settings.worker)
            await pipe.execute()

    async def _ask_engine(self) -> tuple[EngineLoad, bool]:
        """Its load, and whether it answers. One that stands still must not keep the heartbeat until it has expired."""
        try:
            async with asyncio.timeout(ENGINE_ANSWERS_S):
                load, answers = await asyncio.gather(self._engine.load(), self._engine.is_ready())
                return load, answers
        except TimeoutError:
            return EngineLoad(), False

    def _rate(self, generated: int) -> float:
        """Tokens a second since the last look; an engine that has started anew begins at nothing."""
        before, self._generated = self._generated, (generated, time.monotonic())
        seconds = self._generated[1] - before[1]
        return round(max(generated - before[0], 0) / seconds, 1) if seconds > 0 else 0.0

    async def _assert_priority(self) -> None:
        """An engine that takes requests as they come would let batch delay people: it is not counted on."""
        if await honours_priority(self._engine, self._settings.max_running, self._settings.context_length):
            self._asserted = True
        else:
            self._fault = "its engine does not honour priorities (vLLM: --scheduling-policy priority)"
            log.error("engine_ignores_priority", worker=self._settings.worker)
        self._beat_now.set()

    async def _give_up_orphans(self) -> None:
        """Cancel the attempts whose web process has died: nobody reads them and the engine is needed."""
        owners = sorted(self.attempts.owners())
        alive = await self._valkey.mget([owner_key(owner) for owner in owners]) if owners else []
        missing = {owner for owner, sign in zip(owners, alive, strict=True) if sign is None}
        self._missed = {owner: self._missed.get(owner, 0) + 1 for owner in missing}
        for owner, count in self._missed.items():
            if count >= OWNER_MISSED_SWEEPS:
                log.warning("owner_gone", owner=owner, cancelled=self.attempts.cancel_owner(owner))

    async def _hear_cancels(self) -> None:
        while True:
            try:
                async with self._valkey.pubsub() as pubsub:
                    await pubsub.subscribe(CANCEL_CHANNEL)
                    while True:
                        message = await pubsub.get_message(ignore_subscribe_messages=True, timeout=5.0)
                        if message is not None:
                            self.attempts.cancel(message["data"].decode(errors="replace"))
            except (RedisError, OSError) as error:
                log.warning("cancel_channel_lost", error=type(error).__name__)
                await asyncio.sleep(0.5)

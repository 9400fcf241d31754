"""The composition root of a web process: every part of the pipeline, built once, started and stopped together."""

from __future__ import annotations

import asyncio
import gc
import os
import secrets
import socket
import sys
from typing import Protocol

import structlog
from celery import Celery
from django.conf import settings
from psycopg_pool import AsyncConnectionPool
from redis.asyncio import Redis
from redis.exceptions import RedisError

from compliance.audit.writer import GroupWriter
from compliance.crypto import record_key
from compliance.pii.lanes import InspectionLanes
from console.accounts.keyring import Keyring
from console.api.running import RunningCompletions
from console.chat.live import LiveAnswers
from console.chat.released import ReleasedEvents
from console.chat.sockets import OpenSockets
from gpu_workers import settings as worker_settings
from gpu_workers.connecting import connect
from gpu_workers.messages import HEARTBEAT_TTL_MS, owner_key
from gpu_workers.sealing import fingerprint
from gpu_workers.transport import configure_transport
from inference.admission import RESERVE_SCRIPT, Admission
from inference.answers import Answers
from inference.crossings import CrossingRecorder
from inference.dispatch import Dispatcher
from inference.fleet import Fleet
from inference.leases import Leases
from inference.mirroring import Mirrors
from inference.pipeline import Pipeline
from inference.refusals import RefusalRecorder
from inference.replies import ReplyReader
from inference.restoring import BudgetRestorer
from inference.routing.live import LiveState
from inference.snapshot import ConfigurationWatcher, Pool, load_budgets, load_catalog, load_limits

log = structlog.get_logger(__name__)

PART_STOP_TIMEOUT_S = 3.0
MIN_SECRET_KEY = 32


class Part(Protocol):
    """What runs beside the requests for as long as the process does."""

    def start(self) -> None: ...

    async def stop(self) -> None: ...


class Runtime:
    """Everything a web process serves with. `owner` names the process in records and in Valkey."""

    def __init__(self) -> None:
        # A process that could not seal or record would refuse every request: it says so now, and does not start.
        seal_key = worker_settings.seal_key()
        record_key.current()
        if len(settings.SECRET_KEY) < MIN_SECRET_KEY:
            raise ValueError(f"BURSAR_SECRET_KEY must have at least {MIN_SECRET_KEY} characters.")
        self.owner = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
        self.valkey: Redis = connect(settings.VALKEY_URL)
        self.pool: Pool = AsyncConnectionPool(
            settings.DATABASE_URL, min_size=1, max_size=8, open=False, timeout=3.0, kwargs={"autocommit": True}
        )
        self.keyring = Keyring()
        self._seal = fingerprint(seal_key)
        self.fleet = Fleet(self.valkey, self._seal)
        self.inspector = InspectionLanes()
        self.writer = GroupWriter(settings.DATABASE_URL)
        self.replies = ReplyReader(self.valkey, self.owner)
        self.dispatcher = Dispatcher(_publisher(), self.valkey, self.replies, self.fleet, seal_key, self.owner)
        restorer = BudgetRestorer(self.pool, self.valkey, RESERVE_SCRIPT)
        admission = Admission(self.valkey, self.owner, restorer.restore)
        self.leases = Leases(admission)
        self.refusals = RefusalRecorder(self.writer)
        live = LiveState()
        self.mirrors = Mirrors(self.dispatcher, self.writer, live)
        self.pipeline = self._build_pipeline(admission, live)
        self.answers = Answers(self.pipeline)
        self.released = ReleasedEvents(self.valkey, seal_key, self.owner)
        self.live = LiveAnswers(self.answers, self.released, self.valkey, self.owner)
        self.sockets = OpenSockets(self.keyring, self.pool)
        self.completions = RunningCompletions(self.keyring)
        self.configuration = ConfigurationWatcher(self.pool, [self.keyring.reload, self._reload_catalog])
        self._life: asyncio.Task[None] | None = None

    def _build_pipeline(self, admission: Admission, live: LiveState) -> Pipeline:
        return Pipeline(
            owner=self.owner,
            admission=admission,
            leases=self.leases,
            inspector=self.inspector,
            dispatcher=self.dispatcher,
            writer=self.writer,
            refusals=self.refusals,
            crossings=CrossingRecorder(self.writer),
            mirrors=self.mirrors,
            live=live,
        )

    async def start(self) -> None:
        await self.pool.open(wait=False)
        self._life = asyncio.create_task(self._show_life(), name="life")
        for part in self._parts():
            part.start()
        log.info("web_started", owner=self.owner)

    async def stop(self) -> None:
        """End the answers and their records first, then what they need."""
        await self.answers.stop()
        await self.mirrors.stop()
        for part in reversed(self._parts()):
            try:
                await asyncio.wait_for(part.stop(), PART_STOP_TIMEOUT_S)
            except TimeoutError:
                log.error("part_did_not_stop", part=type(part).__name__)
        if self._life is not None:
            self._life.cancel()
            await asyncio.gather(self._life, return_exceptions=True)
        await self.pool.close()
        await self.valkey.aclose()

    def _parts(self) -> list[Part]:
        return [
            self.writer,
            self.configuration,
            self.fleet,
            self.inspector,
            self.replies,
            self.leases,
            self.released,
            self.live,
            self.sockets,
            self.completions,
        ]

    async def _reload_catalog(self, pool: Pool, version: int) -> None:
        self.pipeline.limits = await load_limits(pool)
        self.pipeline.budgets = await load_budgets(pool)
        self.pipeline.catalog = await load_catalog(pool, version)

    async def _show_life(self) -> None:
        """Workers give up the attempts of a process that shows no life, and reconciliation closes its exchanges.

        What it shows is its seal key's fingerprint: a host that joins compares it with its own.
        """
        while True:
            try:
                await self.valkey.set(owner_key(self.owner), self._seal, px=HEARTBEAT_TTL_MS)
            except (RedisError, OSError):
                log.warning("life_not_shown")
            await asyncio.sleep(1.0)


def _publisher() -> Celery:
    """A Celery application that only sends: to the workers' queues, from this process."""
    app = Celery("publisher", set_as_current=False)
    configure_transport(app)
    return app


_runtime: Runtime | None = None


def current() -> Runtime:
    """This process's runtime. Raises `RuntimeError` before the server has started it."""
    if _runtime is None:
        raise RuntimeError("The runtime starts with the web server's lifespan.")
    return _runtime


async def start() -> None:
    global _runtime
    # The thread that publishes to Celery competes with the event loop; its hand-over waits for this at most.
    sys.setswitchinterval(0.0005)
    runtime = Runtime()
    await runtime.start()
    gc.freeze()  # what is loaded now stays: the collector need not walk it while answers stream
    _runtime = runtime


async def stop() -> None:
    global _runtime
    if _runtime is not None:
        await _runtime.stop()
        _runtime = None

"""The workers that are alive now, from their heartbeats in Valkey."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import structlog
from redis.asyncio import Redis
from redis.exceptions import RedisError

from gpu_workers.messages import HEARTBEAT_S, WORKERS_KEY, Heartbeat, decode_heartbeat, worker_key
from gpu_workers.streams import set_members
from inference.clock import skew_s

log = structlog.get_logger(__name__)

POLL_S = 0.5
# A heartbeat that is read is no older than its own rhythm, this poll, and some for a slow machine.
STALE_S = HEARTBEAT_S + POLL_S + 0.5


@dataclass(frozen=True, slots=True)
class FleetState:
    """`broker` is whether Valkey answered; without it nothing is known of the workers.

    `foreign` are workers with another seal key than this process has: they open none of its tasks.
    `ahead_s` is how far this host's clock is before Valkey's.
    """

    broker: bool = False
    workers: dict[str, Heartbeat] = field(default_factory=dict)
    foreign: dict[str, Heartbeat] = field(default_factory=dict)
    ahead_s: float = 0.0

    def ready(self, deployment: str) -> list[Heartbeat]:
        """Workers of a deployment that can take an answer now."""
        return [
            beat
            for beat in self.workers.values()
            if beat.deployment == deployment and beat.engine_ready and beat.running < beat.capacity
        ]


@dataclass(frozen=True, slots=True)
class Lost:
    """An engine that took an attempt with it; `epoch` is None where the worker never said. `until_s` is monotonic."""

    worker: str
    epoch: int | None
    until_s: float

    @classmethod
    def now(cls, worker: str, epoch: int | None) -> Lost:
        return cls(worker, epoch, time.monotonic() + STALE_S)

    def covers(self, beat: Heartbeat, at_s: float) -> bool:
        """Whether this heartbeat may be older than the loss, and of the same start of the same engine."""
        return beat.worker == self.worker and self.epoch in (None, beat.epoch) and at_s < self.until_s


class Fleet:
    """Keeps `current()` at most about `POLL_S` behind the heartbeats."""

    def __init__(self, valkey: Redis, seal: str) -> None:
        """`seal` is the fingerprint of this process's seal key."""
        self._valkey = valkey
        self._seal = seal
        self._state = FleetState()
        self._changed = asyncio.Condition()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._watch(), name="fleet")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def current(self) -> FleetState:
        return self._state

    async def wait_ready(
        self, deployments: Sequence[str], lost: Sequence[Lost] = (), *, timeout_s: float
    ) -> Heartbeat | None:
        """A ready worker of the first of these that has one, waited for; None when none came.

        What was `lost` is left out until it has started anew, or is known to have survived.
        """

        def found() -> Heartbeat | None:
            at_s = time.monotonic()
            for deployment in deployments:
                ready = [
                    beat for beat in self._state.ready(deployment) if not any(one.covers(beat, at_s) for one in lost)
                ]
                if ready:
                    # Of two, since everyone who lost the same engine looks at the same heartbeats.
                    some = random.sample(ready, min(2, len(ready)))
                    return min(some, key=lambda beat: beat.running / beat.capacity)
            return None

        try:
            async with asyncio.timeout(timeout_s), self._changed:
                await self._changed.wait_for(found)
                return found()
        except TimeoutError:
            return None

    async def _watch(self) -> None:
        while True:
            try:
                state = await self.read()
            except (RedisError, OSError) as error:
                if self._state.broker:
                    log.warning("broker_unreachable", error=type(error).__name__)
                state = FleetState()
            for name in state.foreign.keys() - self._state.foreign.keys():
                log.warning("worker_has_another_seal_key", worker=name)
            async with self._changed:
                self._state = state
                self._changed.notify_all()
            await asyncio.sleep(POLL_S)

    async def read(self) -> FleetState:
        """The workers as they are this moment. Raises `RedisError`."""
        names = await set_members(self._valkey, WORKERS_KEY)
        beats: list[Any] = await self._valkey.mget([worker_key(name) for name in names]) if names else []
        gone = [name for name, beat in zip(names, beats, strict=True) if beat is None]
        if gone:  # a worker that lives adds itself again with its next heartbeat
            await self._valkey.srem(WORKERS_KEY, *gone)
        state = FleetState(broker=True, ahead_s=skew_s(await self._valkey.time()))
        for beat in beats:
            if beat is not None and (decoded := _decode(beat)) is not None:
                known = state.workers if decoded.seal == self._seal else state.foreign
                known[decoded.worker] = decoded
        return state


def _decode(beat: bytes) -> Heartbeat | None:
    try:
        return decode_heartbeat(beat)
    except msgspec.MsgspecError:
        log.warning("heartbeat_not_understood")
        return None

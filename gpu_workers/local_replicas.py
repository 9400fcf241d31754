"""More replicas of a deployment on this host, as processes: as many as the platform wants, beside the host's own.

`python -m gpu_workers.local_replicas`, with the variables of a worker. Of several that run for one deployment one acts,
and another takes over when it is gone: its replicas go with it.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import socket
import sys
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import structlog
from redis.asyncio import Redis
from redis.exceptions import RedisError

from gpu_workers.children import run_together, start_child, stop_child
from gpu_workers.connecting import connect
from gpu_workers.host_programs import free_port, host_programs
from gpu_workers.logging import configure_logging
from gpu_workers.sealing import SealBroken, open_fields, seal_fields
from gpu_workers.settings import SettingsError, WorkerSettings, load

log = structlog.get_logger(__name__)

LOOK_S = 1.0
LEASE_MS = 10_000
# A replica that ends at once is not started again at once.
RESTART_AFTER_S = 5.0
MOST = 64
AT_ONCE = 256
ONE = "--one"

_numbers = msgspec.msgpack.Decoder(int)


def wanted_key(deployment: str) -> str:
    return f"bursar:replicas:{deployment}"


def wanted_fields(seal_key: bytes, deployment: str, replicas: int) -> dict[str, bytes]:
    """The hash that stands under `wanted_key`."""
    return seal_fields(seal_key, msgspec.msgpack.encode(replicas), place=wanted_key(deployment))


async def read_wanted(valkey: Redis, seal_key: bytes, deployment: str) -> int | None:
    """None where the platform wants nothing of this host, or says it in a way that does not open."""
    fields: Any = await valkey.hgetall(wanted_key(deployment))
    if not fields:
        return None
    try:
        return _numbers.decode(open_fields(seal_key, fields, place=wanted_key(deployment)))
    except (SealBroken, msgspec.MsgspecError):
        log.warning("wanted_replicas_do_not_open", deployment=deployment)
        return None


class LocalReplicas:
    """Keeps the replicas beside the host's own running. `devices` has the GPUs of each; empty: all the same."""

    def __init__(self, settings: WorkerSettings, valkey: Redis, devices: list[str]) -> None:
        self._settings = settings
        self._valkey = valkey
        self._devices = devices
        self._most = len(devices) or MOST
        self._token = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(8)}"
        self._running: dict[int, asyncio.subprocess.Process] = {}
        self._not_before: dict[int, float] = {}

    async def run(self, stop: asyncio.Event) -> None:
        try:
            while not stop.is_set():
                await self._look()
                await _sleep(stop, LOOK_S)
        finally:
            await self._reduce_to(0)

    async def _look(self) -> None:
        try:
            wanted = await read_wanted(self._valkey, self._settings.seal_key, self._settings.deployment)
            acts = await self._holds_lease()
        except (RedisError, OSError) as error:
            log.warning("wanted_replicas_not_read", error=type(error).__name__)
            return
        self._forget_ended()
        if not acts:
            await self._reduce_to(0)
        elif wanted is not None:
            extra = max(0, min(wanted - 1, self._most))
            await self._reduce_to(extra)
            await self._grow_to(extra)

    async def _holds_lease(self) -> bool:
        key = f"{wanted_key(self._settings.deployment)}:keeper"
        if await self._valkey.set(key, self._token, nx=True, px=LEASE_MS):
            return True
        if await self._valkey.get(key) != self._token.encode():
            return False
        return bool(await self._valkey.pexpire(key, LEASE_MS))

    def _forget_ended(self) -> None:
        for number, process in list(self._running.items()):
            if process.returncode is not None:
                log.error("local_replica_ended", number=number, exit_code=process.returncode)
                del self._running[number]
                self._not_before[number] = asyncio.get_running_loop().time() + RESTART_AFTER_S

    async def _grow_to(self, count: int) -> None:
        for number in range(count):
            if number not in self._running and self._not_before.get(number, 0) <= asyncio.get_running_loop().time():
                command = [sys.executable, "-m", "gpu_workers.local_replicas", ONE]
                self._running[number] = await start_child(command, self._environment(number))
                log.info("local_replica_started", number=number, pid=self._running[number].pid)

    async def _reduce_to(self, count: int) -> None:
        """The last first, one after the other: their answers go on at those that stay."""
        for number in sorted(self._running, reverse=True):
            if number >= count:
                await stop_child(f"replica {number}", self._running.pop(number))

    def _environment(self, number: int) -> dict[str, str]:
        """That of this host, with an engine of its own. What is not said here is the same for all."""
        own = {
            "BURSAR_ENGINE_URL": f"http://127.0.0.1:{free_port()}/v1",
            "BURSAR_ENGINE_API_KEY": secrets.token_urlsafe(32),
            **({"BURSAR_ENGINE_DEVICES": self._devices[number]} if self._devices else {}),
        }
        return {**os.environ, **own}


async def _sleep(stop: asyncio.Event, seconds: float) -> None:
    try:
        await asyncio.wait_for(stop.wait(), seconds)
    except TimeoutError:
        return


async def keep(settings: WorkerSettings) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    valkey = connect(settings.valkey_url)
    try:
        devices = [part for part in os.environ.get("BURSAR_LOCAL_DEVICES", "").split(";") if part]
        await LocalReplicas(settings, valkey, devices).run(stop)
    finally:
        await valkey.aclose()


def run_one() -> int:
    """One replica: a worker and its engine, whose state lies in a directory of their own."""
    with tempfile.TemporaryDirectory(prefix="bursar-replica-") as directory:
        environment = {**os.environ, "BURSAR_RUN_DIRECTORY": str(Path(directory))}
        return asyncio.run(run_together(host_programs(AT_ONCE), environment))


def main() -> int:
    configure_logging()
    try:
        settings = load()
    except SettingsError as error:
        print(f"local replicas: {error}", file=sys.stderr)  # noqa: T201
        return 2
    if sys.argv[1:] == [ONE]:
        return run_one()
    if settings.engine not in ("vllm", "tensorrt", "simulated"):
        print("local replicas: an attached server is scaled by its owner.", file=sys.stderr)  # noqa: T201
        return 2
    asyncio.run(keep(settings))
    return 0


if __name__ == "__main__":
    sys.exit(main())

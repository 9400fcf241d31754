"""The worker as a process: tasks that do not open, owners that die, and cancels that arrive by channel."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from celery import Celery
from redis.asyncio import Redis

from console.local.ports import free_port
from gpu_workers.broker import broker_url
from gpu_workers.messages import CANCEL_CHANNEL, Delta, Done, GenerateTask, encode, owner_key, worker_key
from gpu_workers.sealing import Sealer, task_place
from gpu_workers.streams import set_members
from gpu_workers.transport import GENERATE
from tests.gpu_workers.replies import frames_of
from tests.gpu_workers.tasks import PROMPT, SEAL_KEY, task
from tests.services import Services
from tests.stack import ROOT

QUEUE = "gpu.tasks-test"
PATIENCE_S = 30.0


@pytest.fixture(scope="module")
def worker_log(services: Services, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A worker and a slow simulated engine, as processes; what the worker wrote."""
    path = tmp_path_factory.mktemp("worker") / "log"
    port = free_port()
    environment = os.environ | {
        "PYTHONPATH": f"{ROOT / 'platform'}:{ROOT}",
        "BURSAR_VALKEY_URL": services.valkey.url(),
        "BURSAR_SEAL_KEY": SEAL_KEY.hex(),
        "BURSAR_DEPLOYMENT": "tasks-test",
        "BURSAR_ENGINE": "simulated",
        "BURSAR_ENGINE_URL": f"http://127.0.0.1:{port}/v1",
        "BURSAR_ENGINE_MODEL": "simulated",
        "BURSAR_ENGINE_SUPERVISED": "0",
    }
    engine = [*("-m", "gpu_workers.engines.simulated", "--port", str(port)), *("--ttft-ms", "20", "--itl-ms", "400")]
    worker = ["-m", "celery", "-A", "gpu_workers.app", "worker", "-P", "threads", "-c", "16", "-Q", QUEUE]
    worker += ["--without-gossip", "--without-mingle", "--without-heartbeat"]
    with path.open("wb") as log:
        processes = [
            subprocess.Popen([sys.executable, *arguments], cwd=ROOT, env=environment, stdout=log, stderr=log)
            for arguments in (engine, worker)
        ]
    yield path
    for process in processes:
        process.send_signal(signal.SIGTERM)
    for process in processes:
        process.wait(PATIENCE_S)


async def send(services: Services, asked: GenerateTask, key: bytes = SEAL_KEY, *, attempt: int = 1) -> None:
    app = Celery(broker=broker_url(services.valkey.url()))
    sealed = Sealer(key, asked.exchange).seal(encode(asked), place=task_place(asked.attempt))
    arguments = (str(asked.exchange), attempt, b64encode(sealed).decode())
    await asyncio.to_thread(app.send_task, GENERATE, arguments, queue=QUEUE, ignore_result=True)


def said(log: Path) -> str:
    return log.read_text()


async def alive(valkey: Redis, owner: str) -> None:
    await valkey.set(owner_key(owner), b"1", ex=60)


async def ended(valkey: Redis, asked: GenerateTask) -> Done:
    async with asyncio.timeout(PATIENCE_S):
        while not (frames := await frames_of(valkey, asked)) or not isinstance(frames[-1], Done):
            await asyncio.sleep(0.05)
    return frames[-1]


async def begun(valkey: Redis, asked: GenerateTask) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not any(isinstance(frame, Delta) for frame in await frames_of(valkey, asked)):
            await asyncio.sleep(0.05)


async def test_a_task_that_does_not_open_is_dropped_and_said_without_content(
    services: Services, valkey: Redis, worker_log: Path
) -> None:
    foreign, moved, good = task(owner="w"), task(owner="w"), task(owner="w")
    await alive(valkey, "w")
    await send(services, foreign, b"x" * 32)
    await send(services, moved, attempt=2)
    await send(services, good)
    await begun(valkey, good)
    await valkey.publish(CANCEL_CHANNEL, f"{good.exchange}:1")
    await ended(valkey, good)

    for dropped in (foreign, moved):
        assert await frames_of(valkey, dropped) == []
        line = next(line for line in said(worker_log).splitlines() if str(dropped.exchange) in line)
        assert "task_does_not_open" in line
    assert PROMPT not in said(worker_log)


async def test_a_cancel_on_the_channel_ends_the_attempt_and_nonsense_on_it_does_not_matter(
    services: Services, valkey: Redis, worker_log: Path
) -> None:
    asked = task(owner="w")
    await alive(valkey, "w")
    await send(services, asked)
    await begun(valkey, asked)
    for nonsense in (b"\xff\xfe", b"", b"x" * 10_000, str(uuid4()).encode()):
        await valkey.publish(CANCEL_CHANNEL, nonsense)
    await valkey.publish(CANCEL_CHANNEL, f"{asked.exchange}:1")

    last = await ended(valkey, asked)
    assert last.finish_reason == "cancelled"
    assert last.usage.completion_tokens < 16


async def test_the_attempts_of_an_owner_that_shows_no_life_are_given_up(
    services: Services, valkey: Redis, worker_log: Path
) -> None:
    asked = task(owner="gone")
    await send(services, asked)
    assert (await ended(valkey, asked)).finish_reason == "cancelled"
    assert "owner_gone" in said(worker_log)


async def test_a_worker_says_what_it_is_every_second(valkey: Redis, worker_log: Path) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            names = await set_members(valkey, "bursar:workers")
            beats = [beat for name in names if (beat := await valkey.get(worker_key(name)))]
            if any(b"tasks-test" in beat for beat in beats):
                break
            await asyncio.sleep(0.1)

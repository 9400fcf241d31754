"""The worker's own loop beside an engine that misbehaves."""

from __future__ import annotations

import asyncio
from pathlib import Path

from gpu_workers.connecting import connect
from gpu_workers.messages import decode_heartbeat, worker_key
from gpu_workers.runner import Runner
from gpu_workers.settings import WorkerSettings
from tests.services import Services

DATABASE = 8
PATIENCE_S = 30.0


def settings_for(valkey_url: str, engine_url: str) -> WorkerSettings:
    return WorkerSettings(
        *(valkey_url, bytes(32), "d", "vllm", engine_url, "", "m", "", "", 2048, 0, "host-1"), run_directory=Path()
    )


async def test_an_engine_that_accepts_and_says_nothing_does_not_silence_its_worker(services: Services) -> None:
    url = services.valkey.url(DATABASE)
    silent = await asyncio.start_server(lambda *_: asyncio.sleep(600), "127.0.0.1", 0)
    runner = Runner(settings_for(url, f"http://127.0.0.1:{silent.sockets[0].getsockname()[1]}/v1"), 1)
    valkey = connect(url)
    await asyncio.to_thread(runner.start)
    try:
        async with asyncio.timeout(PATIENCE_S):
            while (found := await valkey.get(worker_key("host-1"))) is None:
                await asyncio.sleep(0.02)
            assert not decode_heartbeat(found).engine_ready
            beats, left = 0, 0
            while beats < 3:
                before, left = left, await valkey.pttl(worker_key("host-1"))
                assert left > 0, "its heartbeat has expired"
                beats += left > before
                await asyncio.sleep(0.02)
    finally:
        await asyncio.to_thread(runner.stop)
        await valkey.flushdb()
        await valkey.aclose()
        silent.close()

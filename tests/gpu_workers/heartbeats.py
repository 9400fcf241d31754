"""A worker that shows life, as far as Valkey can tell."""

from __future__ import annotations

from typing import Any

from redis.asyncio import Redis

from gpu_workers.messages import WORKERS_KEY, Heartbeat, encode, worker_key


async def show_worker(valkey: Redis, worker: str, **said: Any) -> None:
    plain = {"deployment": "some", "engine": "vllm", "engine_ready": True, "simulated": False, "running": 0}
    beat = Heartbeat(**{"worker": worker, "capacity": 1, "seal": "", **plain, **said})
    await valkey.set(worker_key(worker), encode(beat))
    await valkey.sadd(WORKERS_KEY, worker)

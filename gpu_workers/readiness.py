"""Whether this host's worker can be counted on: `python -m gpu_workers.readiness` ends with 0 where it can.

For an orchestrator that runs commands as probes. A worker listens nowhere: what it says of itself lies in the broker.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
import sys

import msgspec
from redis.asyncio import Redis
from redis.exceptions import RedisError

from gpu_workers.connecting import connect
from gpu_workers.messages import WORKERS_KEY, Heartbeat, decode_heartbeat, worker_key
from gpu_workers.streams import present_values, set_members


async def own_heartbeats(valkey: Redis, host: str) -> list[Heartbeat]:
    """Of the workers on `host`, which are named after it and their process. Raises `RedisError`."""
    own = re.compile(rf"{re.escape(host)}-[0-9]+\Z")
    names = [name for name in await set_members(valkey, WORKERS_KEY) if own.match(name)]
    return [decode_heartbeat(beat) for beat in await present_values(valkey, [worker_key(name) for name in names])]


async def state_of(valkey_url: str, host: str) -> str:
    """Empty where a worker of this host has an engine that is ready; else one line that says why not."""
    try:
        valkey = connect(valkey_url)
        async with valkey:
            beats = await own_heartbeats(valkey, host)
    except (RedisError, OSError, ValueError, msgspec.MsgspecError) as error:
        return f"the broker does not say ({type(error).__name__})"
    if any(beat.engine_ready for beat in beats):
        return ""
    return next((beat.fault for beat in beats if beat.fault), "the engine is not ready" if beats else "no worker")


def main() -> int:
    fault = asyncio.run(state_of(os.environ.get("BURSAR_VALKEY_URL", ""), socket.gethostname()))
    if fault:
        print(f"not ready: {fault}", file=sys.stderr)  # noqa: T201
    return 1 if fault else 0


if __name__ == "__main__":
    sys.exit(main())

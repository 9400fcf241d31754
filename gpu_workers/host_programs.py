"""What runs on a GPU host: a worker, and the supervisor of its engine."""

from __future__ import annotations

import os
import socket
import sys


def free_port() -> int:
    """One that nobody listens on now, of loopback."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def host_programs(at_once: int) -> dict[str, list[str]]:
    """By name, in the order in which they are stopped: answers leave for other hosts while the engine still lives."""
    python = [sys.executable, "-m"]
    worker = [*python, "celery", "-A", "gpu_workers.app", "worker", "-n", "worker@%h", "-P", "threads"]
    worker += ["-c", str(at_once), "-Q", f"gpu.{os.environ['BURSAR_DEPLOYMENT']}"]
    worker += ["--without-gossip", "--without-mingle", "--without-heartbeat"]
    if os.environ.get("BURSAR_ENGINE") == "openai":
        return {"worker": worker}
    return {"worker": worker, "engine": [*python, "gpu_workers.supervisor"]}

"""The one task that a GPU worker takes."""

from __future__ import annotations

from base64 import b64decode
from uuid import UUID

import msgspec
import structlog

from gpu_workers.app import app, runner
from gpu_workers.messages import decode_task
from gpu_workers.sealing import SealBroken, Sealer, task_place
from gpu_workers.settings import load
from gpu_workers.transport import GENERATE

log = structlog.get_logger(__name__)
_seal_key: bytes | None = None


def seal_key() -> bytes:
    global _seal_key
    if _seal_key is None:
        _seal_key = load().seal_key
    return _seal_key


@app.task(name=GENERATE)
def generate(exchange: str, attempt: int, sealed: str) -> None:
    """Run one attempt. A message that does not open is dropped and said: its sender has another key."""
    try:
        opened = Sealer(seal_key(), UUID(exchange)).open(b64decode(sealed), place=task_place(attempt))
        task = decode_task(opened)
    except (SealBroken, ValueError, msgspec.MsgspecError):
        log.error("task_does_not_open", exchange=exchange, attempt=attempt)
        return
    runner().generate(task)

"""Which replica of a deployment a conversation stays with: the beginning of its prompt lies in that engine's cache."""

from __future__ import annotations

import hashlib
from uuid import UUID

from gpu_workers.messages import Heartbeat
from inference.fleet import FleetState

# Past this share of its memory for contexts an engine begins to put requests back: it takes no more at once.
KV_FULL = 0.95
# Heartbeats are up to a second and a half old: from here on a replica may be full by the time the task arrives.
NEARLY_FULL = 0.8


def rank(conversation: UUID, name: str) -> bytes:
    """The highest is the conversation's own, as long as it is there; others that come and go move few conversations."""
    return hashlib.blake2b(conversation.bytes + name.encode(), digest_size=8).digest()


def replica_for(conversation: UUID | None, deployment: str, fleet: FleetState) -> str | None:
    """The worker that this conversation stays with; None where it may be any, or where that one is overloaded."""
    ready = fleet.ready(deployment)
    if conversation is None or len(ready) < 2:
        return None
    own = max(ready, key=lambda beat: rank(conversation, beat.worker))
    return None if is_overloaded(own) else own.worker


def is_overloaded(beat: Heartbeat) -> bool:
    full = beat.running >= NEARLY_FULL * beat.capacity
    return full or beat.waiting > 0 or (beat.kv_use or 0.0) >= KV_FULL

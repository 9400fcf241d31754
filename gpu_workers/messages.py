"""What web processes and workers say to each other: typed messages, MessagePack inside a seal."""

from __future__ import annotations

from typing import Literal
from uuid import UUID

from msgspec import Struct, msgpack

CANCEL_CHANNEL = "bursar:cancel"
WORKERS_KEY = "bursar:workers"
HEARTBEAT_S = 1.0
HEARTBEAT_TTL_MS = 3_000

FinishReason = Literal["stop", "length", "cancelled"]


def worker_key(worker: str) -> str:
    """Where a worker's heartbeat lies; it expires after `HEARTBEAT_TTL_MS`."""
    return f"bursar:worker:{worker}"


def owner_key(owner: str) -> str:
    """Where a web process's own sign of life lies: the fingerprint of its seal key."""
    return f"bursar:web:{owner}"


def cancelled_key(exchange: UUID, attempt: int) -> str:
    """Set before a cancel is published, for the attempt that no worker has taken yet."""
    return f"bursar:cancelled:{exchange}:{attempt}"


class ChatMessage(Struct, frozen=True):
    role: Literal["system", "user", "assistant"]
    content: str


class Sampling(Struct, frozen=True, omit_defaults=True):
    """Generation parameters as OpenAI names them; None leaves the choice to the engine."""

    max_tokens: int
    temperature: float | None = None
    top_p: float | None = None
    stop: tuple[str, ...] = ()
    seed: int | None = None
    response_format: dict[str, object] | None = None


class GenerateTask(Struct, frozen=True):
    """One attempt. `deadline` is in Unix seconds; `priority` is vLLM's: lower goes first.

    `continued` is how the answer begins already: the engine goes on after it, and does not say it again.
    """

    exchange: UUID
    attempt: int
    request_id: str
    reply_to: str
    owner: str
    deadline: float
    priority: int
    cache_salt: str
    messages: tuple[ChatMessage, ...]
    sampling: Sampling
    continued: str = ""


class Usage(Struct, frozen=True):
    """Tokens as the engine counted them, or as we did (`estimated`) where it could not say."""

    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    estimated: bool = False


class Claimed(Struct, frozen=True, tag="claimed"):
    """A worker has taken the attempt. `epoch` counts the starts of its engine that it has seen."""

    worker: str
    epoch: int = 0


class Delta(Struct, frozen=True, tag="delta"):
    """Some text, and the attempt's usage up to its end: should this be the last of it, that is what it is paid."""

    text: str
    usage: Usage | None = None


class Done(Struct, frozen=True, tag="done"):
    finish_reason: FinishReason
    usage: Usage


class Failed(Struct, frozen=True, tag="failed"):
    """`code` is one of docs/api.md; `message` never holds what was said."""

    code: str
    message: str
    usage: Usage | None = None


Frame = Claimed | Delta | Done | Failed


class Heartbeat(Struct, frozen=True):
    """What a worker says of itself every second. `seal` is the fingerprint of its seal key (gpu_workers.sealing).

    `waiting` are requests that the engine has queued; `kv_use` and `prefix_hits` (of prompt tokens) are shares from
    0 to 1, None where the engine does not tell. `epoch` counts the starts of the engine that the worker has seen.
    `fault` says why an engine that answers is not counted on. `tokens_per_s` are those generated since the heartbeat
    before. `model_checksum` is that of the weights where the host has verified it.
    """

    worker: str
    deployment: str
    engine: str
    engine_ready: bool
    simulated: bool
    running: int
    capacity: int
    seal: str
    waiting: int = 0
    kv_use: float | None = None
    prefix_hits: float | None = None
    epoch: int = 0
    fault: str = ""
    tokens_per_s: float = 0.0
    engine_version: str = ""
    zone: str = ""
    model_checksum: str = ""


_frames: msgpack.Decoder[Frame] = msgpack.Decoder(Frame)
_tasks = msgpack.Decoder(GenerateTask)
_heartbeats = msgpack.Decoder(Heartbeat)
_encoder = msgpack.Encoder()

encode = _encoder.encode
decode_frame = _frames.decode
decode_task = _tasks.decode
decode_heartbeat = _heartbeats.decode

"""The socket's events as typed messages: parsed strictly, refused by field, documented in docs/api.md."""

from __future__ import annotations

import re
from typing import Annotated, Any
from uuid import UUID

import msgspec
from msgspec import Meta, Struct

from gpu_workers.messages import Sampling
from inference.errors import Refusal
from inference.events import Delta, Event, Finished, Priority, Refused, Started

SUBPROTOCOL = "bursar.chat.v1"
MAX_FRAME_BYTES = 64 * 1024
MAX_TOKENS = 32_768

ClientId = Annotated[str, Meta(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9._:\-]+\Z")]
# What a task is called by those who ask for it: routing rules and reports go by it, and it is no content.
Tag = Annotated[str, Meta(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9._:\-]+\Z")]
Stop = Annotated[str, Meta(min_length=1, max_length=64)]


class Parameters(Struct, frozen=True, forbid_unknown_fields=True):
    max_tokens: Annotated[int, Meta(ge=1, le=MAX_TOKENS)] | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    stop: Annotated[list[Stop], Meta(min_length=1, max_length=4)] | None = None
    seed: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | None = None

    def sampling(self, context_length: int) -> Sampling:
        return Sampling(
            max_tokens=self.max_tokens or default_max_tokens(context_length),
            temperature=self.temperature,
            top_p=self.top_p,
            stop=tuple(self.stop or ()),
            seed=self.seed,
        )


def default_max_tokens(context_length: int) -> int:
    """What an answer may have where the caller does not say: it must leave the prompt its place."""
    return min(512, context_length // 4)


class ChatSend(Struct, frozen=True, tag="chat.send", tag_field="type", forbid_unknown_fields=True):
    id: ClientId
    text: str
    conversation: UUID | None = None
    model: Annotated[str, Meta(min_length=1, max_length=100)] | None = None
    parameters: Parameters | None = None
    linger_ms: Annotated[int, Meta(ge=0, le=60_000)] = 500
    priority: Priority = "interactive"
    tag: Tag | None = None


class ChatCancel(Struct, frozen=True, tag="chat.cancel", tag_field="type", forbid_unknown_fields=True):
    id: ClientId | None = None
    exchange: UUID | None = None


class ChatResume(Struct, frozen=True, tag="chat.resume", tag_field="type", forbid_unknown_fields=True):
    exchange: UUID
    after: Annotated[int, Meta(ge=-1, le=2**31)]


class Ping(Struct, frozen=True, tag="ping", tag_field="type", forbid_unknown_fields=True):
    id: Annotated[str, Meta(max_length=64)] | None = None


ClientEvent = ChatSend | ChatCancel | ChatResume | Ping

_client_events: msgspec.json.Decoder[ClientEvent] = msgspec.json.Decoder(ClientEvent)
_encoder = msgspec.json.Encoder()


class _Kind(Struct):
    type: str


class _Head(Struct):
    type: str
    id: ClientId


_heads = msgspec.json.Decoder(_Head)
_kinds = msgspec.json.Decoder(_Kind)
_PATH = re.compile(r" - at `\$\.?(.*?)`$")
_QUOTED = re.compile(r"'[^']*'")


def parse(frame: str) -> ClientEvent:
    """One client event. Raises `Refusal` naming the field; the message never quotes a value."""
    try:
        event = _client_events.decode(frame)
    except msgspec.ValidationError as error:
        raise invalid_value(error, kinds=True) from None
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        raise Refusal("invalid_json", "The frame is not valid JSON.") from None
    if isinstance(event, ChatSend):
        check_text(event.text, "text")
        if not event.text.strip():
            raise Refusal("empty_text", "text must not be blank.", param="text")
    if isinstance(event, ChatCancel) and event.id is None and event.exchange is None:
        raise Refusal("invalid_value", "id or exchange must be given.", param="id")
    return event


def ask_id_of(frame: str) -> str | None:
    """The id of a `chat.send` that was refused for something else, so that its client knows which one it was."""
    try:
        head = _heads.decode(frame)
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return None
    return head.id if head.type == "chat.send" else None


def check_text(text: str, param: str) -> None:
    """Raises `Refusal` for what no model and no database takes: NUL and lone surrogates."""
    if "\x00" in text:
        raise Refusal("invalid_value", f"{param} must not contain NUL characters.", param=param)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise Refusal("invalid_value", f"{param} must not contain lone surrogates.", param=param) from None


def invalid_value(error: msgspec.ValidationError, *, kinds: bool = False) -> Refusal:
    """A validation error as a refusal. `kinds`: whether `type` tells one event from another."""
    text = str(error)
    found = _PATH.search(text)
    param = (found.group(1) if found else "") or None
    message = _QUOTED.sub("value", _PATH.sub("", text))
    if message.endswith("matching regex value"):
        message = "Has characters that are not allowed"
    missing = re.search(r"missing required field `(\w+)`", message)
    unknown = re.search(r"unknown field `(.*)`", message)
    if kinds and (param == "type" or (missing and missing.group(1) == "type")):
        return Refusal("unknown_event", "type must name an event of bursar.chat.v1.", param="type")
    if missing:
        param = f"{param}.{missing.group(1)}" if param else missing.group(1)
        return Refusal("invalid_value", f"{param} is required.", param=param)
    if unknown:
        name = unknown.group(1)[:64]
        param = f"{param}.{name}" if param else name
        return Refusal("invalid_value", f"{param} is not a known field.", param=param, foreign_param=True)
    return Refusal("invalid_value", f"{param or 'The body'}: {message}.", param=param)


def encode(event: Event, sequence: int, ask_id: str, exchange_id: UUID, conversation_id: UUID | None) -> bytes:
    """A pipeline event as the socket's frame."""
    body: dict[str, Any]
    match event:
        case Delta(text=text):
            body = {"type": "answer.delta", "text": text}
        case Started():
            body = {
                "type": "answer.started",
                "conversation": conversation_id,
                "model": event.model,
                "simulated": event.simulated,
                "findings": event.findings,
            }
        case Finished():
            body = _finished(event)
        case Refused(refusal=refusal):
            body = error_body(refusal)
    return _encoder.encode(body | {"exchange": exchange_id, "id": ask_id, "seq": sequence})


def _finished(event: Finished) -> dict[str, Any]:
    usage = event.usage
    return {
        "type": "answer.finished",
        "finish_reason": event.finish_reason,
        "usage": {
            "prompt_tokens": usage.prompt_tokens,
            "cached_tokens": usage.cached_tokens,
            "completion_tokens": usage.completion_tokens,
            "total_tokens": usage.prompt_tokens + usage.completion_tokens,
            "cost_usd": format(event.cost, "f"),
        },
        "ttft_ms": event.ttft_ms,
        "e2e_ms": event.e2e_ms,
        "model": event.model,
        "findings": event.findings,
        "receipt": event.receipt,
    }


def error_body(refusal: Refusal) -> dict[str, Any]:
    return {"type": "error", "error": refusal.body(), "retry_after_s": refusal.retry_after_s}


def encode_error(refusal: Refusal, ask_id: str | None = None, exchange: UUID | None = None) -> bytes:
    """A refusal that ends no answer: of a frame, of a `chat.send` before it began, or of a `chat.resume`."""
    named = {"id": ask_id, "exchange": exchange}
    return _encoder.encode(error_body(refusal) | {name: value for name, value in named.items() if value is not None})


def encode_pong(ping: Ping) -> bytes:
    return _encoder.encode({"type": "pong", "id": ping.id})


def is_final(frame: bytes) -> bool:
    """Whether a server frame ends its answer."""
    return bool(frame) and _kinds.decode(frame).type in ("answer.finished", "error")

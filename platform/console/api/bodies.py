"""The body of a chat completion request: OpenAI's fields, parsed strictly, refused by name."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from console.chat.protocol import MAX_TOKENS, Stop, Tag, check_text, default_max_tokens, invalid_value
from gpu_workers.messages import ChatMessage, Sampling
from inference.errors import Refusal
from inference.events import Priority

MAX_MESSAGES = 256
MAX_RESPONSE_FORMAT_BYTES = 16_384
# Parts of OpenAI's API that are not served. They are refused, since ignoring one would change the answer's meaning.
UNSUPPORTED = (
    *("tools", "tool_choice", "parallel_tool_calls", "functions", "function_call", "logprobs", "top_logprobs"),
    *("logit_bias", "audio", "modalities", "prediction", "web_search_options", "store", "metadata", "service_tier"),
    *("presence_penalty", "frequency_penalty", "reasoning_effort", "verbosity"),
)


class TextPart(Struct, frozen=True, tag="text", tag_field="type", forbid_unknown_fields=True):
    text: str


class Message(Struct, frozen=True, forbid_unknown_fields=True):
    role: Literal["system", "developer", "user", "assistant"]
    content: str | Annotated[list[TextPart], Meta(min_length=1, max_length=64)]
    name: Annotated[str, Meta(max_length=64)] | None = None

    def text(self) -> str:
        return self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)


class StreamOptions(Struct, frozen=True, forbid_unknown_fields=True):
    include_usage: bool = False
    include_obfuscation: bool = False


class CompletionBody(Struct, frozen=True, forbid_unknown_fields=True):
    model: Annotated[str, Meta(min_length=1, max_length=100)]
    messages: Annotated[list[Message], Meta(min_length=1, max_length=MAX_MESSAGES)]
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    max_tokens: Annotated[int, Meta(ge=1, le=MAX_TOKENS)] | None = None
    max_completion_tokens: Annotated[int, Meta(ge=1, le=MAX_TOKENS)] | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    stop: Stop | Annotated[list[Stop], Meta(max_length=4)] | None = None
    seed: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | None = None
    n: Annotated[int, Meta(ge=1, le=1)] | None = None
    user: Annotated[str, Meta(max_length=256)] | None = None
    response_format: dict[str, Any] | None = None
    priority: Priority = "interactive"
    tag: Tag | None = None

    def chat(self) -> tuple[ChatMessage, ...]:
        return tuple(_chat_message(message) for message in self.messages)

    def sampling(self, context_length: int) -> Sampling:
        stop = [self.stop] if isinstance(self.stop, str) else self.stop or []
        return Sampling(
            max_tokens=self.max_completion_tokens or self.max_tokens or default_max_tokens(context_length),
            temperature=self.temperature,
            top_p=self.top_p,
            stop=tuple(stop),
            seed=self.seed,
            response_format=self.response_format,
        )


def _chat_message(message: Message) -> ChatMessage:
    # Engines know the role under its older name.
    role: Literal["system", "user", "assistant"] = "system" if message.role == "developer" else message.role
    return ChatMessage(role, message.text())


_bodies: msgspec.json.Decoder[CompletionBody] = msgspec.json.Decoder(CompletionBody)
_fields: msgspec.json.Decoder[dict[str, msgspec.Raw]] = msgspec.json.Decoder(dict[str, msgspec.Raw])


def parse(body: bytes) -> CompletionBody:
    """Raises `Refusal` naming the field; the message never quotes a value."""
    if not body.strip():
        raise Refusal("missing_body", "The request has no body.")
    try:
        parsed = _bodies.decode(body)
    except msgspec.ValidationError as error:
        refuse_unsupported(body)
        raise invalid_value(error) from None
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        raise Refusal("invalid_json", "The body is not valid JSON.") from None
    _check_response_format(parsed)
    for index, message in enumerate(parsed.messages):
        check_text(message.text(), f"messages[{index}].content")
    if not any(message.text().strip() for message in parsed.messages):
        raise Refusal("empty_text", "messages must not be blank.", param="messages")
    return parsed


def _check_response_format(body: CompletionBody) -> None:
    """Raises `Refusal`: it goes to the engine as it is, so that it must be small and travel whole."""
    try:
        size = len(msgspec.msgpack.encode(body.response_format))
    except (OverflowError, RecursionError, UnicodeError):
        size = MAX_RESPONSE_FORMAT_BYTES + 1
    if size > MAX_RESPONSE_FORMAT_BYTES:
        message = f"response_format may have {MAX_RESPONSE_FORMAT_BYTES} bytes, and integers of 64 bits."
        raise Refusal("invalid_value", message, param="response_format")


def refuse_unsupported(body: bytes) -> None:
    """Raises `Refusal` where the body holds a field of OpenAI's that is not served here."""
    try:
        given = _fields.decode(body) if body.lstrip()[:1] == b"{" else {}
    except (msgspec.MsgspecError, RecursionError):
        raise Refusal("invalid_json", "The body is not valid JSON.") from None
    for name in UNSUPPORTED:
        if name in given:
            raise Refusal("unsupported", f"{name} is not supported.", param=name)

"""OpenAI's chat completions as engines speak them: the request's body, the answer's events, and refusals."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from gpu_workers.engines.base import End, EngineBroken, EngineRefused, Piece
from gpu_workers.messages import ChatMessage, FinishReason, GenerateTask, Usage

Tokens = Annotated[int, Meta(ge=0, le=2**31 - 1)]


class _CachedTokens(Struct):
    cached_tokens: Tokens | None = None


class _Usage(Struct):
    prompt_tokens: Tokens = 0
    completion_tokens: Tokens = 0
    prompt_tokens_details: _CachedTokens | None = None


class _Delta(Struct):
    content: str | None = None


class _Choice(Struct):
    delta: _Delta
    finish_reason: str | None = None


class _Chunk(Struct):
    choices: list[_Choice] = []
    usage: _Usage | None = None


_chunks = msgspec.json.Decoder(_Chunk)


class EventReader:
    """Reads an answer's server-sent events line by line. `done` is set by its last event."""

    def __init__(self) -> None:
        self.done = False
        self._reason: FinishReason | None = None
        self._usage: Usage | None = None

    def read(self, line: bytes) -> Iterator[Piece]:
        """The pieces that one whole line brings. Raises `msgspec.MsgspecError` on an event that is none."""
        if not line.startswith(b"data:"):
            return
        data = line[5:].strip()
        if data == b"[DONE]":
            self.done = True
            return
        chunk = _chunks.decode(data)
        if chunk.usage is not None:
            self._usage = _usage(chunk.usage)
        for choice in chunk.choices:
            if choice.delta.content:
                yield Piece(choice.delta.content, self._usage)
            if choice.finish_reason is not None:
                self._reason = "length" if choice.finish_reason == "length" else "stop"

    def end(self) -> End:
        """Raises `EngineBroken` where the answer closed without a reason to end."""
        if self._reason is None:
            raise EngineBroken("The engine closed the answer before its end.")
        return End(self._reason, self._usage)


def _usage(usage: _Usage) -> Usage:
    cached = usage.prompt_tokens_details.cached_tokens if usage.prompt_tokens_details else None
    return Usage(usage.prompt_tokens, cached or 0, usage.completion_tokens)


def request_body(task: GenerateTask, model: str, *, vllm: bool) -> dict[str, Any]:
    """What to send for a streamed answer. With `vllm` the extensions of vLLM's server are used."""
    sampling = task.sampling
    body: dict[str, Any] = {
        "model": model,
        "messages": task.messages,
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": sampling.max_tokens,
    }
    for name in ("temperature", "top_p", "seed", "response_format"):
        value = getattr(sampling, name)
        if value is not None:
            body[name] = value
    if sampling.stop:
        body["stop"] = sampling.stop
    if vllm:
        body["priority"] = task.priority
        body["cache_salt"] = task.cache_salt
        if task.continued:
            # The last message is the answer's beginning, and not a turn that is over.
            body["messages"] = (*task.messages, ChatMessage("assistant", task.continued))
            body |= {"continue_final_message": True, "add_generation_prompt": False}
        # Usage with each piece: an answer that is cut is billed for what the engine counted.
        body["stream_options"] = {"include_usage": True, "continuous_usage_stats": True}
    return body


def refusal(status: int, text: str) -> EngineRefused | EngineBroken:
    """The engine's refusal in our words: its own `text` may quote the prompt."""
    text = text.lower()
    if status in (400, 413, 422):
        if "context length" in text or "max_model_len" in text or "maximum model length" in text:
            return EngineRefused(
                "context_length_exceeded", "The prompt and the answer asked for do not fit the model's context."
            )
        return EngineRefused("invalid_value", "The engine refused a parameter of the request.")
    return EngineBroken(f"The engine answered with status {status}.")

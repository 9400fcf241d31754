"""An engine behind an OpenAI-compatible HTTP server: vLLM, the simulated one, or any other."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Annotated, Any

import aiohttp
import msgspec
from msgspec import Meta, Struct

from gpu_workers.engine_state import ActiveEngine
from gpu_workers.engines.base import End, EngineBroken, EngineRefused, Piece
from gpu_workers.engines.metrics import EngineLoad, parse_load
from gpu_workers.messages import ChatMessage, FinishReason, GenerateTask, Usage

CONNECT_TIMEOUT_S = 3.0
# An engine that accepts and then produces nothing for this long counts as dead.
SILENCE_TIMEOUT_S = 30.0
# How long a request waits in the worker for an engine to listen: one that stands by takes over at once.
FAILOVER_WAIT_S, CONNECT_AGAIN_S = 3.0, 0.05
MAX_LINE_BYTES = 1_048_576
MAX_METRICS_BYTES = 1_048_576
MAX_VERSION_BYTES = 4_096
# How long the end of the connection's answer is waited for after the last event.
END_TIMEOUT_S = 0.05


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


class NoEngine(EngineBroken):
    """The host's supervisor has no engine that may take requests."""


class _Version(Struct):
    version: str


_versions = msgspec.json.Decoder(_Version)
_chunks = msgspec.json.Decoder(_Chunk)


class OpenAIEngine:
    """Streams from the active engine's `/chat/completions`. With `vllm` the extensions of vLLM's server are used."""

    def __init__(
        self,
        active: ActiveEngine,
        model: str,
        api_key: str,
        *,
        vllm: bool,
        simulated: bool,
        silence_timeout_s: float = SILENCE_TIMEOUT_S,
    ) -> None:
        self.simulated = simulated
        self._silence_timeout_s = silence_timeout_s
        self.active = active
        self._model = model
        self._vllm = vllm
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._session: aiohttp.ClientSession | None = None

    async def start(self) -> None:
        self._session = aiohttp.ClientSession(
            headers=self._headers,
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=60),
            timeout=aiohttp.ClientTimeout(
                total=None, sock_connect=CONNECT_TIMEOUT_S, sock_read=self._silence_timeout_s
            ),
            read_bufsize=MAX_LINE_BYTES,
        )

    async def stop(self) -> None:
        if self._session is not None:
            await self._session.close()

    @property
    def _url(self) -> str:
        url = self.active.current().url
        if not url:
            raise NoEngine("No engine is active.")
        return url

    @property
    def takes_priorities(self) -> bool:
        """Whether requests are sent with one; a server of another kind would refuse the parameter."""
        return self._vllm

    @property
    def session(self) -> aiohttp.ClientSession:
        if self._session is None:
            raise EngineBroken("The engine's client was not started.")
        return self._session

    async def is_ready(self) -> bool:
        try:
            timeout = aiohttp.ClientTimeout(total=CONNECT_TIMEOUT_S)
            async with self.session.get(f"{self._url}/models", timeout=timeout) as response:
                return response.status == 200
        except (aiohttp.ClientError, TimeoutError, EngineBroken):
            return False

    async def version(self) -> str:
        """As vLLM's server names its own; empty where there is none to be had."""
        if not self._vllm:
            return ""
        try:
            timeout = aiohttp.ClientTimeout(total=CONNECT_TIMEOUT_S)
            async with self.session.get(f"{self._url.removesuffix('/v1')}/version", timeout=timeout) as response:
                page = await response.content.read(MAX_VERSION_BYTES)
                return _versions.decode(page).version[:40] if response.status == 200 else ""
        except (aiohttp.ClientError, TimeoutError, EngineBroken, msgspec.MsgspecError):
            return ""

    async def load(self) -> EngineLoad:
        """Only vLLM's server has this page, and the simulated one, which stands for it."""
        if not self._vllm:
            return EngineLoad()
        try:
            timeout = aiohttp.ClientTimeout(total=CONNECT_TIMEOUT_S)
            async with self.session.get(f"{self._url.removesuffix('/v1')}/metrics", timeout=timeout) as response:
                page = await response.content.read(MAX_METRICS_BYTES)
                return parse_load(page.decode(errors="replace")) if response.status == 200 else EngineLoad()
        except (aiohttp.ClientError, TimeoutError, EngineBroken):
            return EngineLoad()

    async def occupy(self, priority: int, max_tokens: int) -> None:
        """Have vLLM generate that many tokens of anything, and forget them: for probes. Raises `EngineBroken`."""
        question = [{"role": "user", "content": "count"}]
        body = {"model": self._model, "messages": question, "max_tokens": max_tokens, "ignore_eos": True}
        try:
            async with self.session.post(
                f"{self._url}/chat/completions", json=body | {"priority": priority}, allow_redirects=False
            ) as response:
                await response.read()
                if response.status != 200:
                    raise EngineBroken(f"The engine answered with status {response.status}.")
        except (aiohttp.ClientError, TimeoutError) as error:
            raise EngineBroken(f"The engine did not answer ({type(error).__name__}).") from None

    async def stream(self, task: GenerateTask) -> AsyncIterator[Piece | End]:
        try:
            async with await self._connected(task) as response:
                if response.status != 200:
                    raise await _refusal(response)
                async for item in _read(response):
                    yield item
        except (EngineBroken, EngineRefused):
            raise
        except Exception as error:
            # Whatever it is, and without its text: a client library quotes the line that it could not parse.
            raise EngineBroken(f"The engine's answer broke off ({type(error).__name__}).") from None

    async def _connected(self, task: GenerateTask) -> aiohttp.ClientResponse:
        """The engine's response as it begins. Where none listens, another that becomes active is waited for."""
        body = msgspec.json.encode(self._body(task))
        headers = {"Content-Type": "application/json", "X-Request-Id": task.request_id}
        until_s = time.monotonic() + FAILOVER_WAIT_S
        while True:
            try:
                # A redirect would carry the prompt to where nobody configured it to go.
                return await self.session.post(
                    f"{self._url}/chat/completions", data=body, headers=headers, allow_redirects=False
                )
            except (aiohttp.ClientConnectorError, NoEngine):
                if time.monotonic() >= until_s:
                    raise
                await asyncio.sleep(CONNECT_AGAIN_S)

    def _body(self, task: GenerateTask) -> dict[str, Any]:
        sampling = task.sampling
        body: dict[str, Any] = {
            "model": self._model,
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
        if self._vllm:
            body["priority"] = task.priority
            body["cache_salt"] = task.cache_salt
            if task.continued:
                # The last message is the answer's beginning, and not a turn that is over.
                body["messages"] = (*task.messages, ChatMessage("assistant", task.continued))
                body |= {"continue_final_message": True, "add_generation_prompt": False}
            # Usage with each piece: an answer that is cut is billed for what the engine counted.
            body["stream_options"] = {"include_usage": True, "continuous_usage_stats": True}
        return body


async def _read(response: aiohttp.ClientResponse) -> AsyncIterator[Piece | End]:
    reason: FinishReason | None = None
    usage: Usage | None = None
    async for line in response.content:
        if not line.startswith(b"data:"):
            continue
        data = line[5:].strip()
        if data == b"[DONE]":
            await _read_to_the_end(response.content)
            break
        chunk = _chunks.decode(data)
        if chunk.usage is not None:
            usage = _usage(chunk.usage)
        for choice in chunk.choices:
            if choice.delta.content:
                yield Piece(choice.delta.content, usage)
            if choice.finish_reason is not None:
                reason = "length" if choice.finish_reason == "length" else "stop"
    if reason is None:
        raise EngineBroken("The engine closed the answer before its end.")
    yield End(reason, usage)


async def _read_to_the_end(content: aiohttp.StreamReader) -> None:
    """So that the connection is used again. A server that leaves the answer open is not waited for."""
    with suppress(TimeoutError):
        async with asyncio.timeout(END_TIMEOUT_S):
            while await content.readany():
                pass


def _usage(usage: _Usage) -> Usage:
    cached = usage.prompt_tokens_details.cached_tokens if usage.prompt_tokens_details else None
    return Usage(usage.prompt_tokens, cached or 0, usage.completion_tokens)


async def _refusal(response: aiohttp.ClientResponse) -> Exception:
    """The engine's refusal in our words: its own may quote the prompt."""
    text = (await response.content.read(65_536)).decode(errors="replace").lower()
    if response.status in (400, 413, 422):
        if "context length" in text or "max_model_len" in text or "maximum model length" in text:
            return EngineRefused(
                "context_length_exceeded", "The prompt and the answer asked for do not fit the model's context."
            )
        return EngineRefused("invalid_value", "The engine refused a parameter of the request.")
    return EngineBroken(f"The engine answered with status {response.status}.")

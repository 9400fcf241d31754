"""An engine behind an OpenAI-compatible HTTP server: vLLM, the simulated one, or any other."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import suppress

import aiohttp
import msgspec
from msgspec import Struct

from gpu_workers.engine_state import ActiveEngine
from gpu_workers.engines.base import End, EngineBroken, EngineRefused, Piece
from gpu_workers.engines.completions import EventReader, refusal, request_body
from gpu_workers.engines.metrics import EngineLoad, parse_load
from gpu_workers.messages import GenerateTask

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


class NoEngine(EngineBroken):
    """The host's supervisor has no engine that may take requests."""


class _Version(Struct):
    version: str


_versions = msgspec.json.Decoder(_Version)


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
        body = msgspec.json.encode(request_body(task, self._model, vllm=self._vllm))
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


async def _read(response: aiohttp.ClientResponse) -> AsyncIterator[Piece | End]:
    reader = EventReader()
    async for line in response.content:
        for piece in reader.read(line):
            yield piece
        if reader.done:
            await _read_to_the_end(response.content)
            break
    yield reader.end()


async def _read_to_the_end(content: aiohttp.StreamReader) -> None:
    """So that the connection is used again. A server that leaves the answer open is not waited for."""
    with suppress(TimeoutError):
        async with asyncio.timeout(END_TIMEOUT_S):
            while await content.readany():
                pass


async def _refusal(response: aiohttp.ClientResponse) -> Exception:
    return refusal(response.status, (await response.content.read(65_536)).decode(errors="replace"))

"""Open-loop load: requests leave at seeded random times whether or not earlier ones have been answered."""

from __future__ import annotations

import asyncio
import random
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import aiohttp
import msgspec
import websockets

TOKENS = 16
TEXT = "please explain why the sky looks blue at noon and red in the evening"


@dataclass(frozen=True)
class Timing:
    """One answer as its client saw it, in milliseconds."""

    ttft_ms: float
    e2e_ms: float


Request = Callable[[int], Awaitable[Timing]]


async def run(request: Request, *, rate: float, count: int, seed: int = 7) -> list[Timing | Exception]:
    """Start `count` requests at `rate` a second (Poisson arrivals); their timings in order of start."""
    rng = random.Random(seed)
    loop = asyncio.get_running_loop()
    start, at = loop.time(), 0.0
    tasks: list[asyncio.Task[Timing]] = []
    for number in range(count):
        at += rng.expovariate(rate)
        await asyncio.sleep(max(0.0, start + at - loop.time()))
        tasks.append(asyncio.create_task(request(number)))  # type: ignore[arg-type]
    done = await asyncio.gather(*tasks, return_exceptions=True)
    return [result if isinstance(result, Timing | Exception) else RuntimeError("cancelled") for result in done]


class Direct:
    """The engine itself, asked over HTTP with the same seeds."""

    def __init__(self, url: str, model: str, api_key: str) -> None:
        self._url = f"{url}/chat/completions"
        self._body = {"model": model, "messages": [{"role": "user", "content": TEXT}], "stream": True}
        self._headers = {"Authorization": f"Bearer {api_key}"}

    async def __aenter__(self) -> Direct:
        self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), headers=self._headers)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def request(self, number: int) -> Timing:
        started, first = time.perf_counter(), 0.0
        body = self._body | {"max_tokens": TOKENS, "seed": number}
        async with self._session.post(self._url, json=body) as response:
            response.raise_for_status()
            async for line in response.content:
                if not first and b'"content":' in line and b'"content":""' not in line:
                    first = time.perf_counter()
        return _timing(started, first, time.perf_counter())


class Sockets:
    """A fixed number of chat sockets, used in turn; each answer is read to its end."""

    def __init__(self, urls: Sequence[str], api_key: str, count: int) -> None:
        self._urls = urls
        self._headers = {"Authorization": f"Bearer {api_key}"}
        self._count = count
        self._waiting: dict[str, asyncio.Queue[tuple[float, bytes]]] = {}
        self._sockets: list[websockets.ClientConnection] = []
        self._readers: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Sockets:
        for index in range(self._count):
            address = self._urls[index % len(self._urls)].replace("http", "ws", 1) + "/ws/chat"
            socket = await websockets.connect(
                address,
                additional_headers=self._headers,
                subprotocols=[websockets.Subprotocol("bursar.chat.v1")],
                compression=None,
            )
            self._sockets.append(socket)
            self._readers.append(asyncio.create_task(self._read(socket)))
        return self

    async def __aexit__(self, *_: object) -> None:
        for reader in self._readers:
            reader.cancel()
        await asyncio.gather(*(socket.close() for socket in self._sockets), return_exceptions=True)

    async def _read(self, socket: websockets.ClientConnection) -> None:
        async for frame in socket:
            at = time.perf_counter()
            data = frame.encode() if isinstance(frame, str) else frame
            ask_id = _heads.decode(data).id
            if ask_id in self._waiting:
                self._waiting[ask_id].put_nowait((at, data))

    async def request(self, number: int) -> Timing:
        ask_id = uuid.uuid4().hex
        queue = self._waiting[ask_id] = asyncio.Queue()
        parameters = {"max_tokens": TOKENS, "seed": number}
        event = {"type": "chat.send", "id": ask_id, "text": TEXT, "parameters": parameters}
        started, first = time.perf_counter(), 0.0
        try:
            await self._sockets[number % self._count].send(msgspec.json.encode(event).decode())
            while True:
                async with asyncio.timeout(60):
                    at, data = await queue.get()
                kind = _heads.decode(data).type
                if kind == "answer.delta" and not first:
                    first = at
                if kind == "error":
                    raise RuntimeError(msgspec.json.decode(data)["error"]["code"])
                if kind == "answer.finished":
                    return _timing(started, first, at)
        finally:
            del self._waiting[ask_id]


class _Head(msgspec.Struct):
    type: str
    id: str = ""


_heads = msgspec.json.Decoder(_Head)


def _timing(started: float, first: float, ended: float) -> Timing:
    if not first:
        raise RuntimeError("no token came")
    return Timing((first - started) * 1000, (ended - started) * 1000)

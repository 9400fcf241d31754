"""An engine that answers nothing real: an OpenAI-compatible server with seeded, vLLM-like timing.

It stands where a GPU would, for tests, benchmarks and `make run ENGINE=simulated`. Every answer says so.
"""

from __future__ import annotations

import argparse
import asyncio
import heapq
import itertools
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import uvicorn
from msgspec import Struct

from gpu_workers.engines.latency import Latency, ProfileInvalid, Timing, read_profile

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]

DEFAULT_TEXT = (
    "[simulated] this answer was not written by a model. it has the shape and the timing of one, so that limits, "
    "costs and records can be watched without a GPU. ask as much as you like: the words stay the same."
)


class _Message(Struct):
    role: str
    content: str


class _StreamOptions(Struct, frozen=True):
    include_usage: bool = False
    continuous_usage_stats: bool = False


class _Request(Struct):
    messages: list[_Message]
    model: str
    priority: int = 0
    stream: bool = False
    stream_options: _StreamOptions = _StreamOptions()
    max_tokens: int | None = None
    seed: int | None = None
    continue_final_message: bool = False
    ignore_eos: bool = False


def tokenize(text: str) -> list[str]:
    """Pieces with their leading space, as byte-pair vocabularies cut them."""
    return re.findall(r"\s*\S+|\s+$", text)


class Places:
    """How many requests run at once, 0 is no bound. The others wait by priority (lower first) and then in order, or
    in order alone."""

    def __init__(self, most: int, *, by_priority: bool = True) -> None:
        self._most = most
        self._by_priority = by_priority
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._order = itertools.count()
        self.running = 0

    @property
    def waiting(self) -> int:
        return sum(not place.done() for _, _, place in self._waiting)

    @asynccontextmanager
    async def taken(self, priority: int) -> AsyncIterator[None]:
        if self._most and self.running >= self._most:
            place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            rank = priority if self._by_priority else 0
            heapq.heappush(self._waiting, (rank, next(self._order), place))
            try:
                await place  # who leaves hands its place over, still counted as running
            except asyncio.CancelledError:
                if place.done() and not place.cancelled():
                    self._leave()
                raise
        else:
            self.running += 1
        try:
            yield
        finally:
            self._leave()

    def _leave(self) -> None:
        while self._waiting:
            _, _, place = heapq.heappop(self._waiting)
            if not place.done():
                place.set_result(None)
                return
        self.running -= 1


class SimulatedServer:
    """The ASGI application: /health, /metrics, /v1/models and /v1/chat/completions."""

    def __init__(
        self,
        model: str,
        text: str,
        latency: Latency,
        context_length: int,
        api_key: str,
        max_running: int = 0,
        *,
        by_priority: bool = True,
    ) -> None:
        self._model = model
        self._pieces = tokenize(text)
        self._latency = latency
        self._context_length = context_length
        self._api_key = api_key
        self._places = Places(max_running, by_priority=by_priority)
        self._served = itertools.count()
        self._generated = 0
        self._goes_on = asyncio.Event()
        self._goes_on.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        match scope["path"]:
            case "/health":
                await _respond(send, 200, b"")
            case "/metrics":
                await _respond(send, 200, self._metrics().encode(), b"text/plain")
            case "/version":
                await _respond_json(send, 200, {"version": "simulated"})
            case _ if not self._is_allowed(scope):
                await _respond_json(send, 401, {"error": {"message": "Unauthorized"}})
            case "/v1/models":
                data = [{"id": self._model, "object": "model", "max_model_len": self._context_length}]
                await _respond_json(send, 200, {"object": "list", "data": data})
            case "/v1/chat/completions":
                await self._complete(receive, send)
            case _:
                await _respond_json(send, 404, {"error": {"message": "Not Found"}})

    def stick(self) -> None:
        """Go on answering health checks and taking requests, and make no token more."""
        self._goes_on.clear()

    def _metrics(self) -> str:
        """As vLLM names what it counts."""
        counts = {
            "num_requests_running": self._places.running,
            "num_requests_waiting": self._places.waiting,
            "generation_tokens_total": self._generated,
        }
        labels = f'{{model_name="{self._model}"}}'
        return "".join(f"vllm:{name}{labels} {float(count)}\n" for name, count in counts.items())

    def _is_allowed(self, scope: Scope) -> bool:
        return not self._api_key or (b"authorization", f"Bearer {self._api_key}".encode()) in scope["headers"]

    async def _complete(self, receive: Receive, send: Send) -> None:
        try:
            request = msgspec.json.decode(await _body(receive), type=_Request)
        except msgspec.MsgspecError as error:
            await _respond_json(send, 400, {"error": {"message": str(error)}})
            return
        prompt_tokens = sum(len(tokenize(message.content)) + 4 for message in request.messages)
        if prompt_tokens + (request.max_tokens or 1) > self._context_length:
            message = f"This model's maximum context length is {self._context_length} tokens."
            await _respond_json(send, 400, {"error": {"message": message}})
            return
        work = asyncio.create_task(self._answer_in_turn(request, prompt_tokens, send))
        gone = asyncio.create_task(_disconnected(receive))
        done, pending = await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)
        for task in done:
            task.result()

    async def _answer_in_turn(self, request: _Request, prompt_tokens: int, send: Send) -> None:
        async with self._places.taken(request.priority):
            await self._answer(request, prompt_tokens, send)

    async def _answer(self, request: _Request, prompt_tokens: int, send: Send) -> None:
        rest = self._pieces[self._said(request) :]
        if request.ignore_eos and request.max_tokens:
            rest = list(itertools.islice(itertools.cycle(self._pieces), request.max_tokens))
        limit = min(request.max_tokens or len(rest), len(rest))
        reason = "length" if limit < len(rest) else "stop"
        usage = _usage(prompt_tokens, limit)
        pieces = self._paced(request.seed, prompt_tokens, rest[:limit])
        if not request.stream:
            text = "".join([piece async for piece in pieces])
            choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": reason}
            await _respond_json(send, 200, self._envelope("chat.completion", [choice]) | {"usage": usage})
            return
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
        await self._event(send, [{"index": 0, "delta": {"role": "assistant", "content": ""}}])
        made = 0
        async for piece in pieces:
            made += 1
            so_far = _usage(prompt_tokens, made) if request.stream_options.continuous_usage_stats else None
            await self._event(send, [{"index": 0, "delta": {"content": piece}, "finish_reason": None}], so_far)
        await self._event(send, [{"index": 0, "delta": {}, "finish_reason": reason}])
        if request.stream_options.include_usage:
            await self._event(send, [], usage)
        await send({"type": "http.response.body", "body": b"data: [DONE]\n\n", "more_body": False})

    def _said(self, request: _Request) -> int:
        """How many of the pieces the answer begins with already."""
        if not request.continue_final_message:
            return 0
        said = request.messages[-1].content
        lengths = itertools.accumulate(map(len, self._pieces))
        return sum(length <= len(said) for length in lengths)

    async def _paced(self, seed: int | None, prompt_tokens: int, pieces: list[str]) -> AsyncIterator[str]:
        rng, wait_s = self._latency.for_request(next(self._served), seed, prompt_tokens)
        for piece in pieces:
            await asyncio.sleep(wait_s)
            await self._goes_on.wait()
            self._generated += 1
            yield piece
            wait_s = self._latency.gap_s(rng, self._places.running)

    def _envelope(self, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {"id": "simulated", "object": kind, "created": 0, "model": self._model, "choices": choices}

    async def _event(self, send: Send, choices: list[dict[str, Any]], usage: dict[str, int] | None = None) -> None:
        chunk = self._envelope("chat.completion.chunk", choices)
        if usage is not None:
            chunk["usage"] = usage
        body = b"data: " + msgspec.json.encode(chunk) + b"\n\n"
        await send({"type": "http.response.body", "body": body, "more_body": True})


def _usage(prompt_tokens: int, made: int) -> dict[str, int]:
    return {"prompt_tokens": prompt_tokens, "completion_tokens": made, "total_tokens": prompt_tokens + made}


async def _body(receive: Receive) -> bytes:
    parts = []
    while True:
        message = await receive()
        parts.append(message.get("body", b""))
        if not message.get("more_body"):
            return b"".join(parts)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _respond(send: Send, status: int, body: bytes, kind: bytes = b"application/json") -> None:
    await send({"type": "http.response.start", "status": status, "headers": [(b"content-type", kind)]})
    await send({"type": "http.response.body", "body": body})


async def _respond_json(send: Send, status: int, body: object) -> None:
    await _respond(send, status, msgspec.json.encode(body))


def main() -> int:
    options = _options()
    try:
        latency = latency_of(options)
    except ProfileInvalid as error:
        print(f"engine: --profile: {error}", file=sys.stderr)  # noqa: T201
        return 2
    api_key = os.environ.get("BURSAR_ENGINE_API_KEY", "")
    app = SimulatedServer(
        options.model,
        options.text,
        latency,
        options.context_length,
        api_key,
        options.max_running,
        by_priority=options.scheduling_policy == "priority",
    )
    config = uvicorn.Config(
        app, host=options.host, port=options.port, log_level="warning", access_log=False, lifespan="off"
    )
    asyncio.run(_serve(uvicorn.Server(config), app))
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="An OpenAI-compatible server that simulates an engine.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--model", default="simulated")
    parser.add_argument("--text", default=os.environ.get("SIMULATED_TEXT", DEFAULT_TEXT))
    parser.add_argument("--ttft-ms", type=float, default=float(os.environ.get("SIMULATED_TTFT_MS", "60")))
    parser.add_argument("--itl-ms", type=float, default=float(os.environ.get("SIMULATED_ITL_MS", "5")))
    parser.add_argument("--profile", default="", help="take as long as it says, instead of the times above")
    parser.add_argument("--sigma", type=float, default=0.25)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--max-running", type=int, default=0)
    parser.add_argument("--scheduling-policy", choices=["fcfs", "priority"], default="priority")
    parser.add_argument("--context-length", type=int, default=4096)
    return parser.parse_args()


def latency_of(options: argparse.Namespace) -> Latency:
    """Raises `ProfileInvalid`."""
    if options.profile:
        return read_profile(Path(options.profile))
    return Timing(options.ttft_ms, options.itl_ms, options.sigma, options.seed)


async def _serve(server: uvicorn.Server, app: SimulatedServer) -> None:
    """SIGUSR1 has it stick, as engines do whose computation hangs."""
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, app.stick)
    await server.serve()


if __name__ == "__main__":
    sys.exit(main())

"""An engine behind HTTP: the simulated server, and a hostile one that breaks every rule it can."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
import uvicorn
from aiohttp import web

from console.local.ports import free_port
from gpu_workers.engine_state import ActiveEngine, EngineState, write_state
from gpu_workers.engines.base import End, EngineBroken, EngineRefused, Piece
from gpu_workers.engines.latency import Timing
from gpu_workers.engines.openai import OpenAIEngine
from gpu_workers.engines.simulated import DEFAULT_TEXT, SimulatedServer, tokenize
from gpu_workers.messages import ChatMessage, GenerateTask, Sampling, Usage
from tests.gpu_workers.tasks import PROMPT, task

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
QUICK = Timing(ttft_ms=5, itl_ms=1, sigma=0.25, seed=0)


@asynccontextmanager
async def simulated(
    timing: Timing = QUICK, api_key: str = "key", *, places: int = 0, by_priority: bool = True, context: int = 4096
) -> AsyncIterator[str]:
    port = free_port()
    app = SimulatedServer("simulated", DEFAULT_TEXT, timing, context, api_key, places, by_priority=by_priority)
    config = uvicorn.Config(app, port=port, log_level="warning", lifespan="off", access_log=False)
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        server.should_exit = True
        await serving


@asynccontextmanager
async def hostile(handler: Handler) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_post("/v1/chat/completions", handler)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    port = free_port()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    try:
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def engine_at(url: str, *, api_key: str = "key", vllm: bool = False) -> AsyncIterator[OpenAIEngine]:
    engine = OpenAIEngine(ActiveEngine(url), "simulated", api_key, vllm=vllm, simulated=True, silence_timeout_s=0.5)
    await engine.start()
    try:
        yield engine
    finally:
        await engine.stop()


async def items(engine: OpenAIEngine, asked: GenerateTask) -> list[Piece | End]:
    async with asyncio.timeout(30):
        return [item async for item in engine.stream(asked)]


async def test_the_simulated_engine_answers_in_pieces_and_counts() -> None:
    async with simulated() as url, engine_at(url) as engine:
        assert await engine.is_ready()
        *pieces, end = await items(engine, task(sampling=Sampling(max_tokens=5)))

    assert "".join(piece.text for piece in pieces if isinstance(piece, Piece)) == "".join(tokenize(DEFAULT_TEXT)[:5])
    assert end == End("length", Usage(prompt_tokens=5, cached_tokens=0, completion_tokens=5))


async def test_one_connection_serves_one_request_after_the_other() -> None:
    ports = set()

    async def answer(request: web.Request) -> web.StreamResponse:
        ports.add(request.transport.get_extra_info("peername")[1])  # type: ignore[union-attr]
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b'data: {"choices":[{"delta":{"content":"a"},"finish_reason":"stop"}]}\n\n')
        await response.write(b"data: [DONE]\n\n")
        return response

    async with hostile(answer) as url, engine_at(url) as engine:
        for _ in range(3):
            assert await items(engine, task()) == [Piece("a", None), End("stop", None)]
    assert len(ports) == 1


async def test_an_answer_that_is_left_open_after_its_last_event_holds_nobody_up() -> None:
    async def linger(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b'data: {"choices":[{"delta":{"content":"a"},"finish_reason":"stop"}]}\n\n')
        await response.write(b"data: [DONE]\n\n")
        await asyncio.sleep(60)
        return response

    async with hostile(linger) as url, engine_at(url) as engine:
        assert await items(engine, task()) == [Piece("a", None), End("stop", None)]


async def test_a_prompt_that_does_not_fit_is_refused_in_our_words() -> None:
    async with simulated(context=100) as url, engine_at(url) as engine:
        with pytest.raises(EngineRefused) as caught:
            await items(engine, task(messages=(ChatMessage("user", "word " * 200),)))
    assert caught.value.code == "context_length_exceeded"


async def test_a_wrong_key_is_a_broken_engine_and_not_ready() -> None:
    async with simulated() as url, engine_at(url, api_key="wrong") as engine:
        assert not await engine.is_ready()
        with pytest.raises(EngineBroken, match="401"):
            await items(engine, task())


async def test_closing_the_stream_frees_the_engine() -> None:
    slow = Timing(ttft_ms=1, itl_ms=60_000, sigma=0.1, seed=0)
    async with simulated(slow) as url, engine_at(url) as engine, httpx.AsyncClient() as http:
        stream = engine.stream(task())
        assert isinstance(await anext(stream), Piece)

        metrics = url.replace("/v1", "/metrics")

        async def running() -> bool:
            return 'requests_running{model_name="simulated"} 1.0' in (await http.get(metrics)).text

        assert await running()
        await stream.aclose()  # type: ignore[attr-defined]
        async with asyncio.timeout(10):
            while await running():
                await asyncio.sleep(0.02)


async def test_no_server_is_a_broken_engine_and_not_ready() -> None:
    async with engine_at(f"http://127.0.0.1:{free_port()}/v1") as engine:
        assert not await engine.is_ready()
        with pytest.raises(EngineBroken):
            await items(engine, task())


async def test_a_request_waits_for_an_engine_that_becomes_active(tmp_path: Path) -> None:
    file = tmp_path / "d.engine.json"
    engine = OpenAIEngine(ActiveEngine("", file), "simulated", "key", vllm=True, simulated=True)
    await engine.start()
    try:
        waiting = asyncio.create_task(items(engine, task()))
        await asyncio.sleep(0.1)
        async with simulated() as url:
            write_state(file, EngineState(f"http://127.0.0.1:{free_port()}/v1", 1))  # where nobody listens yet
            await asyncio.sleep(0.1)
            write_state(file, EngineState(url, 2))
            assert isinstance((await waiting)[-1], End)
    finally:
        await engine.stop()


async def test_the_engine_names_its_version() -> None:
    async with simulated() as url, engine_at(url, vllm=True) as engine:
        assert await engine.version() == "simulated"
    async with hostile(says()) as url, engine_at(url, vllm=True) as engine:
        assert await engine.version() == ""


def says(*chunks: bytes, status: int = 200, then_wait_s: float = 0, cut: bool = False) -> Handler:
    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(status=status, headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for chunk in chunks:
            await response.write(chunk)
        await asyncio.sleep(then_wait_s)
        if cut and request.transport is not None:
            request.transport.abort()
        return response

    return handler


def piece(text: str, reason: str | None = None) -> bytes:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": reason}
    return b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n"


BROKEN = {
    "garbage": says(piece("a"), f"data: {{{PROMPT}\n\n".encode()),
    "bytes that are no text": says(piece("a"), b"data: \xff\xfe\xff\n\n"),
    "another shape": says(b'data: {"choices": "' + PROMPT.encode() + b'"}\n\n'),
    "a list": says(b"data: []\n\n"),
    "nesting without end": says(b"data: " + b'{"choices":[' * 100_000 + b"\n\n"),
    "a line without end": says(b"data: ", *[b"x" * 1_000_000] * 5, b"\n\n"),
    "an early end": says(piece("a")),
    "a cut": says(piece("a"), cut=True),
    "nothing": says(),
    "only DONE": says(b"data: [DONE]\n\n"),
    "an error in the stream": says(b'data: {"error": {"message": "' + PROMPT.encode() + b'"}}\n\ndata: [DONE]\n\n'),
    "a failure": says(PROMPT.encode(), status=500),
    "too many requests": says(PROMPT.encode(), status=429),
    "not found": says(PROMPT.encode(), status=404),
    "silence": says(then_wait_s=60),
    "silence in the middle": says(piece("a"), then_wait_s=60),
    "usage below zero": says(piece("a", "stop"), b'data: {"choices": [], "usage": {"prompt_tokens": -5}}\n\n'),
    "usage beyond counting": says(
        piece("a", "stop"), b'data: {"choices": [], "usage": {"prompt_tokens": 1%s}}\n\n' % (b"0" * 30)
    ),
    "HTML": says(b"<html>" + PROMPT.encode() + b"</html>\n"),
}


@pytest.mark.parametrize("handler", BROKEN.values(), ids=BROKEN.keys())
async def test_a_server_that_misbehaves_is_a_broken_engine_and_is_not_quoted(handler: Handler) -> None:
    async with hostile(handler) as url, engine_at(url) as engine:
        with pytest.raises(EngineBroken) as caught:
            await items(engine, task())
    assert PROMPT not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    ("status", "text", "code"),
    [
        (400, f"This model's maximum context length is 100 tokens, and you sent {PROMPT}", "context_length_exceeded"),
        (400, f"The prompt {PROMPT} is longer than max_model_len", "context_length_exceeded"),
        (400, f"temperature is wrong: {PROMPT}", "invalid_value"),
        (422, PROMPT * 100_000, "invalid_value"),
    ],
)
async def test_a_refusal_is_told_in_our_words_and_not_in_the_engines(status: int, text: str, code: str) -> None:
    async with hostile(says(text.encode(), status=status)) as url, engine_at(url) as engine:
        with pytest.raises(EngineRefused) as caught:
            await items(engine, task())
    assert caught.value.code == code
    assert PROMPT not in caught.value.message


async def test_a_redirect_does_not_carry_the_prompt_elsewhere() -> None:
    reached = []

    async def elsewhere(request: web.Request) -> web.StreamResponse:
        reached.append(await request.text())
        return web.Response(text="data: [DONE]\n\n")

    async with hostile(elsewhere) as other:

        async def away(request: web.Request) -> web.StreamResponse:
            raise web.HTTPTemporaryRedirect(f"{other}/chat/completions")

        async with hostile(away) as url, engine_at(url) as engine:
            with pytest.raises(EngineBroken, match="307"):
                await items(engine, task())
    assert reached == []


async def test_frames_cut_anywhere_comments_and_unknown_fields_do_not_matter() -> None:
    whole = b": ping\n\nevent: x\nid: 5\n" + piece("a €") + b"\r\n" + piece(" b", "stop") + b"data: [DONE]\n\n"
    async with hostile(says(*(bytes([byte]) for byte in whole))) as url, engine_at(url) as engine:
        assert await items(engine, task()) == [Piece("a €", None), Piece(" b", None), End("stop", None)]


async def test_only_vllm_is_told_priority_and_salt() -> None:
    bodies = []

    async def handler(request: web.Request) -> web.StreamResponse:
        bodies.append(await request.json())
        return await says(piece("a", "stop"))(request)

    asked = task(
        continued="because", priority=-3, sampling=Sampling(max_tokens=4, temperature=0.0, stop=("x",), seed=0)
    )
    for vllm in (False, True):
        async with hostile(handler) as url, engine_at(url, vllm=vllm) as engine:
            await items(engine, asked)

    plain, extended = bodies
    assert "priority" not in plain
    assert (extended["priority"], extended["cache_salt"]) == (-3, "org")
    # Nor how the answer begins: others would take it for a turn that is over.
    assert [message["role"] for message in plain["messages"]] == ["user"]
    assert extended["messages"][-1] == {"role": "assistant", "content": "because"}
    assert (extended["continue_final_message"], extended["add_generation_prompt"]) == (True, False)
    assert (plain["temperature"], plain["seed"], plain["stop"], plain["max_tokens"]) == (0.0, 0, ["x"], 4)


def gaps(timing: Timing, number: int, seed: int | None) -> list[float]:
    rng, ttft_s = timing.for_request(number, seed)
    return [ttft_s, *(timing.gap_s(rng) for _ in range(20))]


def test_the_simulated_timing_depends_on_the_seeds_and_on_nothing_else() -> None:
    assert gaps(QUICK, 3, None) == gaps(Timing(5, 1, 0.25, 0), 3, None)
    assert gaps(QUICK, 3, 17) == gaps(QUICK, 99, 17)
    assert gaps(QUICK, 3, None) != gaps(QUICK, 4, None)
    assert gaps(QUICK, 3, None) != gaps(Timing(5, 1, 0.25, 1), 3, None)
    assert gaps(QUICK, 3, 17) != gaps(QUICK, 3, 18)


def test_the_simulated_tokens_are_the_text() -> None:
    for text in (DEFAULT_TEXT, "  two  spaces ", "", "\n\n", "é🙂 x"):
        assert "".join(tokenize(text)) == text


async def test_an_engine_that_is_asked_by_many_serves_each() -> None:
    async with simulated() as url, engine_at(url) as engine:
        answers = await asyncio.gather(*(items(engine, task(sampling=Sampling(max_tokens=8))) for _ in range(100)))
    assert {len(answer) for answer in answers} == {9}

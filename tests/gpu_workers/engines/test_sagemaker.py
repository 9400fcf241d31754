"""A SageMaker endpoint's stand-in over HTTP, which speaks the AWS event stream; botocore decodes it."""

from __future__ import annotations

import asyncio
import json
import struct
from binascii import crc32
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from console.local.ports import free_port
from gpu_workers.engines.base import End, EngineBroken, EngineRefused, Piece
from gpu_workers.engines.sagemaker import SageMakerEngine, sagemaker_engine
from gpu_workers.messages import Usage
from gpu_workers.settings import WorkerSettings
from tests.gpu_workers.tasks import PROMPT, SEAL_KEY, task

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def message(headers: dict[str, str], payload: bytes) -> bytes:
    """One message of an AWS event stream: prelude and its CRC, headers, payload, the CRC of all."""
    coded = b"".join(
        bytes([len(name)]) + name.encode() + b"\x07" + struct.pack("!H", len(value)) + value.encode()
        for name, value in headers.items()
    )
    prelude = struct.pack("!II", 16 + len(coded) + len(payload), len(coded))
    body = prelude + struct.pack("!I", crc32(prelude)) + coded + payload
    return body + struct.pack("!I", crc32(body))


def part(payload: bytes) -> bytes:
    return message({":message-type": "event", ":event-type": "PayloadPart"}, payload)


def failure(name: str, text: str) -> bytes:
    headers = {":message-type": "exception", ":exception-type": name}
    return message(headers, json.dumps({"Message": text}).encode())


def event(text: str | None = None, reason: str | None = None) -> bytes:
    usage = {"prompt_tokens": 3, "completion_tokens": 2}
    choice = {"delta": {"content": text}, "finish_reason": reason}
    return b"data: " + json.dumps({"choices": [choice], "usage": usage}, ensure_ascii=False).encode() + b"\n\n"


ANSWER = event("Grüße 🦀") + event(reason="stop") + b"data: [DONE]\n\n"


@asynccontextmanager
async def endpoint(
    handler: Handler, monkeypatch: pytest.MonkeyPatch, describe: Handler | None = None
) -> AsyncIterator[SageMakerEngine]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    app = web.Application()
    app.router.add_post("/endpoints/chat/invocations-response-stream", handler)
    if describe is not None:
        app.router.add_post("/", describe)
    runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    port = free_port()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    settings = WorkerSettings(
        *("", SEAL_KEY, "d", "sagemaker", "", "", "m", "", "", 4096, 0, "w"),
        sagemaker_region="eu-central-1",
        sagemaker_endpoint="chat",
        sagemaker_component="part-a",
    )
    engine = sagemaker_engine(settings, f"http://127.0.0.1:{port}")
    try:
        yield engine
    finally:
        await engine.stop()
        await runner.cleanup()


def sends(*messages: bytes) -> Handler:
    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/vnd.amazon.eventstream"})
        await response.prepare(request)
        for one in messages:
            await response.write(one)
        return response

    return handler


def refuses(status: int, code: str, text: str, seen: list[str]) -> Handler:
    async def handler(request: web.Request) -> web.StreamResponse:
        seen.append(code)
        return web.json_response({"Message": text}, status=status, headers={"x-amzn-ErrorType": code})

    return handler


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
async def test_it_reads_an_answer_however_its_parts_are_cut(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = [part(ANSWER[at : at + size]) for at in range(0, len(ANSWER), size)]
    async with endpoint(sends(*parts), monkeypatch) as engine:
        items = [item async for item in engine.stream(task())]
    assert items == [Piece("Grüße 🦀", Usage(3, 0, 2)), End("stop", Usage(3, 0, 2))]


async def test_it_asks_the_component_for_a_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str | None, dict[str, object]]] = []

    async def handler(request: web.Request) -> web.StreamResponse:
        asked.append((request.headers.get("X-Amzn-SageMaker-Inference-Component"), await request.json()))
        return await sends(part(ANSWER))(request)

    async with endpoint(handler, monkeypatch) as engine:
        assert [item async for item in engine.stream(task())]
    component, body = asked[0]
    assert component == "part-a"
    assert body["stream"] is True
    assert body["stream_options"] == {"include_usage": True, "continuous_usage_stats": True}


@pytest.mark.parametrize("name", ["ModelStreamErrorException", "InternalStreamFailure"])
async def test_a_failure_within_the_stream_keeps_the_prompt_to_itself(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with endpoint(sends(part(event("Hi")), failure(name, PROMPT)), monkeypatch) as engine:
        items = []
        with pytest.raises(EngineBroken) as broken:
            async for item in engine.stream(task()):
                items.append(item)
    assert items == [Piece("Hi", Usage(3, 0, 2))]
    assert PROMPT not in str(broken.value)


async def test_an_answer_without_an_end_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    async with endpoint(sends(part(event("Hi"))), monkeypatch) as engine:
        with pytest.raises(EngineBroken):
            [item async for item in engine.stream(task())]


async def test_a_throttled_call_is_tried_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    async with endpoint(refuses(429, "ThrottlingException", "slow", seen), monkeypatch) as engine:
        with pytest.raises(EngineBroken, match="overloaded"):
            [item async for item in engine.stream(task())]
    assert len(seen) == 3


async def test_a_validation_error_is_a_refusal_in_our_words(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    async with endpoint(refuses(400, "ValidationException", PROMPT, seen), monkeypatch) as engine:
        with pytest.raises(EngineRefused) as refused:
            [item async for item in engine.stream(task())]
    assert len(seen) == 1
    assert PROMPT not in refused.value.message


@pytest.mark.parametrize(("status", "ready"), [("InService", True), ("Creating", False)])
async def test_it_is_ready_when_its_component_is_in_service(
    status: str, ready: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def describe(request: web.Request) -> web.StreamResponse:
        assert request.headers["X-Amz-Target"] == "SageMaker.DescribeInferenceComponent"
        return web.json_response({"InferenceComponentStatus": status})

    async with endpoint(sends(), monkeypatch, describe) as engine:
        assert await engine.is_ready() is ready


async def test_an_endpoint_that_is_not_there_is_not_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    async with endpoint(sends(), monkeypatch) as engine:
        assert await engine.is_ready() is False


async def test_closing_the_stream_closes_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    left = asyncio.Event()

    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(part(event("Hi")))
        try:
            await asyncio.sleep(60)
        finally:
            left.set()
        return response

    async with endpoint(handler, monkeypatch) as engine:
        stream = engine.stream(task())
        assert await anext(stream) == Piece("Hi", Usage(3, 0, 2))
        waiting = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0.05)
        waiting.cancel()
        await asyncio.wait_for(left.wait(), 5)


async def test_leaving_before_the_endpoint_answers_closes_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, answer, left = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def handler(request: web.Request) -> web.StreamResponse:
        asked.set()
        await answer.wait()
        response = web.StreamResponse()
        await response.prepare(request)
        try:
            await asyncio.sleep(60)
        finally:
            left.set()
        return response

    async with endpoint(handler, monkeypatch) as engine:
        waiting = asyncio.ensure_future(anext(engine.stream(task())))
        await asyncio.wait_for(asked.wait(), 5)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        answer.set()
        await asyncio.wait_for(left.wait(), 5)

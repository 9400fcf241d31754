"""`POST /v1/chat/completions`: OpenAI's request in, the pipeline's events out as its response or as SSE."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any

import msgspec
from structlog.contextvars import bound_contextvars

from console import runtime
from console.api.bodies import CompletionBody, parse
from console.hosts import check_host
from gpu_workers.identifiers import uuid7
from inference.errors import Refusal, log_unexpected
from inference.events import Ask, Caller, Delta, Event, Finished, Refused, Room, Started
from inference.pipeline import audit_unavailable
from inference.routing import find_candidates

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]

MAX_BODY_BYTES = 1_048_576
REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}\Z")

_json = msgspec.json.Encoder().encode


class _ClientGone(Exception):
    pass


class _KeyWithdrawn(Exception):
    pass


class Completions:
    """An ASGI application for the one path."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        given = headers.get(b"x-request-id", "")
        request_id = given if REQUEST_ID.match(given) else str(uuid7())
        response = _Response(send, request_id)
        with bound_contextvars(request_id=request_id):
            try:
                await self._answer(scope, headers, receive, response)
            except Refusal as refusal:
                await response.refuse(refusal)
            except _ClientGone:
                return
            except Exception as error:
                log_unexpected("completion_failed", error)
                await response.fail()

    async def _answer(self, scope: Scope, headers: dict[bytes, str], receive: Receive, response: _Response) -> None:
        if not runtime.current().configuration.is_current():
            raise audit_unavailable()
        caller = runtime.current().keyring.find(headers.get(b"authorization"))
        try:
            check_host(scope)
            if caller is None:
                raise Refusal("invalid_api_key", "A valid API key must be sent as a bearer token.")
            if scope["method"] != "POST":
                raise Refusal("method_not_allowed", "Chat completions are asked for with POST.")
            body = parse(await _read_body(receive))
            if body.stream and scope["http_version"] == "1.0":
                # The server would send chunks, which that version does not know.
                raise Refusal("unsupported", "A stream needs HTTP/1.1.", param="stream")
            ask = _ask(body, response.request_id)
        except Refusal as refusal:
            _record(refusal, caller)
            raise
        with runtime.current().completions.watched(caller) as withdrawn:
            try:
                await _until_gone(receive, withdrawn, self._respond(body, ask, caller, response))
            except _KeyWithdrawn:
                late = Refusal("invalid_api_key", "The API key is no longer valid.")
                _record(late, caller)
                raise late from None

    async def _respond(self, body: CompletionBody, ask: Ask, caller: Caller, response: _Response) -> None:
        async with aclosing(runtime.current().answers.events(ask, caller)) as events:
            if body.stream:
                include_usage = bool(body.stream_options and body.stream_options.include_usage)
                await _stream(events, ask, response, include_usage)
            else:
                await _whole(events, ask, response)


def _record(refusal: Refusal, caller: Caller | None) -> None:
    """What is refused before it is an exchange; the pipeline records its own refusals."""
    runtime.current().refusals.record(
        refusal,
        channel="http",
        caller=caller.name if caller else "unknown",
        organisation_id=caller.organisation_id if caller else None,
    )


def _ask(body: CompletionBody, request_id: str) -> Ask:
    candidate = find_candidates(body.model, runtime.current().pipeline.catalog)[0]
    return Ask(
        exchange_id=uuid7(),
        request_id=request_id,
        channel="http",
        model=body.model,
        messages=body.chat(),
        sampling=body.sampling(candidate.context_length),
        priority=body.priority,
        tag=body.tag,
    )


async def _read_body(receive: Receive) -> bytes:
    parts, size = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise _ClientGone
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > MAX_BODY_BYTES:
            raise Refusal("body_too_large", f"The body is larger than {MAX_BODY_BYTES} bytes.")
        if not message.get("more_body"):
            return b"".join(parts)


async def _until_gone(receive: Receive, withdrawn: asyncio.Future[None], work: Awaitable[None]) -> None:
    """Do `work` until the client goes away or its key is withdrawn; cancelling it cancels the generation."""

    async def gone() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    working = asyncio.ensure_future(work)
    watching = asyncio.create_task(gone())
    try:
        await asyncio.wait({working, watching, withdrawn}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise _KeyWithdrawn if withdrawn.done() else _ClientGone
        await working
    finally:
        for task in (working, watching):
            task.cancel()
        await asyncio.gather(working, watching, return_exceptions=True)


async def _whole(events: AsyncIterator[Event], ask: Ask, response: _Response) -> None:
    text: list[str] = []
    async for event in events:
        match event:
            case Started(room=room):
                response.note_room(room)
            case Delta(text=piece):
                text.append(piece)
            case Refused(refusal=refusal):
                raise refusal
            case Finished():
                message = {"role": "assistant", "content": "".join(text), "refusal": None}
                choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _reason(event)}
                body = _envelope(ask, event.model, "chat.completion") | {"choices": [choice], "usage": _usage(event)}
                await response.send_json(200, body | {"bursar": _facts(ask, event)})


async def _stream(events: AsyncIterator[Event], ask: Ask, response: _Response, include_usage: bool) -> None:
    envelope: dict[str, Any] = {}
    async for event in events:
        match event:
            case Started(room=room):
                response.note_room(room)
                envelope = _envelope(ask, event.model, "chat.completion.chunk")
                await response.start_stream()
                await response.send_event(envelope | _choice({"role": "assistant", "content": ""}))
            case Delta(text=piece):
                await response.send_event(envelope | _choice({"content": piece}))
            case Refused(refusal=refusal):
                if not response.started:
                    raise refusal
                await response.send_event({"error": refusal.body()})
                await response.end_stream()
            case Finished():
                facts = {"bursar": _facts(ask, event)}
                last = envelope | _choice({}, _reason(event))
                if include_usage:
                    await response.send_event(last)
                    last = envelope | {"choices": [], "usage": _usage(event)}
                await response.send_event(last | facts)
                await response.end_stream()


def _envelope(ask: Ask, model: str, kind: str) -> dict[str, Any]:
    created = int(time.time())
    return {"id": f"chatcmpl-{ask.exchange_id}", "object": kind, "created": created, "model": model}


def _choice(delta: dict[str, str], finish_reason: str | None = None) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}]}


def _reason(event: Finished) -> str:
    return "length" if event.finish_reason == "length" else "stop"


def _usage(event: Finished) -> dict[str, Any]:
    usage = event.usage
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
    }


def _facts(ask: Ask, event: Finished) -> dict[str, Any]:
    return {
        "exchange": ask.exchange_id,
        "receipt": event.receipt,
        "ttft_ms": event.ttft_ms,
        "e2e_ms": event.e2e_ms,
        "cost_usd": format(event.cost, "f"),
        "simulated": event.simulated,
        "prompt_findings": event.prompt_findings,
        "answer_findings": event.findings,
    }


class _Response:
    """One response: JSON, or a stream of server-sent events."""

    def __init__(self, send: Send, request_id: str) -> None:
        self._send = send
        self.request_id = request_id
        self.started = False
        self._streams = False
        self._room: list[tuple[bytes, bytes]] = []

    def note_room(self, room: Room) -> None:
        """Say in the headers what the tightest limits leave, as OpenAI does."""
        for what, left, limit in (
            (b"requests", room.requests, room.requests_limit),
            (b"tokens", room.tokens, room.tokens_limit),
        ):
            if left is not None and limit is not None:
                self._room.append((b"x-ratelimit-limit-" + what, str(limit).encode()))
                self._room.append((b"x-ratelimit-remaining-" + what, str(left).encode()))

    async def _start(self, status: int, content_type: bytes, *extra: tuple[bytes, bytes]) -> None:
        self.started = True
        headers = [
            (b"content-type", content_type),
            (b"x-request-id", self.request_id.encode()),
            (b"cache-control", b"no-store"),
            (b"x-content-type-options", b"nosniff"),
            *self._room,
            *extra,
        ]
        await self._send({"type": "http.response.start", "status": status, "headers": headers})

    async def send_json(self, status: int, body: dict[str, Any], *extra: tuple[bytes, bytes]) -> None:
        encoded = _json(body)
        await self._start(status, b"application/json", (b"content-length", str(len(encoded)).encode()), *extra)
        await self._send({"type": "http.response.body", "body": encoded})

    async def refuse(self, refusal: Refusal) -> None:
        if self.started:
            await self._break_off(refusal)
            return
        extra = []
        if refusal.retry_after_s is not None:
            extra.append((b"retry-after", str(max(1, round(refusal.retry_after_s))).encode()))
        if refusal.status == 405:
            extra.append((b"allow", b"POST"))
        if refusal.status == 401:
            extra.append((b"www-authenticate", b"Bearer"))
        await self.send_json(refusal.status, {"error": refusal.body()}, *extra)

    async def fail(self) -> None:
        """After a fault of ours: an error where there is still time for one, else a stream that has no end."""
        if not self.started:
            await self.refuse(Refusal("internal_error", "The request failed inside the platform."))

    async def start_stream(self) -> None:
        self._streams = True
        await self._start(200, b"text/event-stream; charset=utf-8", (b"x-accel-buffering", b"no"))

    async def send_event(self, body: dict[str, Any]) -> None:
        await self._send({"type": "http.response.body", "body": b"data: " + _json(body) + b"\n\n", "more_body": True})

    async def _break_off(self, refusal: Refusal) -> None:
        """A stream that was cut says why and has no `[DONE]`: what came is not an answer."""
        if self._streams:
            await self.send_event({"error": refusal.body()})
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def end_stream(self) -> None:
        await self._send({"type": "http.response.body", "body": b"data: [DONE]\n\n", "more_body": False})

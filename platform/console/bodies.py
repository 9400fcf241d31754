"""A bound on request bodies, before Django: its ASGI handler stores a whole body, however large, before any view."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from gpu_workers.identifiers import uuid7
from inference.errors import Refusal

MAX_BYTES = 1_048_576
TOO_LARGE = Refusal("body_too_large", "The body is larger than 1 MiB.")

Scope = dict[str, Any]
Message = Mapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]


class BoundedBodies:
    """Passes requests on to `application`, and answers 413 for it once a body is larger than 1 MiB."""

    def __init__(self, application: Application) -> None:
        self._application = application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if _announced(scope) > MAX_BYTES:
            await _refuse(send)
            return
        body = _Body(receive)
        started = False

        async def noted(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        await self._application(scope, body.receive, noted)
        if body.is_too_large and not started:
            await _refuse(send)


class _Body:
    """A body that is counted as it comes: one sent in chunks announces no size."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._size = 0
        self.is_too_large = False

    async def receive(self) -> Message:
        message = await self._receive()
        self._size += len(message.get("body", b""))
        self.is_too_large = self._size > MAX_BYTES
        # To the application it looks as if the client had gone: it stops reading and says nothing.
        return {"type": "http.disconnect"} if self.is_too_large else message


def _announced(scope: Scope) -> int:
    length = dict(scope["headers"]).get(b"content-length", b"0")
    return int(length) if length.isdigit() else 0


async def _refuse(send: Send) -> None:
    """The connection stays open, and the server drops what still comes: closing it would lose the answer too."""
    body = json.dumps({"error": TOO_LARGE.body()}).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"x-request-id", str(uuid7()).encode()),
    ]
    await send({"type": "http.response.start", "status": TOO_LARGE.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})

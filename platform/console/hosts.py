"""Which hosts are served: Django's rule (ALLOWED_HOSTS), for what is answered without Django's middleware."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

from django.conf import settings
from django.http.request import split_domain_port, validate_host

from inference.errors import Refusal

# As Django has it while nothing is configured and DEBUG is on.
DEBUG_HOSTS = [".localhost", "127.0.0.1", "[::1]"]

Scope = dict[str, Any]


def check_host(scope: Scope) -> None:
    """Raises `Refusal` for a `Host` that is not served. Its value is not quoted: anybody chooses it."""
    allowed = settings.ALLOWED_HOSTS or (DEBUG_HOSTS if settings.DEBUG else [])
    # Two headers are one value with a comma, which is no host: neither of them is believed.
    given = b",".join(value for name, value in scope["headers"] if name == b"host").decode("latin-1")
    domain, _ = split_domain_port(given or _server(scope))
    if not domain or not validate_host(domain, allowed):
        raise Refusal("invalid_value", "The Host header names no host that is served here.", param="Host")


def _server(scope: Scope) -> str:
    """What stands for the host where a client of HTTP/1.0 sends none: the address that it connected to."""
    return str((scope.get("server") or ("unknown", None))[0])


async def refuse_socket(
    refusal: Refusal, receive: Callable[[], Awaitable[Any]], send: Callable[[Any], Awaitable[None]]
) -> None:
    """Answer a handshake over HTTP, before there is a socket (ASGI's extension `websocket.http.response`)."""
    await receive()
    body = json.dumps({"error": refusal.body()}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "websocket.http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "websocket.http.response.body", "body": body})

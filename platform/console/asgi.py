"""The web process: Django for pages, the pipeline for answers, the chat socket, and their common lifespan."""

from __future__ import annotations

import logging
import os
from collections.abc import Awaitable, Callable
from typing import Any

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")

from django.core.asgi import get_asgi_application

from gpu_workers.logging import configure_logging

configure_logging()
# A probe that finds the process not ready is no error of it, and probes come every second.
logging.getLogger("django.request").addFilter(lambda record: getattr(record, "status_code", 0) != 503)
django_application = get_asgi_application()

# Django must be set up before the modules below import models.
from channels.routing import ProtocolTypeRouter  # noqa: E402

from console import runtime  # noqa: E402
from console.api.completions import Completions  # noqa: E402
from console.bodies import BoundedBodies  # noqa: E402
from console.chat.consumer import ChatConsumer, refuse_unknown_path  # noqa: E402
from console.hosts import check_host, refuse_socket  # noqa: E402
from inference.errors import Refusal  # noqa: E402

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]

chat = ChatConsumer.as_asgi()
completions = Completions()
pages = BoundedBodies(django_application)


async def http(scope: Scope, receive: Receive, send: Send) -> None:
    """Chat completions go straight to the pipeline: Django's middleware would hop threads for each request."""
    if scope["path"] == "/v1/chat/completions":
        await completions(scope, receive, send)
    else:
        await pages(scope, receive, send)


async def websocket(scope: Scope, receive: Receive, send: Send) -> None:
    try:
        check_host(scope)
    except Refusal as refusal:
        await refuse_socket(refusal, receive, send)
        return
    if scope["path"] == "/ws/chat":
        await chat(scope, receive, send)
    else:
        await refuse_unknown_path(receive, send)


async def lifespan(scope: Scope, receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        if message["type"] == "lifespan.startup":
            await runtime.start()
            await send({"type": "lifespan.startup.complete"})
        elif message["type"] == "lifespan.shutdown":
            await runtime.stop()
            await send({"type": "lifespan.shutdown.complete"})
            return


application = ProtocolTypeRouter({"http": http, "websocket": websocket, "lifespan": lifespan})

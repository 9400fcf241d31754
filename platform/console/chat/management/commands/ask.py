"""`manage.py ask "…"`: one question to the running server over its WebSocket, the answer as it streams."""

from __future__ import annotations

import json
import os
import shlex
import uuid
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from websockets.exceptions import ConnectionClosed, WebSocketException
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Subprotocol

from console.chat.protocol import SUBPROTOCOL

SILENCE_TIMEOUT_S = 130.0
DEMO = Path("var") / "demo.env"


class Command(BaseCommand):
    help = "Ask the running server. Takes BURSAR_URL and BURSAR_API_KEY from the environment or var/demo.env."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("question")
        parser.add_argument("--model")
        parser.add_argument("--max-tokens", type=int)
        parser.add_argument("--conversation", help="continue this conversation")

    def handle(self, *args: Any, **options: Any) -> None:
        url, key = _setting("BURSAR_URL"), _setting("BURSAR_API_KEY")
        address = url.replace("http", "ws", 1).rstrip("/") + "/ws/chat"
        try:
            with connect(
                address,
                subprotocols=[Subprotocol(SUBPROTOCOL)],
                additional_headers={"Authorization": f"Bearer {key}"},
                max_size=None,
            ) as socket:
                socket.send(json.dumps(_question(options)))
                self._show(_last_event(socket, self._show_text))
        except ConnectionClosed as error:
            code = error.rcvd.code if error.rcvd else 1006
            reason = "the API key is not valid" if code == 4401 else f"close code {code}"
            raise CommandError(f"The server ended the connection: {reason}.") from None
        except TimeoutError:
            raise CommandError(f"The server at {url} said nothing for {SILENCE_TIMEOUT_S:g} s.") from None
        except (OSError, WebSocketException) as error:
            raise CommandError(f"No server at {url} ({type(error).__name__}). Start one with `make run`.") from None

    def _show_text(self, text: str) -> None:
        self.stdout.write(text, ending="")
        self.stdout.flush()

    def _show(self, event: dict[str, Any]) -> None:
        self.stdout.write("")
        if event["type"] == "error":
            error = event["error"]
            raise CommandError(f"{error['code']}: {error['message']}")
        usage = event["usage"]
        lines = [
            f"model    {event['model']} ({event['finish_reason']})",
            f"usage    {usage['prompt_tokens']} + {usage['completion_tokens']} tokens, {usage['cost_usd']} USD",
            f"latency  TTFT {event['ttft_ms'] or 0:.0f} ms, E2E {event['e2e_ms']:.0f} ms",
            f"receipt  {event['receipt']}",
        ]
        self.stdout.write("\n".join(lines))


def _question(options: dict[str, Any]) -> dict[str, Any]:
    event = {"type": "chat.send", "id": uuid.uuid4().hex, "text": options["question"]}
    if options["model"]:
        event["model"] = options["model"]
    if options["conversation"]:
        event["conversation"] = options["conversation"]
    if options["max_tokens"] is not None:
        event["parameters"] = {"max_tokens": options["max_tokens"]}
    return event


def _last_event(socket: ClientConnection, show_text: Any) -> dict[str, Any]:
    while True:
        event: dict[str, Any] = json.loads(socket.recv(timeout=SILENCE_TIMEOUT_S))
        if event["type"] == "answer.delta":
            show_text(event["text"])
        elif event["type"] in ("answer.finished", "error"):
            return event


def _setting(name: str) -> str:
    """From the environment, else from what `make run` wrote."""
    if value := os.environ.get(name):
        return value
    path = settings.BASE_DIR / DEMO
    for line in path.read_text().splitlines() if path.is_file() else ():
        variable, _, value = line.removeprefix("export ").partition("=")
        if variable == name:
            return shlex.split(value)[0]
    raise CommandError(f"{name} is neither set nor in {DEMO}. Start the server with `make run`.")

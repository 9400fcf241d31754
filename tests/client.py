"""A WebSocket client for tests: sends events, waits for those that matter."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import websockets
from websockets.asyncio.client import ClientConnection

Event = dict[str, Any]
# A bound on hanging, not a claim about speed.
PATIENCE_S = 30.0


class ChatClient:
    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.patience_s = PATIENCE_S

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        url: str,
        headers: dict[str, str],
        *,
        query: str = "",
        subprotocol: str | None = "bursar.chat.v1",
        **options: Any,
    ) -> AsyncIterator[ChatClient]:
        address = f"{url.replace('http', 'ws', 1)}/ws/chat{query}"
        subprotocols = [subprotocol] if subprotocol else None
        async with websockets.connect(
            address,
            additional_headers=headers,
            subprotocols=subprotocols,
            max_size=None,
            **options,  # type: ignore[arg-type]
        ) as socket:
            yield cls(socket)

    async def send(self, event: Event) -> None:
        await self.socket.send(json.dumps(event))

    async def send_raw(self, frame: str | bytes) -> None:
        await self.socket.send(frame)

    async def receive(self) -> Event:
        async with asyncio.timeout(self.patience_s):
            event: Event = json.loads(await self.socket.recv())
        return event

    async def until(self, *kinds: str) -> Event:
        """The next event of one of these types; those before it are passed over."""
        while (event := await self.receive())["type"] not in kinds:
            pass
        return event

    async def closed(self) -> int:
        """Wait for the end of the connection: its close code."""
        async with asyncio.timeout(PATIENCE_S):
            try:
                while True:
                    await self.socket.recv()
            except websockets.ConnectionClosed as closed:
                return closed.rcvd.code if closed.rcvd else 1006

    async def ask(self, text: str = "why is the sky blue?", **fields: Any) -> str:
        """Send a question; the id that it got."""
        ask_id = fields.pop("id", None) or uuid.uuid4().hex
        await self.send({"type": "chat.send", "id": ask_id, "text": text, **fields})
        return str(ask_id)

    async def answer(self, text: str = "why is the sky blue?", **fields: Any) -> list[Event]:
        """Ask, and all events of the answer to its last."""
        await self.ask(text, **fields)
        return await self.to_the_end()

    async def to_the_end(self) -> list[Event]:
        events = [await self.receive()]
        while events[-1]["type"] not in ("answer.finished", "error"):
            events.append(await self.receive())
        return events


def text_of(events: list[Event]) -> str:
    return "".join(event["text"] for event in events if event["type"] == "answer.delta")

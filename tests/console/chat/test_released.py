"""Who follows an answer gets every event of it, whatever comes between two looks."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from console.chat import released as module
from console.chat.released import Released, ReleasedEvents
from gpu_workers.connecting import connect
from tests.services import Services


async def test_events_that_all_come_between_two_looks_are_all_given(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    valkey, exchange = connect(services.valkey.url()), uuid4()
    events = ReleasedEvents(valkey, b"k" * 32, "owner")
    await events.open(exchange, "caller", uuid4().hex)
    note = await events.note(exchange)
    assert note is not None
    read, looks = module.read_stream, 0

    async def read_too_early(*arguments: Any, **options: Any) -> Any:
        nonlocal looks
        looks += 1
        found = await read(*arguments, **options)
        if looks == 1:
            for sequence in range(4):
                events.append(exchange, Released(sequence, str(sequence).encode(), sequence == 3))
            await events._flush()
        return found

    monkeypatch.setattr(module, "read_stream", read_too_early)
    assert [frame async for frame in events.follow(exchange, -1, note)] == [b"0", b"1", b"2", b"3"]
    assert [frame async for frame in events.follow(exchange, 3, note)] == [b"3"]
    await valkey.aclose()

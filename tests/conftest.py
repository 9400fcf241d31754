"""Fixtures that every test may use: the servers, and the whole product as processes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack

import pytest

from tests import plugin
from tests.client import ChatClient
from tests.services import Services
from tests.stack import Stack, running_stack


@pytest.fixture(scope="session")
def services() -> Services:
    """The servers that Django's own test database lies on, too. A test that stops one starts it again."""
    return plugin.services


@pytest.fixture(scope="session")
def live_stack(services: Services, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Two web processes, a worker and a simulated engine, shared by all tests. Leave it as you found it."""
    with running_stack(services, tmp_path_factory.mktemp("stack"), web_count=2) as stack:
        yield stack


@pytest.fixture
async def connect(live_stack: Stack) -> AsyncIterator[Callable[..., object]]:
    """Opens sockets to the live stack: `await connect()` with the demo key, or with other headers."""
    async with AsyncExitStack() as sockets:

        async def open_socket(
            *, web: int = 0, headers: dict[str, str] | None = None, query: str = "", **options: object
        ) -> ChatClient:
            if headers is None:
                headers = {"Authorization": f"Bearer {live_stack.api_key}"}
            return await sockets.enter_async_context(
                ChatClient.open(live_stack.urls()[web], headers, query=query, **options)
            )

        yield open_socket

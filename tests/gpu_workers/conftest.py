"""A worker's connection to the tests' Valkey."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from gpu_workers.connecting import connect
from tests.services import Services


@pytest.fixture
async def valkey(services: Services) -> AsyncIterator[Redis]:
    client = connect(services.valkey.url())
    yield client
    await client.aclose()

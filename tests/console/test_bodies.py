"""No request body is stored beyond 1 MiB, whether its size is announced or not."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest

from console.bodies import MAX_BYTES
from tests.console import people
from tests.stack import Stack


async def endless() -> AsyncIterator[bytes]:
    for _ in range(1024):
        yield b" " * 65_536


@pytest.mark.parametrize("path", ["/api/conversations/7", "/sign-in", "/nothing"])
@pytest.mark.parametrize("announced", [True, False])
async def test_a_body_over_a_mebibyte_is_refused(live_stack: Stack, path: str, announced: bool) -> None:
    content = b" " * (MAX_BYTES + 1) if announced else endless()
    headers = {"content-type": "application/json"} | people.bearer(live_stack.api_key)
    async with httpx.AsyncClient(base_url=live_stack.url) as client:
        response = await client.patch(path, content=content, headers=headers)
    assert response.status_code == 413
    assert response.json()["error"]["code"] == "body_too_large"


async def test_a_body_of_a_mebibyte_reaches_its_view(live_stack: Stack) -> None:
    headers = {"content-type": "application/json"} | people.bearer(live_stack.api_key)
    async with httpx.AsyncClient(base_url=live_stack.url) as client:
        response = await client.patch("/api/conversations/7", content=b" " * MAX_BYTES, headers=headers)
    assert response.json()["error"]["code"] == "invalid_json"

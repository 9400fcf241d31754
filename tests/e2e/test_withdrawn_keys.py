"""A key that is withdrawn while an answer runs over HTTP: the answer ends within two seconds, and says why.

The two seconds are the product's promise; they begin once the change is committed.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import openai
import psycopg
import pytest

from tests.e2e.people import shell
from tests.services import running_services
from tests.stack import MODEL, Stack, running_stack, wait_for

BODY = {"model": MODEL, "messages": [{"role": "user", "content": "why is the sky blue?"}], "max_tokens": 60}
WITHDRAWALS = ["keys.revoke({!r})", "keys.expire({!r})", "keys.close_organisation({!r})"]


@pytest.fixture(scope="module")
def slow_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Its engine needs half a minute for an answer. With servers of its own: two stacks would share a queue."""
    with (
        running_services() as services,
        running_stack(services, tmp_path_factory.mktemp("slow"), SIMULATED_ITL_MS="500") as stack,
    ):
        yield stack


@pytest.fixture
async def key(slow_stack: Stack) -> tuple[str, dict[str, str]]:
    """A key's name, which is its organisation's too, and the header that carries it."""
    name = f"withdrawn-{uuid.uuid4().hex[:8]}"
    headers = {"Authorization": f"Bearer {await shell(slow_stack, f'keys.create_in({name!r})')}"}

    def known() -> bool:
        return httpx.post(f"{slow_stack.url}/v1/chat/completions", headers=headers).status_code == 400

    await asyncio.to_thread(wait_for, known, "the key is known")
    return name, headers


async def events_of(lines: AsyncIterator[str]) -> AsyncIterator[str]:
    async for line in lines:
        if line.startswith("data: "):
            yield line.removeprefix("data: ")


async def engine_is_free(stack: Stack) -> None:
    await asyncio.to_thread(wait_for, lambda: stack.running_at_engine() == 0, "the engine is free")


def recorded(stack: Stack, sql: str, value: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(stack.environment["BURSAR_DATABASE_URL"]) as connection:
        return connection.execute(sql, [value]).fetchall()  # type: ignore[arg-type]


@pytest.mark.parametrize("withdrawal", WITHDRAWALS)
async def test_a_stream_ends_with_an_error_and_no_done(
    slow_stack: Stack, key: tuple[str, dict[str, str]], withdrawal: str
) -> None:
    name, headers = key
    async with (
        httpx.AsyncClient(base_url=slow_stack.url, headers=headers, timeout=60) as http,
        http.stream("POST", "/v1/chat/completions", json=BODY | {"stream": True}) as response,
    ):
        events = events_of(response.aiter_lines())
        first = json.loads(await anext(events))
        await shell(slow_stack, withdrawal.format(name))
        async with asyncio.timeout(2):
            rest = [event async for event in events]

    assert response.status_code == 200
    assert "[DONE]" not in rest
    error = json.loads(rest[-1])["error"]
    assert (error["code"], error["type"], error["param"]) == ("invalid_api_key", "authentication_error", None)
    await engine_is_free(slow_stack)
    exchange = first["id"].removeprefix("chatcmpl-")
    sql = "SELECT facts->>'finish_reason' FROM audit_entry WHERE exchange_id = %s AND kind = 'outcome'"
    await asyncio.to_thread(wait_for, lambda: recorded(slow_stack, sql, exchange) == [("cancelled",)], "the outcome")


async def test_a_plain_request_ends_with_401(slow_stack: Stack, key: tuple[str, dict[str, str]]) -> None:
    name, headers = key
    async with httpx.AsyncClient(base_url=slow_stack.url, headers=headers, timeout=60) as http:
        asked = asyncio.create_task(http.post("/v1/chat/completions", json=BODY))
        await asyncio.to_thread(wait_for, lambda: slow_stack.running_at_engine() == 1, "it is being answered")
        await shell(slow_stack, f"keys.revoke({name!r})")
        async with asyncio.timeout(2):
            response = await asked

    assert response.status_code == 401
    assert response.json()["error"]["code"] == "invalid_api_key"
    assert response.headers["www-authenticate"] == "Bearer"
    await engine_is_free(slow_stack)
    caller = await shell(slow_stack, f"'key:' + str(APIKey.objects.get(name={name!r}).pk)")
    sql = "SELECT facts->>'error_code' FROM audit_entry WHERE kind = 'refusal' AND facts->>'caller' = %s ORDER BY id"
    refusals = ("missing_body",), ("invalid_api_key",)
    await asyncio.to_thread(wait_for, lambda: recorded(slow_stack, sql, caller)[-2:] == [*refusals], "the refusal")


async def test_the_openai_sdk_raises_it_as_an_error(slow_stack: Stack, key: tuple[str, dict[str, str]]) -> None:
    name, headers = key
    client = openai.AsyncOpenAI(
        base_url=f"{slow_stack.url}/v1", api_key=headers["Authorization"].split()[1], max_retries=0
    )
    stream = await client.chat.completions.create(**BODY, stream=True)
    await anext(stream)
    await shell(slow_stack, f"keys.revoke({name!r})")
    with pytest.raises(openai.APIError, match="no longer valid"):
        async for _ in stream:
            pass


async def test_other_keys_go_on(slow_stack: Stack, key: tuple[str, dict[str, str]]) -> None:
    name, _ = key
    headers = {"Authorization": f"Bearer {slow_stack.api_key}"}
    async with httpx.AsyncClient(base_url=slow_stack.url, headers=headers, timeout=60) as http:
        asked = asyncio.create_task(http.post("/v1/chat/completions", json=BODY | {"max_tokens": 8}))
        await asyncio.to_thread(wait_for, lambda: slow_stack.running_at_engine() == 1, "it is being answered")
        await shell(slow_stack, f"keys.revoke({name!r})")
        assert (await asked).json()["choices"][0]["finish_reason"] == "length"

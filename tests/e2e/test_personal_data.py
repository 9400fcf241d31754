"""An answer that holds personal data, through every process: masked before the user, the resume and the record."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import msgspec
import psycopg
import pytest
import redis

from compliance.audit.entries import OutcomePayload
from compliance.crypto.record_key import RecordKey
from tests.client import ChatClient, Event, text_of
from tests.services import running_services
from tests.stack import MODEL, Stack, running_stack

TEXT = (
    "[simulated] it is known that Peter Miller pays with 4111 1111 1111 1111, writes from jane.doe@example.com"
    " and is called at (212) - 555 - 1234 when the sky is blue"
)
MASKED = (
    "[simulated] it is known that <PERSON> pays with <CREDIT_CARD>, writes from <EMAIL_ADDRESS>"
    " and is called at <PHONE_NUMBER> when the sky is blue"
)
COUNTED = {"CREDIT_CARD": 1, "EMAIL_ADDRESS": 1, "PERSON": 1, "PHONE_NUMBER": 1}


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """An engine that always says the same personal data."""
    with running_services() as services:
        directory = tmp_path_factory.mktemp("personal")
        with running_stack(services, directory, SIMULATED_TEXT=TEXT) as running:
            yield running


def headers(stack: Stack) -> dict[str, str]:
    return {"Authorization": f"Bearer {stack.api_key}"}


async def answer(stack: Stack, **fields: Any) -> list[Event]:
    async with ChatClient.open(stack.url, headers(stack)) as client:
        return await client.answer("what is known?", **fields)


async def test_an_answer_is_masked_on_the_socket_in_the_resume_and_in_the_record(stack: Stack) -> None:
    events = await answer(stack)
    exchange = events[0]["exchange"]

    assert text_of(events) == MASKED
    assert events[-1]["findings"] == COUNTED

    async with ChatClient.open(stack.url, headers(stack)) as client:
        await client.send({"type": "chat.resume", "exchange": exchange, "after": -1})
        assert text_of(await client.to_the_end()) == MASKED

    with psycopg.connect(stack.environment["BURSAR_DATABASE_URL"]) as connection:
        sql = "SELECT organisation_id, payload, facts FROM audit_entry WHERE id = %s"
        row = connection.execute(sql, [events[-1]["receipt"]]).fetchone()
    assert row is not None
    organisation_id, payload, facts = row
    key = RecordKey(bytes.fromhex(stack.environment["BURSAR_RECORD_KEY"]))
    place = {"organisation_id": organisation_id, "table": "audit_entry", "column": "payload"}
    clear = key.open(payload, **place, row=msgspec.convert(events[-1]["receipt"], type=type(organisation_id)))
    assert msgspec.msgpack.decode(clear, type=OutcomePayload).answer == MASKED
    assert facts["answer_findings"] == COUNTED


async def test_an_answer_that_is_cut_in_the_middle_of_personal_data_shows_none_of_it(stack: Stack) -> None:
    for max_tokens in range(5, 24, 2):
        shown = text_of(await answer(stack, parameters={"max_tokens": max_tokens}))
        for secret in ("Miller", "4111 1111 1111 1111", "example.com"):
            assert secret not in shown


async def test_an_answer_is_masked_over_http_streamed_or_whole(stack: Stack) -> None:
    body = {"model": MODEL, "messages": [{"role": "user", "content": "what is known?"}]}
    async with httpx.AsyncClient(base_url=stack.url, headers=headers(stack), timeout=30) as http:
        whole = (await http.post("/v1/chat/completions", json=body)).json()
        streamed = (await http.post("/v1/chat/completions", json=body | {"stream": True})).text

    assert whole["choices"][0]["message"]["content"] == MASKED
    assert whole["bursar"]["answer_findings"] == COUNTED
    for secret in ("Miller", "1111", "jane.doe", "555"):
        assert secret not in streamed


async def test_what_was_masked_lies_nowhere_in_clear(stack: Stack) -> None:
    await answer(stack)
    with redis.Redis.from_url(stack.services.valkey.url()) as valkey:
        held = b"".join(valkey.dump(key) for key in valkey.scan_iter())
    logs = b"".join(path.read_bytes() for path in stack.directory.glob("*.log"))
    for secret in (b"Miller", b"4111 1111", b"jane.doe"):
        assert secret not in held
        assert secret not in logs

"""Malformed, huge and hostile input: refused by field, with the socket still open."""

from __future__ import annotations

import asyncio
import json
import uuid

import httpx
import psycopg
import pytest
import websockets

from tests.client import ChatClient
from tests.stack import MODEL, Stack, wait_for

SEND = {"type": "chat.send", "id": "x", "text": "hello"}
UNKNOWN = str(uuid.uuid4())


def send(**fields: object) -> str:
    return json.dumps(SEND | fields)


FRAMES = {
    "broken JSON": ('{"type": "chat.send"', "invalid_json", None),
    "not an object": ("[1, 2]", "invalid_value", None),
    "deep nesting": ('{"type": "ping", "id": ' + "[" * 50_000, "invalid_value", "id"),
    "no type": ('{"id": "x"}', "unknown_event", "type"),
    "type of the wrong type": ('{"type": 7}', "unknown_event", "type"),
    "unknown event": ('{"type": "chat.shout"}', "unknown_event", "type"),
    "unknown field": (send(colour="red"), "invalid_value", "colour"),
    "unknown parameter": (send(parameters={"top_k": 3}), "invalid_value", "parameters.top_k"),
    "missing text": ('{"type": "chat.send", "id": "x"}', "invalid_value", "text"),
    "text of the wrong type": (send(text=7), "invalid_value", "text"),
    "empty text": (send(text=""), "empty_text", "text"),
    "blank text": (send(text=" \n\t"), "empty_text", "text"),
    "NUL": (send(text="a\x00b"), "invalid_value", "text"),
    "lone surrogate": (send().replace("hello", "\\ud800"), "invalid_json", None),
    "200,000 characters": (send(text="a" * 200_000), "frame_too_large", None),
    "id too long": (send(id="x" * 65), "invalid_value", "id"),
    "id with a space": (send(id="a b"), "invalid_value", "id"),
    "max_tokens 0": (send(parameters={"max_tokens": 0}), "invalid_value", "parameters.max_tokens"),
    "max_tokens negative": (send(parameters={"max_tokens": -5}), "invalid_value", "parameters.max_tokens"),
    "max_tokens huge": (send(parameters={"max_tokens": 10**30}), "invalid_value", "parameters.max_tokens"),
    "max_tokens a string": (send(parameters={"max_tokens": "12"}), "invalid_value", "parameters.max_tokens"),
    "temperature NaN": (send().replace('"hello"', '"hello", "parameters": {"temperature": NaN}'), "invalid_json", None),
    "temperature too high": (send(parameters={"temperature": 2.5}), "invalid_value", "parameters.temperature"),
    "linger negative": (send(linger_ms=-1), "invalid_value", "linger_ms"),
    "unknown model": (send(model="gpt-17"), "model_not_found", "model"),
    "conversation no UUID": (send(conversation="mine"), "invalid_value", "conversation"),
    "unknown conversation": (send(conversation=UNKNOWN), "conversation_not_found", "conversation"),
    "cancel of nothing": ('{"type": "chat.cancel"}', "invalid_value", "id"),
    "cancel of an unknown id": ('{"type": "chat.cancel", "id": "nope"}', "exchange_not_found", "id"),
    "resume of an unknown exchange": (
        json.dumps({"type": "chat.resume", "exchange": UNKNOWN, "after": 0}),
        "exchange_not_found",
        "exchange",
    ),
    "resume after a string": (
        json.dumps({"type": "chat.resume", "exchange": UNKNOWN, "after": "1"}),
        "invalid_value",
        "after",
    ),
}


@pytest.mark.parametrize(("frame", "code", "param"), FRAMES.values(), ids=FRAMES.keys())
async def test_a_bad_frame_is_refused_by_field_and_the_socket_stays_open(connect, frame, code, param) -> None:
    client: ChatClient = await connect()

    await client.send_raw(frame)
    error = await client.until("error")

    assert error["error"]["code"] == code
    assert error["error"]["param"] == param
    assert error["error"]["message"]
    await client.send({"type": "ping", "id": "still here"})
    assert (await client.until("pong"))["id"] == "still here"


async def test_a_refusal_does_not_quote_the_value(connect) -> None:
    client = await connect()

    await client.send_raw(send(parameters={"max_tokens": "4111 1111 1111 1111"}))
    first = await client.until("error")
    await client.send_raw('{"type": "4111 1111 1111 1111"}')
    second = await client.until("error")

    assert "4111" not in json.dumps([first, second])


async def test_a_refused_question_is_named_by_its_id(connect) -> None:
    client = await connect()
    for frame in (send(id="q-1", text=" "), send(id="q-1", parameters={"max_tokens": 0}), send(id="q-1", colour="red")):
        await client.send_raw(frame)
        assert (await client.until("error"))["id"] == "q-1"


async def test_a_prompt_longer_than_the_context_is_refused(connect) -> None:
    client = await connect()

    by_characters = await client.answer("word " * 12_000)
    by_the_engine = await client.answer("a b " * 5_000)

    for events in (by_characters, by_the_engine):
        assert events[-1]["error"]["code"] == "context_length_exceeded"
        assert events[-1]["error"]["param"] == "messages"


async def test_a_frame_of_10_mb_closes_the_socket(connect) -> None:
    client = await connect()
    with pytest.raises(websockets.ConnectionClosed):
        await client.send_raw(send(text="a" * 10_000_000))
        await client.receive()
    assert await client.closed() == 1009


async def test_invalid_utf_8_closes_the_socket(connect) -> None:
    client = await connect()
    await client.socket.send(b'{"type": "\xff\xfe"}', text=True)
    assert await client.closed() == 1007


async def test_a_binary_frame_closes_the_socket(connect) -> None:
    client = await connect()
    await client.send_raw(b"\x00\x01")
    assert await client.closed() == 1003


async def test_more_than_20_frames_a_second_are_refused_and_a_flood_closes_the_socket(connect) -> None:
    client = await connect()
    for _ in range(60):
        await client.send({"type": "ping"})
    error = await client.until("error")
    assert error["error"]["code"] == "rate_limit_exceeded"
    assert "20 frames" in error["error"]["message"]
    assert error["retry_after_s"] == 1

    with pytest.raises(websockets.ConnectionClosed):
        for _ in range(5_000):
            await client.send({"type": "ping"})
            await client.receive()
    assert await client.closed() == 4429


async def test_a_fifth_answer_at_once_is_refused(connect) -> None:
    client = await connect()
    for index in range(5):
        await client.ask(id=f"answer-{index}-{uuid.uuid4().hex}")

    refused = await client.until("error")

    assert refused["id"].startswith("answer-4")
    assert refused["error"]["code"] == "rate_limit_exceeded"
    assert "4 answers at once for this socket" in refused["error"]["message"]


async def test_the_id_of_a_running_answer_is_refused_on_the_same_socket(connect) -> None:
    client = await connect()
    ask_id = await client.ask()
    await client.until("answer.started")
    await client.ask(id=ask_id)
    assert (await client.until("error"))["error"]["code"] == "duplicate_id"


BODY = {"model": MODEL, "messages": [{"role": "user", "content": "hello"}], "max_tokens": 4}
BODIES = {
    "no body": (b"", 400, "missing_body", None),
    "broken JSON": (b"{", 400, "invalid_json", None),
    "invalid UTF-8": (b'{"model": "\xff"}', 400, "invalid_json", None),
    "an array": (b"[]", 400, "invalid_value", None),
    "deep nesting": (b'{"response_format": ' + b"[" * 100_000, 400, "invalid_json", None),
    "no model": (BODY | {"model": None}, 400, "invalid_value", "model"),
    "unknown model": (BODY | {"model": "gpt-17"}, 404, "model_not_found", "model"),
    "no messages": ({"model": MODEL}, 400, "invalid_value", "messages"),
    "empty messages": (BODY | {"messages": []}, 400, "invalid_value", "messages"),
    "blank messages": (BODY | {"messages": [{"role": "user", "content": " "}]}, 400, "empty_text", "messages"),
    "unknown role": (
        BODY | {"messages": [{"role": "boss", "content": "x"}]},
        400,
        "invalid_value",
        "messages[0].role",
    ),
    "an image": (
        BODY | {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://x"}}]}]},
        400,
        "invalid_value",
        "messages[0].content[0].type",
    ),
    "NUL": (BODY | {"messages": [{"role": "user", "content": "a\x00"}]}, 400, "invalid_value", "messages[0].content"),
    "max_tokens 0": (BODY | {"max_tokens": 0}, 400, "invalid_value", "max_tokens"),
    "max_tokens a string": (BODY | {"max_tokens": "4"}, 400, "invalid_value", "max_tokens"),
    "max_completion_tokens huge": (
        BODY | {"max_completion_tokens": 10**9},
        400,
        "invalid_value",
        "max_completion_tokens",
    ),
    "n 2": (BODY | {"n": 2}, 400, "invalid_value", "n"),
    "five stops": (BODY | {"stop": list("abcde")}, 400, "invalid_value", "stop"),
    "tools": (BODY | {"tools": []}, 400, "unsupported", "tools"),
    "logprobs": (BODY | {"logprobs": True}, 400, "unsupported", "logprobs"),
    "response_format too large": (
        BODY | {"response_format": {"type": "json_object", "x": "a" * 20_000}},
        400,
        "invalid_value",
        "response_format",
    ),
    "response_format beyond 64 bits": (
        BODY | {"response_format": {"x": 10**29}},
        400,
        "invalid_value",
        "response_format",
    ),
    "personal data in response_format": (
        BODY | {"response_format": {"type": "json_schema", "description": "card 4111 1111 1111 1111"}},
        400,
        "content_filter",
        "response_format",
    ),
    "personal data in stop": (BODY | {"stop": ["jane.doe@example.com"]}, 400, "content_filter", "stop"),
    "personal data in tag": (BODY | {"tag": "078-05-1121"}, 400, "content_filter", "tag"),
    "a tag with a space": (BODY | {"tag": "two words"}, 400, "invalid_value", "tag"),
    "unknown field": (BODY | {"colour": "red"}, 400, "invalid_value", "colour"),
    "200,000 characters": (
        BODY | {"messages": [{"role": "user", "content": "a" * 200_000}]},
        400,
        "context_length_exceeded",
        "messages",
    ),
    "over 1 MiB": (b" " * 1_100_000, 413, "body_too_large", None),
}


@pytest.mark.parametrize(("body", "status", "code", "param"), BODIES.values(), ids=BODIES.keys())
def test_a_bad_body_is_refused_by_field(live_stack: Stack, body, status, code, param) -> None:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = {"Authorization": f"Bearer {live_stack.api_key}", "Content-Type": "application/json"}

    response = httpx.post(f"{live_stack.url}/v1/chat/completions", content=content, headers=headers)

    error = response.json()["error"]
    assert (response.status_code, error["code"], error["param"]) == (status, code, param)
    assert response.headers["x-request-id"]


@pytest.mark.parametrize("authorization", ["", "Bearer", "Bearer nonsense", f"Bearer bsk_{'x' * 43}", "Basic eDp5"])
def test_a_request_without_a_valid_key_is_refused(live_stack: Stack, authorization: str) -> None:
    headers = {"Authorization": authorization} if authorization else {}
    for method, path in (("POST", "/v1/chat/completions"), ("GET", "/v1/models"), ("GET", "/v1/models/x")):
        response = httpx.request(method, live_stack.url + path, headers=headers)
        assert response.status_code == 401
        assert response.json()["error"]["code"] == "invalid_api_key"


def test_another_method_is_refused(live_stack: Stack) -> None:
    headers = {"Authorization": f"Bearer {live_stack.api_key}"}
    response = httpx.get(f"{live_stack.url}/v1/chat/completions", headers=headers)
    assert (response.status_code, response.json()["error"]["code"]) == (405, "method_not_allowed")


def refusals(stack: Stack, param: str) -> list[dict[str, str]]:
    with psycopg.connect(stack.environment["BURSAR_DATABASE_URL"]) as connection:
        sql = "SELECT facts FROM audit_entry WHERE kind = 'refusal' AND facts->>'param' = %s"
        return [row[0] for row in connection.execute(sql, [param]).fetchall()]


async def test_refusals_are_in_the_record_without_what_was_sent(connect, live_stack: Stack) -> None:
    before = len(refusals(live_stack, "(unknown field)"))
    client = await connect()
    await client.send_raw(send(flavour="4111 1111 1111 1111"))
    await client.until("error")
    headers = {"Authorization": f"Bearer {live_stack.api_key}"}
    httpx.post(f"{live_stack.url}/v1/chat/completions", json=BODY | {"flavour": "4111 1111 1111 1111"}, headers=headers)

    await asyncio.to_thread(
        wait_for, lambda: len(refusals(live_stack, "(unknown field)")) > before + 1, "both are recorded"
    )

    found = refusals(live_stack, "(unknown field)")
    assert {entry["channel"] for entry in found} == {"socket", "http"}
    assert all(entry["caller"].startswith("key:") for entry in found)
    assert "4111" not in str(found)
    assert "flavour" not in str(found)


async def test_a_flood_of_unknown_callers_does_not_fill_the_record(live_stack: Stack) -> None:
    def count() -> int:
        with psycopg.connect(live_stack.environment["BURSAR_DATABASE_URL"]) as connection:
            sql = "SELECT count(*) FROM audit_entry WHERE facts->>'caller' = 'unknown'"
            return int((connection.execute(sql).fetchone() or (0,))[0])

    before = count()
    async with httpx.AsyncClient(limits=httpx.Limits(max_connections=20)) as http:
        url = f"{live_stack.url}/v1/chat/completions"
        responses = await asyncio.gather(*(http.post(url) for _ in range(600)))
    assert {response.status_code for response in responses} == {401}
    await asyncio.to_thread(wait_for, lambda: count() > before, "some are recorded")
    assert count() - before < 600

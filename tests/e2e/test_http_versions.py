"""What HTTP itself lets a client get wrong: the host it names, and a version that knows no streams."""

from __future__ import annotations

import json
import socket

import httpx
import pytest
import websockets

from tests.client import ChatClient
from tests.stack import MODEL, Stack

BODY = {"model": MODEL, "messages": [{"role": "user", "content": "hello"}], "max_tokens": 4}
FOREIGN = ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "bad_host", "[::2]"]


def authorization(stack: Stack) -> dict[str, str]:
    return {"Authorization": f"Bearer {stack.api_key}"}


def raw(stack: Stack, version: str, body: dict[str, object], *headers: str) -> tuple[list[str], bytes]:
    """Send a request as these very bytes; the head of the answer as lines, and its body until the connection ends."""
    payload = json.dumps(body).encode()
    head = [f"POST /v1/chat/completions HTTP/{version}", f"Authorization: Bearer {stack.api_key}", *headers]
    head += [f"Content-Length: {len(payload)}", "Connection: close", "", ""]
    with socket.create_connection(("127.0.0.1", stack.ports[0]), timeout=30) as connection:
        connection.sendall("\r\n".join(head).encode() + payload)
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    lines, _, rest = answer.partition(b"\r\n\r\n")
    return lines.decode().lower().split("\r\n"), rest


@pytest.mark.parametrize("host", FOREIGN)
def test_completions_are_served_for_no_other_host(live_stack: Stack, host: str) -> None:
    response = httpx.post(
        f"{live_stack.url}/v1/chat/completions", json=BODY, headers=authorization(live_stack) | {"Host": host}
    )
    error = response.json()["error"]
    assert (response.status_code, error["type"], error["param"]) == (400, "invalid_request_error", "Host")
    assert host not in response.text


@pytest.mark.parametrize("host", FOREIGN)
async def test_a_handshake_for_another_host_opens_no_socket(live_stack: Stack, host: str) -> None:
    """A name that leads here and is not ours may belong to a page that wants to pass for ours."""
    address = f"ws://{host.replace(' ', '')}/ws/chat"
    options = {"host": "127.0.0.1", "port": live_stack.ports[0], "subprotocols": ["bursar.chat.v1"]}
    with pytest.raises(websockets.InvalidStatus) as refused:
        async with websockets.connect(address, additional_headers=authorization(live_stack), **options):
            pass
    assert refused.value.response.status_code == 400
    assert json.loads(refused.value.response.body)["error"]["param"] == "Host"


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:80", "127.0.0.1", "localhost.", "[::1]:8000"])
def test_every_allowed_spelling_of_the_host_is_served(live_stack: Stack, host: str) -> None:
    head, body = raw(live_stack, "1.1", BODY, f"Host: {host}")
    assert head[0] == "http/1.1 200 ok", body
    assert json.loads(body)["object"] == "chat.completion"


def test_of_two_hosts_neither_is_believed(live_stack: Stack) -> None:
    for hosts in (("127.0.0.1", "evil.example"), ("evil.example", "127.0.0.1")):
        head, _ = raw(live_stack, "1.1", BODY, *(f"Host: {host}" for host in hosts))
        assert head[0] == "http/1.1 400 bad request"


def test_http_1_0_gets_a_whole_answer(live_stack: Stack) -> None:
    head, body = raw(live_stack, "1.0", BODY)
    assert head[0] == "http/1.1 200 ok", body
    assert not any(line.startswith("transfer-encoding") for line in head)
    assert json.loads(body)["usage"]["completion_tokens"] == 4


def test_http_1_0_is_refused_a_stream_which_it_could_not_read(live_stack: Stack) -> None:
    head, body = raw(live_stack, "1.0", BODY | {"stream": True}, "Host: 127.0.0.1")
    assert head[0] == "http/1.1 400 bad request"
    error = json.loads(body)["error"]
    assert (error["code"], error["param"]) == ("unsupported", "stream")
    assert "http/1.1" in error["message"].lower()


async def test_the_right_host_opens_a_socket(live_stack: Stack) -> None:
    async with ChatClient.open(live_stack.url, authorization(live_stack)) as client:
        await client.send({"type": "ping"})
        await client.until("pong")

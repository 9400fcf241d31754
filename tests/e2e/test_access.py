"""Who may open a socket, and that it closes when they no longer may."""

from __future__ import annotations

import asyncio
import uuid

import httpx
import pytest
import websockets

from tests.client import ChatClient
from tests.e2e.people import Browser, shell
from tests.stack import Stack


async def opens(
    stack: Stack, headers: dict[str, str], query: str = "", subprotocol: str | None = "bursar.chat.v1"
) -> int:
    """0 when the socket serves, else the code that it was closed with."""
    async with ChatClient.open(stack.url, headers, query=query, subprotocol=subprotocol) as client:
        try:
            await client.send({"type": "ping"})
            await client.receive()
        except websockets.ConnectionClosed:
            return client.socket.close_code or 1006
        return 0


@pytest.mark.parametrize(
    "headers",
    [{}, {"Authorization": "Bearer nonsense"}, {"Authorization": f"Bearer bsk_{'x' * 43}"}, {"Authorization": ""}],
)
async def test_a_socket_without_a_valid_key_is_closed(live_stack: Stack, headers) -> None:
    code = await opens(live_stack, headers)
    assert code == (4401 if headers else 4403)


@pytest.mark.parametrize("origin", [None, "null", "http://evil.example", "http://127.0.0.1:1", ""])
async def test_a_cookie_from_a_foreign_page_opens_nothing(live_stack: Stack, origin: str | None) -> None:
    browser = await Browser.signed_in(live_stack)
    headers = {"Cookie": browser.cookie} | ({"Origin": origin} if origin is not None else {})
    assert await opens(live_stack, headers) == 4403


async def test_a_cookie_from_our_own_page_opens_a_socket(live_stack: Stack) -> None:
    browser = await Browser.signed_in(live_stack)
    assert await opens(live_stack, browser.headers) == 0


@pytest.mark.parametrize("odd", ['prefs={"a": "b"}', "foo", "a b=c", "n=ümlaut", "=x", "a=1,2"])
async def test_an_odd_cookie_of_another_application_hides_nothing(live_stack: Stack, odd: str) -> None:
    browser = await Browser.signed_in(live_stack)
    assert await opens(live_stack, browser.headers | {"Cookie": f"{odd}; {browser.cookie}"}) == 0


async def test_a_forged_session_opens_nothing(live_stack: Stack) -> None:
    headers = {"Cookie": f"sessionid={'x' * 32}", "Origin": live_stack.url}
    assert await opens(live_stack, headers) == 4401
    assert await opens(live_stack, {"Cookie": "=;;\\", "Origin": live_stack.url}) == 4401


async def test_a_ticket_opens_one_socket(live_stack: Stack) -> None:
    async with httpx.AsyncClient(headers={"Authorization": f"Bearer {live_stack.api_key}"}) as http:
        response = await http.post(f"{live_stack.url}/api/chat/ticket")
    ticket = response.json()["ticket"]

    assert response.json()["expires_in"] == 30
    assert await opens(live_stack, {}, f"?ticket={ticket}") == 0
    assert await opens(live_stack, {}, f"?ticket={ticket}") == 4401
    assert await opens(live_stack, {}, "?ticket=" + "x" * 43) == 4401
    assert all(ticket not in live_stack.log(name).read_text() for name in live_stack.commands if name != "scheduler")


async def test_one_ticket_raced_by_many_opens_one_socket(live_stack: Stack) -> None:
    async with httpx.AsyncClient(headers={"Authorization": f"Bearer {live_stack.api_key}"}) as http:
        ticket = (await http.post(f"{live_stack.url}/api/chat/ticket")).json()["ticket"]
    codes = await asyncio.gather(*(opens(live_stack, {}, f"?ticket={ticket}") for _ in range(12)))
    assert sorted(codes) == [0] + [4401] * 11


async def test_a_session_takes_a_ticket_only_with_its_csrf_token(live_stack: Stack) -> None:
    browser = await Browser.signed_in(live_stack)
    async with httpx.AsyncClient(base_url=live_stack.url, headers={"Cookie": browser.cookie}) as http:
        assert (await http.post("/api/chat/ticket")).status_code == 403


async def test_a_socket_that_offers_another_subprotocol_is_closed(live_stack: Stack) -> None:
    headers = {"Authorization": f"Bearer {live_stack.api_key}"}
    assert await opens(live_stack, headers, subprotocol="graphql-ws") == 4406
    assert await opens(live_stack, headers, subprotocol=None) == 4406


async def new_key(stack: Stack, expression: str) -> str:
    """A key that every web process knows: they read the configuration every half second."""
    key = await shell(stack, expression)
    headers = {"Authorization": f"Bearer {key}"}
    async with asyncio.timeout(30):
        for url in stack.urls():
            while httpx.post(f"{url}/v1/chat/completions", headers=headers).status_code == 401:
                await asyncio.sleep(0.1)
    return key


async def test_the_sockets_of_a_revoked_key_close_within_two_seconds(live_stack: Stack) -> None:
    """The two seconds are the product's promise."""
    key = await new_key(live_stack, "keys.create('to be revoked')")
    headers = {"Authorization": f"Bearer {key}"}
    async with ChatClient.open(live_stack.url, headers) as client:
        await client.send({"type": "ping"})
        await client.until("pong")
        await shell(live_stack, "keys.revoke('to be revoked')")
        async with asyncio.timeout(2):
            assert await client.closed() == 4401
    assert await opens(live_stack, headers) == 4401
    response = httpx.get(f"{live_stack.url}/v1/models", headers=headers)
    assert response.status_code == 401


ENDS = ["people.deactivate({!r})", "people.change_password({!r})", "people.sign_out({!r})"]


async def guest(stack: Stack) -> tuple[str, Browser]:
    name = f"guest-{uuid.uuid4().hex[:8]}"
    await shell(stack, f"people.create({name!r})")
    return name, await Browser.signed_in(stack, name, "guest-password-17")


@pytest.mark.parametrize("change", ENDS)
@pytest.mark.parametrize("by", ["cookie", "ticket"])
async def test_the_sockets_of_somebody_who_may_no_longer_sign_in_close_within_two_seconds(
    live_stack: Stack, change: str, by: str
) -> None:
    """The two seconds are the product's promise; they begin once the change is committed."""
    name, browser = await guest(live_stack)
    headers, query = (browser.headers, "") if by == "cookie" else ({}, f"?ticket={await browser.ticket()}")
    async with ChatClient.open(live_stack.url, headers, query=query) as client:
        await client.send({"type": "ping"})
        await client.until("pong")
        await shell(live_stack, change.format(name))
        async with asyncio.timeout(2):
            assert await client.closed() == 4401


@pytest.mark.parametrize("change", ENDS)
async def test_a_ticket_of_a_session_that_has_ended_opens_nothing(live_stack: Stack, change: str) -> None:
    name, browser = await guest(live_stack)
    ticket = await browser.ticket()
    await shell(live_stack, change.format(name))
    assert await opens(live_stack, {}, f"?ticket={ticket}") == 4401


async def test_another_organisations_conversation_is_not_found(live_stack: Stack, connect) -> None:
    client = await connect()
    conversation = (await client.answer(parameters={"max_tokens": 4}))[0]["conversation"]
    key = await new_key(live_stack, "keys.create_elsewhere()")
    stranger = await connect(headers={"Authorization": f"Bearer {key}"})

    refused = (await stranger.answer(conversation=conversation))[-1]

    assert refused["error"]["code"] == "conversation_not_found"
    http = httpx.Client(base_url=live_stack.url, headers={"Authorization": f"Bearer {key}"})
    for response in (
        http.get(f"/api/conversations/{conversation}"),
        http.patch(f"/api/conversations/{conversation}", json={"title": "mine"}),
        http.delete(f"/api/conversations/{conversation}"),
    ):
        assert (response.status_code, response.json()["error"]["code"]) == (404, "conversation_not_found")


async def test_a_conversation_goes_on_and_is_read_back(live_stack: Stack, connect) -> None:
    client = await connect()
    first = await client.answer("my name is John Smith", parameters={"max_tokens": 4})
    conversation = first[0]["conversation"]
    second = await client.answer("and why?", conversation=conversation, parameters={"max_tokens": 4})

    assert second[0]["conversation"] == conversation
    assert second[-1]["usage"]["prompt_tokens"] > first[-1]["usage"]["prompt_tokens"]
    http = httpx.Client(base_url=live_stack.url, headers={"Authorization": f"Bearer {live_stack.api_key}"})
    found = http.get(f"/api/conversations/{conversation}").json()
    assert [turn["prompt"] for turn in found["turns"]] == ["my name is <PERSON>", "and why?"]
    assert [turn["receipt"] for turn in found["turns"]] == [first[-1]["receipt"], second[-1]["receipt"]]
    assert found["title"] == "my name is <PERSON>"

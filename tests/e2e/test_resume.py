"""Leaving and coming back: resume on any web process, idempotent questions, cancels, slow readers."""

from __future__ import annotations

import asyncio
import uuid

import httpx
import psycopg

from console.chat.released import Released, ReleasedEvents
from gpu_workers.connecting import connect as connect_to_valkey
from gpu_workers.identifiers import uuid7
from gpu_workers.messages import owner_key
from tests.client import ChatClient, text_of
from tests.e2e.people import Browser
from tests.stack import Stack, wait_for

LONG = {"max_tokens": 60}


async def break_off(client: ChatClient) -> None:
    """End the TCP connection without a close frame, as a lost network does."""
    client.socket.transport.abort()


def demo_caller(stack: Stack) -> str:
    with psycopg.connect(stack.environment["BURSAR_DATABASE_URL"]) as connection:
        (key_id,) = connection.execute("SELECT id FROM accounts_apikey").fetchone() or ("",)
    return f"key:{key_id}"


def outcome_of(stack: Stack, exchange: str) -> tuple[str, int]:
    """Status and answer tokens of an exchange, once it has ended."""
    sql = "SELECT status, completion_tokens FROM inference_exchange WHERE id = %s AND status <> 'open'"
    with psycopg.connect(stack.environment["BURSAR_DATABASE_URL"], autocommit=True) as connection:
        wait_for(lambda: connection.execute(sql, [exchange]).fetchone() is not None, "the outcome is recorded")
        return connection.execute(sql, [exchange]).fetchone()  # type: ignore[return-value]


async def engine_is_idle(stack: Stack) -> None:
    await asyncio.to_thread(wait_for, lambda: stack.running_at_engine() == 0, "the engine is idle")


async def test_a_resume_on_another_process_replays_what_was_missed_and_goes_on(connect) -> None:
    first = await connect(web=0)
    ask_id = await first.ask(parameters=LONG, linger_ms=20_000)
    started = await first.until("answer.started")
    seen = [started, await first.until("answer.delta"), await first.until("answer.delta")]
    await break_off(first)

    second = await connect(web=1)
    await second.send({"type": "chat.resume", "exchange": started["exchange"], "after": seen[-1]["seq"]})
    rest = await second.to_the_end()

    events = seen + rest
    assert [event["seq"] for event in events] == list(range(len(events)))
    assert {event["id"] for event in events} == {ask_id}
    assert rest[-1]["type"] == "answer.finished"
    assert rest[-1]["finish_reason"] == "stop"
    assert text_of(events).endswith("the words stay the same.")


async def test_a_finished_answer_can_be_resumed_from_its_beginning(connect) -> None:
    client = await connect()
    events = await client.answer(parameters={"max_tokens": 8})
    other = await connect(web=1)

    await other.send({"type": "chat.resume", "exchange": events[0]["exchange"], "after": -1})

    assert await other.to_the_end() == events


async def test_the_same_id_attaches_to_the_same_answer_and_starts_no_second(connect, live_stack: Stack) -> None:
    ask_id = uuid.uuid4().hex
    first, second = await connect(web=0), await connect(web=1)
    await first.ask(id=ask_id, parameters=LONG)
    started = await first.until("answer.started")

    again = await second.answer(id=ask_id, parameters=LONG)
    rest = await first.to_the_end()

    assert again[0] == started
    assert again[1:] == rest


async def test_many_clients_with_one_id_get_one_answer(connect) -> None:
    ask_id = uuid.uuid4().hex
    clients = [await connect(web=index % 2) for index in range(12)]

    answers = await asyncio.gather(*(client.answer(id=ask_id, parameters={"max_tokens": 8}) for client in clients))

    assert len({events[-1]["receipt"] for events in answers}) == 1
    assert len({text_of(events) for events in answers}) == 1


async def test_an_id_that_was_refused_can_ask_again(connect) -> None:
    client = await connect()
    ask_id = uuid.uuid4().hex
    refused = await client.answer(id=ask_id, model="gpt-17")
    assert refused[-1]["error"]["code"] == "model_not_found"

    events = await client.answer(id=ask_id, parameters={"max_tokens": 4})

    assert events[-1]["type"] == "answer.finished"


async def test_a_resume_after_the_last_event_gives_it_again(connect) -> None:
    client = await connect()
    events = await client.answer(parameters={"max_tokens": 4})

    await client.send({"type": "chat.resume", "exchange": events[0]["exchange"], "after": events[-1]["seq"]})

    assert await client.to_the_end() == events[-1:]


async def test_a_cancel_right_behind_its_question_is_not_lost(connect) -> None:
    client = await connect()
    ask_id = await client.ask(parameters=LONG)
    await client.send({"type": "chat.cancel", "id": ask_id})

    assert (await client.to_the_end())[-1]["finish_reason"] == "cancelled"


async def test_an_id_whose_connection_broke_before_its_answer_began_can_ask_again(connect) -> None:
    for _ in range(10):
        client = await connect()
        ask_id = await client.ask(parameters={"max_tokens": 4})
        await break_off(client)
        other = await connect(web=1)
        assert (await other.answer(id=ask_id, parameters={"max_tokens": 4}))[-1]["type"] == "answer.finished"


async def test_who_waits_for_an_answer_that_never_began_gets_one_of_their_own(connect, live_stack: Stack) -> None:
    """Another socket asked with the same id and broke off; its process frees the id a moment later."""
    lost, ask_id, caller = uuid7(), uuid.uuid4().hex, demo_caller(live_stack)
    async with connect_to_valkey(live_stack.environment["BURSAR_VALKEY_URL"]) as valkey:
        owner = (await valkey.keys(owner_key("*")))[0].decode().removeprefix(owner_key(""))
        released = ReleasedEvents(valkey, bytes.fromhex(live_stack.environment["BURSAR_SEAL_KEY"]), owner)
        assert await released.open(lost, caller, ask_id) is None
        client = await connect()
        await client.ask(id=ask_id, parameters={"max_tokens": 4})
        await client.send({"type": "ping"})
        await client.until("pong")

        await released.forget(caller, ask_id, lost)

        events = await client.to_the_end()
    assert events[-1]["type"] == "answer.finished"
    assert events[-1]["exchange"] != str(lost)


async def test_a_follow_up_at_the_first_event_finds_its_conversation(connect) -> None:
    for _ in range(5):
        client = await connect()  # of its own: a socket has room for few long answers at once
        await client.ask(parameters=LONG)
        conversation = (await client.until("answer.started"))["conversation"]
        second = await client.ask("and why?", conversation=conversation, parameters={"max_tokens": 4})
        while (event := await client.until("answer.finished", "error"))["id"] != second:
            pass
        assert event["type"] == "answer.finished"


async def test_somebody_elses_answer_cannot_be_resumed_or_cancelled(connect, live_stack: Stack) -> None:
    client = await connect()
    await client.ask(parameters=LONG)
    exchange = (await client.until("answer.started"))["exchange"]
    stranger = await connect(headers=(await Browser.signed_in(live_stack)).headers)

    for event in ({"type": "chat.resume", "after": 0}, {"type": "chat.cancel"}):
        await stranger.send(event | {"exchange": exchange})
        assert (await stranger.until("error"))["error"]["code"] == "exchange_not_found"
    assert (await client.to_the_end())[-1]["finish_reason"] == "stop"


async def test_a_cancel_ends_the_answer_and_frees_the_engine(connect, live_stack: Stack) -> None:
    client = await connect()
    ask_id = await client.ask(parameters=LONG)
    await client.until("answer.delta")

    await client.send({"type": "chat.cancel", "id": ask_id})
    finished = await client.until("answer.finished")

    assert finished["finish_reason"] == "cancelled"
    assert 0 < finished["usage"]["completion_tokens"] < 60
    assert finished["receipt"]
    await engine_is_idle(live_stack)


async def test_a_cancel_before_the_first_token_ends_the_answer(connect, live_stack: Stack) -> None:
    client = await connect()
    ask_id = await client.ask(parameters=LONG)
    await client.until("answer.started")

    await client.send({"type": "chat.cancel", "id": ask_id})
    finished = await client.until("answer.finished")

    assert finished["finish_reason"] == "cancelled"
    assert finished["usage"]["completion_tokens"] == 0
    await engine_is_idle(live_stack)


async def test_a_cancel_from_another_process_reaches_the_one_that_serves(connect) -> None:
    first, second = await connect(web=0), await connect(web=1)
    await first.ask(parameters=LONG)
    exchange = (await first.until("answer.delta"))["exchange"]

    await second.send({"type": "chat.cancel", "exchange": exchange})

    assert (await first.until("answer.finished"))["finish_reason"] == "cancelled"


async def test_a_client_that_leaves_frees_its_engine_slot_before_the_answer_is_whole(
    connect, live_stack: Stack
) -> None:
    """How long that takes is a figure of `make bench`."""
    for leave in (break_off, lambda client: client.socket.close()):
        await engine_is_idle(live_stack)
        client = await connect()
        await client.ask(parameters=LONG, linger_ms=0)
        exchange = (await client.until("answer.delta"))["exchange"]
        assert live_stack.running_at_engine() == 1

        await leave(client)
        await engine_is_idle(live_stack)

        status, tokens = await asyncio.to_thread(outcome_of, live_stack, exchange)
        assert status == "cancelled"
        assert tokens < LONG["max_tokens"]


async def test_an_answer_nobody_resumes_ends_when_its_linger_does(connect, live_stack: Stack) -> None:
    client = await connect()
    await client.ask(parameters=LONG, linger_ms=0)
    started = await client.until("answer.started")
    await client.until("answer.delta")
    await break_off(client)
    await engine_is_idle(live_stack)

    other = await connect(web=1)
    await other.send({"type": "chat.resume", "exchange": started["exchange"], "after": 0})

    assert (await other.to_the_end())[-1]["finish_reason"] == "cancelled"


async def test_an_http_client_that_leaves_frees_its_engine_slot(live_stack: Stack) -> None:
    body = {"model": "smollm2-135m-instruct", "messages": [{"role": "user", "content": "hello"}], "stream": True}
    headers = {"Authorization": f"Bearer {live_stack.api_key}"}
    async with (
        httpx.AsyncClient(base_url=live_stack.url, headers=headers) as http,
        http.stream("POST", "/v1/chat/completions", json=body | {"max_tokens": 60}) as response,
    ):
        async for line in response.aiter_lines():
            if '"content":"[' in line:
                break
        assert live_stack.running_at_engine() == 1
    await engine_is_idle(live_stack)


async def long_answer(stack: Stack) -> uuid.UUID:
    """A finished answer of 16 MB among the released events, as if the demo key had asked for it."""
    valkey = connect_to_valkey(stack.environment["BURSAR_VALKEY_URL"])
    released = ReleasedEvents(valkey, bytes.fromhex(stack.environment["BURSAR_SEAL_KEY"]), "a process long gone")
    exchange = uuid.uuid4()
    await released.open(exchange, demo_caller(stack), uuid.uuid4().hex)
    for sequence in range(500):
        released.append(exchange, Released(sequence, b'{"type":"answer.delta","text":"%s"}' % (b"x" * 32_000), False))
    await released.stop()
    await valkey.aclose()
    return exchange


async def test_a_reader_that_stops_reading_is_dropped_without_slowing_others(connect, live_stack: Stack) -> None:
    stuck = await connect(ping_interval=None)
    exchange = await long_answer(live_stack)
    stuck.socket.transport.pause_reading()

    await stuck.send({"type": "chat.resume", "exchange": str(exchange), "after": -1})
    other = await connect()
    for _ in range(3):
        assert (await other.answer(parameters={"max_tokens": 8}))[-1]["type"] == "answer.finished"

    log = live_stack.log("web0")
    await asyncio.to_thread(wait_for, lambda: "slow_reader_dropped" in log.read_text(), "the reader is dropped")
    stuck.socket.transport.resume_reading()
    assert await stuck.closed() in (4408, 1006)

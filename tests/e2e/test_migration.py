"""Answers go on elsewhere when what makes them dies: the same words, nothing twice, nothing missing, billed once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import httpx
import psutil
import psycopg
import pytest

from gpu_workers.engines.simulated import DEFAULT_TEXT, tokenize
from tests.client import ChatClient, Event, text_of
from tests.services import running_services
from tests.stack import Stack, running_stack, wait_for

TOKENS = len(tokenize(DEFAULT_TEXT))
AT_ONCE = 4


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Two workers of one deployment beside one engine; an answer takes about four seconds."""
    with (
        running_services() as services,
        running_stack(services, tmp_path_factory.mktemp("migration"), SIMULATED_ITL_MS="100") as running,
    ):
        running.commands["worker2"] = running.commands["worker"]
        running.start("worker2")
        yield running


@pytest.fixture
async def client(stack: Stack) -> AsyncIterator[ChatClient]:
    async with ChatClient.open(stack.url, {"Authorization": f"Bearer {stack.api_key}"}) as client:
        yield client


def rows(stack: Stack, sql: str, *values: object) -> list[Any]:
    with psycopg.connect(stack.environment["BURSAR_DATABASE_URL"]) as connection:
        return list(connection.execute(sql, values).fetchall())  # type: ignore[call-overload]


async def answers_through(client: ChatClient, disturb: Callable[[], None]) -> dict[str, list[Event]]:
    """Several answers at once, by exchange; each has begun when `disturb` comes."""
    for _ in range(AT_ONCE):
        await client.ask(parameters={"max_tokens": 256})
    answers: dict[str, list[Event]] = {}
    speaking: set[str] = set()
    ended = 0
    while ended < AT_ONCE:
        event = await client.receive()
        assert event["type"] != "error", event
        answers.setdefault(event["exchange"], []).append(event)
        ended += event["type"] == "answer.finished"
        if event["type"] == "answer.delta" and event["exchange"] not in speaking:
            speaking.add(event["exchange"])
            if len(speaking) == AT_ONCE:
                await asyncio.to_thread(disturb)
    return answers


def check(stack: Stack, answers: dict[str, list[Event]]) -> list[list[tuple[str, str]]]:
    """Whole and billed once; the attempts of each, by status and worker."""
    taken = []
    for exchange, events in answers.items():
        assert text_of(events) == DEFAULT_TEXT
        assert [event["seq"] for event in events] == list(range(len(events)))
        usage = events[-1]["usage"]
        assert usage["completion_tokens"] == TOKENS
        booked = rows(
            stack,
            "SELECT prompt_tokens, completion_tokens, amount FROM inference_transfer WHERE exchange_id = %s",
            exchange,
        )
        assert [row[:2] for row in booked] == [(usage["prompt_tokens"], TOKENS)]
        sql = "SELECT status, worker FROM inference_attempt WHERE exchange_id = %s ORDER BY number"
        taken.append(rows(stack, sql, exchange))
    return taken


def kill_engine(stack: Stack) -> None:
    for engine in psutil.Process(stack.processes["engine"].pid).children():
        engine.kill()


async def undisturbed_prompt_tokens(client: ChatClient) -> int:
    return int((await client.answer(parameters={"max_tokens": 256}))[-1]["usage"]["prompt_tokens"])


async def test_answers_go_on_when_their_engine_is_killed(stack: Stack, client: ChatClient) -> None:
    prompt_tokens = await undisturbed_prompt_tokens(client)
    answers = await answers_through(client, lambda: kill_engine(stack))

    for attempts in check(stack, answers):
        assert [status for status, _ in attempts[-2:]] == ["failed", "finished"]
    assert {events[-1]["usage"]["prompt_tokens"] for events in answers.values()} == {prompt_tokens}


@pytest.mark.parametrize("how", ["kill", "stop"])
async def test_answers_go_on_when_their_worker_is_killed_or_shut_down(
    stack: Stack, client: ChatClient, how: str
) -> None:
    answers = await answers_through(client, lambda: getattr(stack, how)("worker"))
    check(stack, answers)
    # And what it comes back for goes to both again.
    second = await answers_through(client, lambda: stack.start("worker"))
    attempts = check(stack, second)
    assert all(len(taken) == 1 for taken in attempts)


async def test_a_schema_is_met_from_its_beginning_by_an_engine_that_says_everything_again(
    stack: Stack, client: ChatClient
) -> None:
    body = {
        "model": stack.environment["BURSAR_MODEL_NAME"],
        "messages": [{"role": "user", "content": "why is the sky blue?"}],
        "response_format": {"type": "json_object"},
        "max_tokens": 256,
    }
    headers = {"Authorization": f"Bearer {stack.api_key}"}
    async with httpx.AsyncClient(timeout=60) as http:
        asked = asyncio.create_task(http.post(f"{stack.url}/v1/chat/completions", json=body, headers=headers))
        await asyncio.to_thread(wait_for, lambda: stack.running_at_engine() == 1, "the engine works on it")
        await asyncio.sleep(1)
        kill_engine(stack)
        answer = (await asked).json()

    assert answer["choices"][0]["message"]["content"] == DEFAULT_TEXT
    assert answer["usage"]["completion_tokens"] == TOKENS


async def test_a_conversation_stays_with_its_worker_and_moves_when_that_is_gone(
    stack: Stack, client: ChatClient
) -> None:
    async def worker_of(conversation: str | None) -> tuple[str, str]:
        """The conversation, begun where there is none, and the worker that answered in it."""
        events = await client.answer(parameters={"max_tokens": 2}, conversation=conversation)
        assert events[-1]["type"] == "answer.finished", events[-1]
        sql = "SELECT worker FROM inference_attempt WHERE exchange_id = %s ORDER BY number"
        return events[0]["conversation"], rows(stack, sql, events[-1]["exchange"])[-1][0]

    seen: set[str] = set()
    while len(seen) < 2:  # both are known to the web process, and take conversations
        seen.add((await worker_of((await worker_of(None))[0]))[1])
    conversation, first = await worker_of(None)
    assert {(await worker_of(conversation))[1] for _ in range(5)} == {first}

    name = next(name for name, process in stack.processes.items() if first.endswith(f"-{process.pid}"))
    stack.kill(name)
    assert (await worker_of(conversation))[1] in seen - {first}
    stack.start(name)

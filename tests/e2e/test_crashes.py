"""kill -9 of every process, and the loss of every server: nothing acknowledged is lost, nothing stays open."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import httpx
import psutil
import psycopg
import pytest
import websockets

from tests.client import ChatClient
from tests.services import running_services
from tests.stack import Stack, running_stack, wait_for

LONG = {"max_tokens": 60}


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Servers and processes of its own: this file breaks them."""
    with running_services() as services:
        directory = tmp_path_factory.mktemp("crashes")
        with running_stack(services, directory, scheduler=True) as running:
            yield running


def rows(stack: Stack, sql: str, *values: object) -> list[tuple[Any, ...]]:
    with psycopg.connect(stack.environment["BURSAR_DATABASE_URL"]) as connection:
        return connection.execute(sql, values).fetchall()  # type: ignore[arg-type]


def outcomes(stack: Stack, exchange: str) -> list[str]:
    """The statuses that the record's outcomes give an exchange."""
    sql = "SELECT facts->>'status' FROM audit_entry WHERE exchange_id = %s AND kind = 'outcome'"
    return [row[0] for row in rows(stack, sql, exchange)]


def open_exchanges(stack: Stack) -> int:
    return int(rows(stack, "SELECT count(*) FROM inference_exchange WHERE status = 'open'")[0][0])


def unanswered_intents(stack: Stack) -> int:
    sql = """SELECT count(*) FROM audit_entry i WHERE kind = 'intent' AND NOT EXISTS
             (SELECT 1 FROM audit_entry o WHERE o.exchange_id = i.exchange_id AND o.kind = 'outcome')"""
    return int(rows(stack, sql)[0][0])


def readiness(stack: Stack) -> dict[str, str]:
    checks: dict[str, str] = httpx.get(f"{stack.url}/readyz").json()["checks"]
    return checks


async def wait(condition: Any, what: str) -> None:
    await asyncio.to_thread(wait_for, condition, what, 90)


def socket(stack: Stack) -> Any:
    return ChatClient.open(stack.url, {"Authorization": f"Bearer {stack.api_key}"}, ping_interval=None)


async def ask_until_killed(stack: Stack, finished: list[str], seen: set[str]) -> None:
    """Ask again and again; note the receipts that were given and the exchanges that reached the user."""
    with suppress(websockets.ConnectionClosed, OSError, TimeoutError):
        async with socket(stack) as client:
            while True:
                for event in await client.answer(parameters={"max_tokens": 20}):
                    if event["type"] == "answer.started":
                        seen.add(event["exchange"])
                    if event["type"] == "answer.finished":
                        finished.append(event["receipt"])


async def test_kill_9_of_web_loses_no_acknowledged_exchange_and_leaves_none_open(stack: Stack) -> None:
    rng = random.Random(11)
    finished: list[str] = []
    seen: set[str] = set()
    for _ in range(4):
        clients = [asyncio.create_task(ask_until_killed(stack, finished, seen)) for _ in range(12)]
        await asyncio.sleep(1.0 + rng.random())
        stack.kill("web0")
        await asyncio.gather(*clients)
        stack.start("web0")
        await asyncio.to_thread(stack.wait_ready)

    assert len(finished) > 12
    recorded = {str(row[0]) for row in rows(stack, "SELECT id FROM audit_entry WHERE kind = 'outcome'")}
    assert set(finished) <= recorded
    intents = {str(row[0]) for row in rows(stack, "SELECT exchange_id FROM audit_entry WHERE kind = 'intent'")}
    assert seen <= intents
    await wait(lambda: unanswered_intents(stack) == 0 and open_exchanges(stack) == 0, "all exchanges have an outcome")
    assert rows(stack, "SELECT count(*) FROM inference_exchange WHERE status = 'unknown'")[0][0] > 0
    once = "SELECT max(n) FROM (SELECT count(*) n FROM audit_entry GROUP BY exchange_id, kind) counted"
    assert rows(stack, once) == [(1,)]


async def test_kill_9_of_web_frees_the_engine(stack: Stack) -> None:
    async with socket(stack) as client:
        await client.ask(parameters=LONG)
        await client.until("answer.delta")
        stack.kill("web0")
    await wait(lambda: stack.running_at_engine() == 0, "the engine is free")
    stack.start("web0")
    await asyncio.to_thread(stack.wait_ready)


ATTEMPTS = "SELECT number, status FROM inference_attempt WHERE exchange_id = %s ORDER BY number"


def pause(process: psutil.Process) -> None:
    for one in (process, *process.children(recursive=True)):
        one.suspend()


def go_on(process: psutil.Process) -> None:
    for one in (process, *process.children(recursive=True)):
        one.resume()


async def test_kill_9_of_the_worker_before_the_first_token_is_not_noticed(stack: Stack) -> None:
    engine = psutil.Process(stack.processes["engine"].pid)
    async with socket(stack) as client:
        pause(engine)
        await client.ask(parameters=LONG)
        started = await client.until("answer.started")
        await asyncio.sleep(1)  # the worker has taken it and waits for its engine
        stack.kill("worker")
        go_on(engine)
        stack.start("worker")
        last = (await client.to_the_end())[-1]

    assert last["type"] == "answer.finished", last
    assert rows(stack, ATTEMPTS, started["exchange"]) == [(1, "lost"), (2, "finished")]


async def test_a_question_that_a_dead_worker_left_in_the_queue_is_answered_by_the_next(stack: Stack) -> None:
    await asyncio.to_thread(stack.wait_ready)
    async with socket(stack) as client:
        pause(psutil.Process(stack.processes["worker"].pid))
        await client.ask(parameters=LONG)
        started = await client.until("answer.started")
        stack.kill("worker")
        stack.start("worker")
        last = (await client.to_the_end())[-1]

    assert last["type"] == "answer.finished", last
    assert rows(stack, ATTEMPTS, started["exchange"])[-1][1] == "finished"


async def test_kill_9_of_the_only_worker_in_the_middle_is_waited_out(stack: Stack) -> None:
    await asyncio.to_thread(stack.wait_ready)
    async with socket(stack) as client:
        await client.ask(parameters=LONG)
        started = await client.until("answer.started")
        await client.until("answer.delta")
        stack.kill("worker")
        stack.start("worker")
        last = (await client.to_the_end())[-1]

    assert last["type"] == "answer.finished", last
    assert rows(stack, ATTEMPTS, started["exchange"]) == [(1, "lost"), (2, "finished")]
    assert outcomes(stack, started["exchange"]) == ["finished"]


async def test_kill_9_of_the_only_engine_is_waited_out_by_what_has_begun_and_refused_to_what_has_not(
    stack: Stack,
) -> None:
    async with socket(stack) as client, socket(stack) as other:
        await client.ask(parameters=LONG)
        started = await client.until("answer.delta")
        supervisor = psutil.Process(stack.processes["engine"].pid)
        for engine in supervisor.children():
            engine.kill()
        supervisor.suspend()  # or it would be back before it is missed
        await wait(lambda: readiness(stack)["engine"] != "ok", "it is noticed")
        refused = (await other.answer())[-1]
        assert refused["error"]["code"] == "overloaded"
        assert refused["retry_after_s"] > 0

        supervisor.resume()
        last = (await client.to_the_end())[-1]
        assert last["type"] == "answer.finished", last
        assert outcomes(stack, started["exchange"]) == ["finished"]
        await asyncio.to_thread(stack.wait_ready)
        assert (await client.answer(parameters={"max_tokens": 4}))[-1]["type"] == "answer.finished"


async def test_without_valkey_requests_are_refused_until_it_is_back_and_nothing_needs_a_restart(stack: Stack) -> None:
    valkey = stack.services.valkey
    async with socket(stack) as client:
        await client.ask(parameters=LONG)
        await client.until("answer.delta")
        stack.services.kill(valkey)
        assert (await client.until("error"))["error"]["code"] in ("overloaded", "engine_failed")

        refused = (await client.answer())[-1]
        assert refused["error"]["code"] == "overloaded"

        stack.services.start(valkey)
        await asyncio.to_thread(stack.wait_ready)
        answered = (await client.answer(parameters={"max_tokens": 4}))[-1]
        assert answered["type"] == "answer.finished", answered


async def test_without_postgresql_nothing_is_served_until_it_is_back(stack: Stack) -> None:
    postgres = stack.services.postgres
    async with socket(stack) as client:
        stack.services.kill(postgres)
        events = await client.answer()
        assert [event["type"] for event in events] == ["error"]
        assert events[0]["error"]["code"] == "audit_unavailable"
        assert readiness(stack)["database"] == "unreachable"

        stack.services.start(postgres)
        await asyncio.to_thread(stack.wait_ready)
        assert (await client.answer(parameters={"max_tokens": 4}))[-1]["type"] == "answer.finished"
    await wait(lambda: open_exchanges(stack) == 0, "what was open is reconciled")


UNKNOWN_KEY = {"Authorization": f"Bearer bsk_{'x' * 43}"}


def completion(stack: Stack) -> httpx.Response:
    """An unknown key's request: 401 for as long as it can be told from a key that is known."""
    return httpx.post(f"{stack.url}/v1/chat/completions", headers=UNKNOWN_KEY)


async def close_code(stack: Stack) -> int:
    async with ChatClient.open(stack.url, UNKNOWN_KEY) as client:
        return await client.closed()


async def test_who_may_be_served_is_not_guessed_once_the_configuration_is_stale(stack: Stack) -> None:
    postgres = stack.services.postgres
    async with socket(stack) as client:
        assert completion(stack).status_code == 401
        assert await close_code(stack) == 4401
        stack.services.kill(postgres)
        await wait(lambda: completion(stack).status_code == 503, "the configuration is stale")

        refused = completion(stack)
        assert refused.json()["error"]["code"] == "audit_unavailable"
        assert int(refused.headers["retry-after"]) > 0
        assert await close_code(stack) == 1013
        # Before anything is looked up for it: even a question that no model could answer.
        (event,) = await client.answer(model="unknown")
        assert event["error"]["code"] == "audit_unavailable"

        stack.services.start(postgres)
        await wait(lambda: completion(stack).status_code == 401, "the configuration is current again")
        assert await close_code(stack) == 4401


async def test_what_was_read_before_postgresql_died_is_recorded_when_it_is_back(stack: Stack) -> None:
    postgres = stack.services.postgres
    async with socket(stack) as client:
        await client.ask(parameters=LONG)
        started = await client.until("answer.started")
        await client.until("answer.delta")
        stack.services.kill(postgres)
        assert (await client.until("error"))["error"]["code"] == "audit_unavailable"
        stack.services.start(postgres)

    def recorded() -> bool:
        return outcomes(stack, started["exchange"]) == ["finished"]

    await wait(recorded, "the outcome is recorded late")
    payload = "SELECT payload IS NOT NULL FROM audit_entry WHERE exchange_id = %s AND kind = 'outcome'"
    assert rows(stack, payload, started["exchange"]) == [(True,)]
    await asyncio.to_thread(stack.wait_ready)


async def test_a_detector_that_dies_refuses_what_it_did_not_inspect_and_comes_back(stack: Stack) -> None:
    async with socket(stack) as client:
        for detector in psutil.Process(stack.processes["web0"].pid).children():
            detector.kill()
        await wait(lambda: readiness(stack)["inspection"] != "ok", "it is noticed")
        refused = (await client.answer("I am John Smith."))[-1]
        assert refused["error"]["code"] == "inspection_unavailable"
        await asyncio.to_thread(stack.wait_ready)
        started = (await client.answer("I am John Smith.", parameters={"max_tokens": 4}))[0]
        assert started["findings"] == {"PERSON": 1}


async def test_a_stopped_web_process_ends_its_answers_with_an_outcome(stack: Stack) -> None:
    async with socket(stack) as client:
        await client.ask(parameters=LONG)
        started = await client.until("answer.started")
        await client.until("answer.delta")
        stopping = asyncio.create_task(asyncio.to_thread(stack.stop, "web0"))
        assert await client.closed() == 1012
        await stopping
    assert outcomes(stack, started["exchange"]) in (["cancelled"], ["finished"])
    stack.start("web0")
    await asyncio.to_thread(stack.wait_ready)

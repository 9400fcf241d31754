"""An engine that stands by takes over what the active one was saying, whether that is killed, stopped or stuck."""

from __future__ import annotations

import asyncio
import random
import signal
from collections import Counter
from collections.abc import Iterator
from typing import Any

import httpx
import psutil
import psycopg
import pytest

from gpu_workers.engines.simulated import DEFAULT_TEXT, tokenize
from tests.client import ChatClient
from tests.e2e.test_migration import answers_through, check
from tests.services import running_services
from tests.stack import MODEL, Stack, running_stack, wait_for

# Of an answer that takes a second: it is hit now and then, and not by every kill.
SHORT = 10
KILLS, PER_SECOND = 12, 10


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """One worker, one active engine and one that stands by; an answer takes about four seconds."""
    settings = {
        "SIMULATED_ITL_MS": "100",
        "BURSAR_ENGINE_SHADOW": "1",
        "BURSAR_ENGINE_SILENT_S": "2",
        "BURSAR_ENGINE_STUCK_S": "2",
    }
    with (
        running_services() as services,
        running_stack(services, tmp_path_factory.mktemp("failover"), **settings) as running,
    ):
        with psycopg.connect(running.environment["BURSAR_DATABASE_URL"], autocommit=True) as connection:
            connection.execute(
                "UPDATE accounts_organisation SET requests_per_minute = 1000000, concurrent_answers = 9999"
            )
        yield running


def engines(stack: Stack) -> list[psutil.Process]:
    return psutil.Process(stack.processes["engine"].pid).children()


def active(stack: Stack) -> psutil.Process:
    port = stack.active_engine_url().rpartition(":")[2]
    return next(engine for engine in engines(stack) if port in engine.cmdline())


def both_ready(stack: Stack) -> None:
    """Each of the two engines answers."""

    def answers(engine: psutil.Process) -> bool:
        port = engine.cmdline()[engine.cmdline().index("--port") + 1]
        try:
            return httpx.get(f"http://127.0.0.1:{port}/health").status_code == 200
        except httpx.TransportError:
            return False

    def both() -> bool:
        try:
            found = engines(stack)
            return len(found) == 2 and all(answers(engine) for engine in found) and bool(stack.active_engine_url())
        except (psutil.NoSuchProcess, ValueError):
            return False

    wait_for(both, "one is active and one stands by")


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP, signal.SIGUSR1], ids=["killed", "stopped", "stuck"])
async def test_answers_go_on_with_the_engine_that_stood_by(stack: Stack, how: signal.Signals) -> None:
    await asyncio.to_thread(both_ready, stack)
    before = stack.active_engine_url()
    async with ChatClient.open(stack.url, {"Authorization": f"Bearer {stack.api_key}"}) as client:
        answers = await answers_through(client, lambda: active(stack).send_signal(how))

    for attempts in check(stack, answers):
        assert [status for status, _ in attempts] == ["failed", "finished"]
    assert stack.active_engine_url() not in ("", before)


async def ask(http: httpx.AsyncClient, stack: Stack) -> str:
    body = {"model": MODEL, "messages": [{"role": "user", "content": "why?"}], "max_tokens": SHORT}
    response = await http.post(f"{stack.url}/v1/chat/completions", json=body)
    if response.status_code != 200:
        return str(response.json()["error"]["code"])
    answer = response.json()
    whole = answer["choices"][0]["message"]["content"] == "".join(tokenize(DEFAULT_TEXT)[:SHORT])
    return "ok" if whole and answer["usage"]["completion_tokens"] == SHORT else "broken"


async def test_engines_that_are_killed_again_and_again_lose_nothing_that_had_begun(stack: Stack) -> None:
    """Requests that come while no engine is ready may be refused; no answer is cut, doubled or billed twice."""
    await asyncio.to_thread(both_ready, stack)
    chance = random.Random(7)
    over = asyncio.Event()

    async def kill() -> None:
        for _ in range(KILLS):
            await asyncio.sleep(chance.uniform(0.5, 3.0))
            found = engines(stack)
            if found:
                chance.choice(found).kill()
        over.set()

    async with httpx.AsyncClient(headers={"Authorization": f"Bearer {stack.api_key}"}, timeout=180) as http:
        killing = asyncio.create_task(kill())
        asked: list[asyncio.Task[str]] = []
        while not over.is_set():
            asked.append(asyncio.create_task(ask(http, stack)))
            await asyncio.sleep(1 / PER_SECOND)
        counted = Counter(await asyncio.gather(*asked))
        await killing

    # What had begun is whole; what had not is refused where nothing was ready for it in time.
    assert set(counted) <= {"ok", "overloaded", "engine_failed"}
    assert counted["ok"] > len(asked) * 0.97, counted
    assert_books_are_exact(stack)


def assert_books_are_exact(stack: Stack) -> None:
    def rows(sql: str) -> list[Any]:
        with psycopg.connect(stack.environment["BURSAR_DATABASE_URL"]) as connection:
            return list(connection.execute(sql).fetchall())  # type: ignore[call-overload]

    asked = rows("SELECT id, status, completion_tokens FROM inference_exchange WHERE channel = 'http'")
    assert {status for _, status, _ in asked} <= {"finished", "failed"}
    assert {tokens for _, status, tokens in asked if status == "finished"} == {SHORT}
    booked = Counter(row[0] for row in rows("SELECT exchange_id FROM inference_transfer"))
    assert all(booked[exchange] == 1 for exchange, _, _ in asked)
    assert rows("SELECT sum(amount) FROM inference_posting") == [(0,)]
    assert rows("SELECT count(*) FROM inference_attempt WHERE number > 1")[0][0] >= KILLS


async def test_what_happened_to_the_engines_is_told_with_their_end(stack: Stack) -> None:
    collect = "from inference.engine_events import collect_engine_events; collect_engine_events()"
    done = await asyncio.to_thread(stack.manage, "shell", "-v0", "-c", collect)
    assert done.returncode == 0, done.stderr
    with psycopg.connect(stack.environment["BURSAR_DATABASE_URL"]) as connection:
        kinds = {row[0] for row in connection.execute("SELECT DISTINCT kind FROM inference_engineevent").fetchall()}
        codes = connection.execute("SELECT DISTINCT exit_code FROM inference_engineevent WHERE kind = 'exited'")
        assert kinds == {"ready", "active", "exited", "silent", "stuck"}
        assert (-9,) in codes.fetchall()

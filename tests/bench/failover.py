"""`make bench ARGS=failover`: engines killed at random, a hundred times, under 50 requests a second.

First the longest pause that a reader sees in an answer whose engine is killed, with another that stands by and without;
then what becomes of the requests of several minutes.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import psycopg

from tests.client import ChatClient
from tests.e2e.test_failover import SHORT, active, ask, both_ready, engines
from tests.services import Services, running_services
from tests.stack import Stack, running_stack, wait_for

KILLS, PER_SECOND = 100, 50
ANSWERS, ROUNDS = 8, 10
SETTINGS = {"SIMULATED_TTFT_MS": "60", "SIMULATED_ITL_MS": "40", "BURSAR_ENGINE_SILENT_S": "2"}


def rows(stack: Stack, sql: str) -> list[Any]:
    with psycopg.connect(stack.environment["BURSAR_DATABASE_URL"], autocommit=True) as connection:
        cursor = connection.execute(sql)  # type: ignore[call-overload]
        return list(cursor.fetchall()) if cursor.description else []


async def longest_pause_s(stack: Stack) -> float:
    """The longest time between two deltas of any of several answers, in the midst of which the engine is killed."""
    longest, last, spoken = 0.0, dict[str, float](), set[str]()
    async with ChatClient.open(stack.url, {"Authorization": f"Bearer {stack.api_key}"}) as client:
        for _ in range(ANSWERS // 2):
            await client.ask(parameters={"max_tokens": 256})
        ended, killed = 0, False
        while ended < ANSWERS // 2:
            event = await client.receive()
            if event["type"] == "error":
                raise RuntimeError(f"an answer was lost: {event}")
            ended += event["type"] == "answer.finished"
            if event["type"] == "answer.delta":
                now = time.monotonic()
                longest = max(longest, now - last.get(event["exchange"], now))
                last[event["exchange"]] = now
                spoken.add(event["exchange"])
                if not killed and len(spoken) == ANSWERS // 2:
                    killed = True
                    active(stack).kill()
    return longest


async def pauses(stack: Stack, *, standby: bool) -> list[float]:
    found = []
    for _ in range(ROUNDS):
        if standby:
            await asyncio.to_thread(both_ready, stack)
        else:
            await asyncio.to_thread(wait_for, lambda: bool(stack.active_engine_url()), "an engine is active")
        found.append(await longest_pause_s(stack))
    return found


async def kill_at_random(stack: Stack) -> Counter[str]:
    chance, over = random.Random(7), asyncio.Event()

    async def kill() -> None:
        for _ in range(KILLS):
            await asyncio.sleep(chance.uniform(0.5, 3.0))
            if found := engines(stack):
                chance.choice(found).kill()
        over.set()

    asked: list[asyncio.Task[str]] = []
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=200)
    headers = {"Authorization": f"Bearer {stack.api_key}"}
    async with httpx.AsyncClient(headers=headers, limits=limits, timeout=180) as http:
        killing = asyncio.create_task(kill())
        while not over.is_set():
            asked.append(asyncio.create_task(ask(http, stack)))
            await asyncio.sleep(chance.expovariate(PER_SECOND))
        await killing
        return Counter(await asyncio.gather(*asked))


def show_books(stack: Stack) -> None:
    exchanges = rows(stack, "SELECT count(*) FROM inference_exchange WHERE channel = 'http' AND status = 'finished'")
    wrong = rows(
        stack,
        "SELECT count(*) FROM inference_exchange e WHERE channel = 'http' AND status = 'finished'"  # noqa: S608
        f" AND (completion_tokens <> {SHORT}"
        " OR 1 <> (SELECT count(*) FROM inference_transfer t WHERE t.exchange_id = e.id))",
    )
    moved = rows(stack, "SELECT count(DISTINCT exchange_id) FROM inference_attempt WHERE number > 1")
    balance = rows(stack, "SELECT sum(amount) FROM inference_posting")
    print(f"answers {exchanges[0][0]}, went on elsewhere {moved[0][0]}")
    print(f"billed wrongly {wrong[0][0]}, sum of the ledger {balance[0][0]}")


async def measure(services: Services) -> None:
    for standby in (True, False):
        with tempfile.TemporaryDirectory() as directory:
            settings = SETTINGS | {"BURSAR_ENGINE_SHADOW": "1" if standby else "0"}
            with running_stack(services, Path(directory), **settings) as stack:
                rows(stack, "UPDATE accounts_organisation SET requests_per_minute = 100000, concurrent_answers = 9999")
                found = await pauses(stack, standby=standby)
                which = "another stands by" if standby else "it starts anew"
                print(
                    f"pause, {which}: median {statistics.median(found):.2f} s, longest {max(found):.2f} s of {ROUNDS}"
                )
                if standby:
                    await asyncio.to_thread(both_ready, stack)
                    counted = await kill_at_random(stack)
                    print(f"{KILLS} kills under {PER_SECOND}/s: {dict(counted)}")
                    show_books(stack)


def main() -> None:
    with running_services() as services:
        asyncio.run(measure(services))

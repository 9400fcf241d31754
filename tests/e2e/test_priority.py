"""Interactive requests go before batch ones where there is a queue: through Celery, the worker and the engine."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator

import httpx
import psycopg
import pytest
from redis import Redis

from console.local.ports import free_port
from gpu_workers.messages import Heartbeat, decode_heartbeat
from tests.services import running_services
from tests.stack import MODEL, Stack, running_stack, wait_for

AT_ONCE = 2


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Its engine works on two requests at once, half a second each."""
    settings = {"BURSAR_ENGINE_MAX_RUNNING": str(AT_ONCE), "SIMULATED_TTFT_MS": "500"}
    with (
        running_services() as services,
        running_stack(services, tmp_path_factory.mktemp("priority"), **settings) as running,
    ):
        yield running


async def test_an_interactive_request_goes_before_the_batch_that_waits(stack: Stack) -> None:
    ended: list[str] = []

    async def ask(http: httpx.AsyncClient, priority: str) -> None:
        body = {
            "model": MODEL,
            "messages": [{"role": "user", "content": "why?"}],
            "max_tokens": 2,
            "priority": priority,
        }
        response = await http.post("/v1/chat/completions", json=body)
        assert response.status_code == 200, response.text
        ended.append(priority)

    def waiting() -> int:
        metrics = httpx.get(f"{stack.engine_url}/metrics").text
        line = next(line for line in metrics.splitlines() if line.startswith("vllm:num_requests_waiting"))
        return int(float(line.rsplit(" ", 1)[1]))

    headers = {"Authorization": f"Bearer {stack.api_key}"}
    async with httpx.AsyncClient(base_url=stack.url, headers=headers, timeout=60) as http:
        batch = [asyncio.create_task(ask(http, "batch")) for _ in range(14)]
        await asyncio.to_thread(wait_for, lambda: waiting() >= 10, "the batch waits in the engine")
        begun_before = len(ended) + AT_ONCE
        await asyncio.gather(ask(http, "interactive"), *batch)

    # Those that ran already, and one that took the other free place at the same moment.
    assert ended.index("interactive") <= begun_before + 2
    assert len(ended) == 15
    with psycopg.connect(stack.environment["BURSAR_DATABASE_URL"]) as connection:
        sql = "SELECT count(*) FROM inference_exchange WHERE status = 'finished'"
        assert connection.execute(sql).fetchone() == (15,)


async def test_an_unknown_priority_is_refused_by_name(stack: Stack) -> None:
    async with httpx.AsyncClient(base_url=stack.url, headers={"Authorization": f"Bearer {stack.api_key}"}) as http:
        body = {"model": MODEL, "messages": [{"role": "user", "content": "why?"}], "priority": "first"}
        response = await http.post("/v1/chat/completions", json=body)
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "priority"


async def test_an_engine_that_ignores_priorities_is_named_and_not_counted_on(stack: Stack) -> None:
    port = free_port()
    engine = ["-m", "gpu_workers.engines.simulated", "--port", str(port), "--max-running", str(AT_ONCE)]
    stack.commands["fcfs-engine"] = [sys.executable, *engine, "--scheduling-policy", "fcfs"]
    stack.start("fcfs-engine")
    url = f"http://127.0.0.1:{port}/v1"
    stack.start_worker("fcfs-worker", "fcfs", BURSAR_ENGINE_URL=url, BURSAR_ENGINE_MODEL="simulated")

    valkey = Redis.from_url(stack.services.valkey.url())
    pid = stack.processes["fcfs-worker"].pid

    def beat() -> Heartbeat | None:
        found = [valkey.get(key) for key in valkey.keys(f"bursar:worker:*-{pid}")]
        return decode_heartbeat(found[0]) if found and found[0] else None

    await asyncio.to_thread(wait_for, lambda: (said := beat()) is not None and bool(said.fault), "it is named")
    said = beat()
    assert said is not None
    assert "does not honour priorities" in said.fault
    assert not said.engine_ready

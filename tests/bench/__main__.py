"""`make bench`: what the platform adds to the engine, in one run on one machine.

Both sides are asked with the same seeds, so that the simulated engine takes the same time for each pair; the figures
are differences of quantiles, CPU seconds of every platform process, and memory of idle sockets.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import aiohttp
import psutil
import psycopg
import uvloop

from tests.bench import failover, routing
from tests.bench.load import TOKENS, Direct, Sockets, Timing, run
from tests.bench.steps import measure_steps
from tests.client import ChatClient
from tests.services import running_services
from tests.stack import Stack, running_stack

WARM_UP = 100
IDLE_SOCKETS = 1000
LEAVERS = 40


def cpu_seconds(processes: dict[str, list[psutil.Process]]) -> dict[str, float]:
    """User and system time so far, by name."""
    return {
        name: sum(process.cpu_times().user + process.cpu_times().system for process in family)
        for name, family in processes.items()
    }


def families(stack: Stack) -> dict[str, list[psutil.Process]]:
    """Every platform process. Detectors are children of web processes; the engine is not the platform's."""
    found: dict[str, list[psutil.Process]] = {}
    for name, process in stack.processes.items():
        if name == "engine":
            continue
        parent = psutil.Process(process.pid)
        found[name] = [parent]
        if detectors := parent.children(recursive=True):
            found[f"{name} detector"] = detectors
    for name, process in stack.services.processes.items():
        parent = psutil.Process(process.pid)
        found[name] = [parent, *parent.children(recursive=True)]
    return found


def quantile(values: Sequence[float], share: float) -> float:
    return statistics.quantiles(values, n=1000, method="inclusive")[round(share * 1000) - 1]


def show_latency(direct: list[Timing], through: list[Timing]) -> None:
    print(f"\n{'ms':<18}{'direct':>10}{'through':>10}{'added':>10}{'ratio':>8}")
    for name in ("ttft_ms", "e2e_ms"):
        for share in (0.5, 0.99):
            a = quantile([getattr(timing, name) for timing in direct], share)
            b = quantile([getattr(timing, name) for timing in through], share)
            label = f"{name.removesuffix('_ms').upper()} p{round(share * 100)}"
            print(f"{label:<18}{a:>10.1f}{b:>10.1f}{b - a:>10.1f}{b / a:>8.2f}")


def show_cpu(before: dict[str, float], after: dict[str, float], requests: int) -> None:
    print(f"\n{'CPU per request':<24}{'ms':>8}")
    spent = {name: (after[name] - before[name]) * 1000 / requests for name in before}
    for name, milliseconds in sorted(spent.items(), key=lambda item: -item[1]):
        print(f"{name:<24}{milliseconds:>8.2f}")
    stores = spent.get("postgres", 0) + spent.get("valkey", 0)
    print(f"{'all':<24}{sum(spent.values()):>8.2f}   (without the two stores {sum(spent.values()) - stores:.2f})")


async def measure_latency(stack: Stack, rate: float, count: int) -> None:
    key = stack.environment["BURSAR_ENGINE_API_KEY"]
    async with Direct(f"{stack.engine_url}/v1", "simulated", key) as direct:
        await run(direct.request, rate=rate, count=WARM_UP)
        of_engine = await run(direct.request, rate=rate, count=count)
    async with Sockets(stack.urls(), stack.api_key, count=100) as sockets:
        await run(sockets.request, rate=rate, count=WARM_UP)
        processes = families(stack)
        before = cpu_seconds(processes)
        of_platform = await run(sockets.request, rate=rate, count=count)
        after = cpu_seconds(processes)
    errors = [str(result) for result in [*of_engine, *of_platform] if isinstance(result, Exception)]
    print(f"{count} requests at {rate:g}/s, {TOKENS} tokens each, inspected and recorded; {len(errors)} errors", end="")
    print(f" ({', '.join(sorted(set(errors)))})" if errors else "")
    show_latency(_timings(of_engine), _timings(of_platform))
    show_cpu(before, after, count)


def _timings(results: list[Timing | Exception]) -> list[Timing]:
    return [result for result in results if isinstance(result, Timing)]


async def measure_idle_sockets(stack: Stack) -> None:
    web = psutil.Process(stack.processes["web0"].pid)
    async with Sockets(stack.urls()[:1], stack.api_key, count=50):
        await asyncio.sleep(1)
    before = web.memory_info().rss
    async with Sockets(stack.urls()[:1], stack.api_key, count=IDLE_SOCKETS):
        await asyncio.sleep(2)
        each = (web.memory_info().rss - before) / IDLE_SOCKETS / 1024
    print(f"\n{IDLE_SOCKETS} idle sockets in one web process: {each:.1f} KiB each")


async def measure_leaving(stack: Stack) -> None:
    """From a client's end to the engine's own word that its slot is free."""
    times: list[float] = []
    async with aiohttp.ClientSession() as http:
        for number in range(LEAVERS):
            await _until_running(http, stack, 0)
            async with ChatClient.open(stack.url, {"Authorization": f"Bearer {stack.api_key}"}) as client:
                await client.ask(parameters={"max_tokens": 60}, linger_ms=0)
                await client.until("answer.delta")
                left = time.perf_counter()
                if number % 2:
                    client.socket.transport.abort()
                else:
                    await client.socket.close()
                await _until_running(http, stack, 0)
                times.append((time.perf_counter() - left) * 1000)
    median, slowest = statistics.median(times), max(times)
    print(f"\n{LEAVERS} clients that left: slot free after {median:.0f} ms (median), {slowest:.0f} ms (slowest)")


async def _until_running(http: aiohttp.ClientSession, stack: Stack, count: int) -> None:
    metric = f'vllm:num_requests_running{{model_name="simulated"}} {float(count)}'
    while True:
        async with http.get(f"{stack.engine_url}/metrics") as response:
            if metric in await response.text():
                return


def lift_limits(stack: Stack) -> None:
    """The demo's limits are for one person; the load is that of many, with budgets."""
    with psycopg.connect(stack.environment["BURSAR_DATABASE_URL"]) as connection:
        connection.execute("UPDATE accounts_organisation SET requests_per_minute = 1000000, concurrent_answers = 10000")
        # A month's and a year's budget, so that money is held and settled as in earnest.
        connection.execute(
            "INSERT INTO inference_budget (id, organisation_id, period, amount, warn_at, degrade_at, refuse_batch_at,"
            " refuse_at, is_enabled) SELECT gen_random_uuid(), id, period, 1000000, 80, 90, 95, 100, true"
            " FROM accounts_organisation, unnest(ARRAY['month', 'year']) AS period"
        )
    time.sleep(2)  # the snapshot is polled


def main() -> None:
    if sys.argv[1:2] == ["routing"]:
        routing.main(sys.argv[2:])
        return
    if sys.argv[1:2] == ["failover"]:
        failover.main()
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=float, default=50)
    parser.add_argument("--count", type=int, default=1500)
    parser.add_argument("--web", type=int, default=1, help="web processes")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as directory,
        running_services() as services,
        running_stack(services, Path(directory), web_count=options.web) as stack,
    ):
        lift_limits(stack)
        # The client shares the cores with what it measures: the less it takes, the less of it is in the figures.
        uvloop.run(measure_latency(stack, options.rate, options.count))
        uvloop.run(measure_idle_sockets(stack))
        uvloop.run(measure_leaving(stack))
        uvloop.run(measure_steps(stack))


if __name__ == "__main__":
    main()

"""Routing against a simulation: how many requests meet their objective, at what cost, by strategy, on a real trace.

The decisions, latency model and breakers are the product's own; the engines are simulated (tests.bench.engines).
Arrivals and token counts are those of Azure's LLM inference trace 2023, conversations (CC-BY-4.0).
"""

from __future__ import annotations

import argparse
import csv
import itertools
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from uuid import UUID

from gpu_workers.messages import Heartbeat, Sampling
from inference.catalog import Candidate, Catalog, Prices
from inference.errors import Refusal
from inference.events import Ask
from inference.fleet import FleetState
from inference.routing import decide
from inference.routing.candidates import OBJECTIVES
from inference.routing.facts import RequestFacts
from inference.routing.live import LiveState
from inference.routing.rules import Route, Rule, RuleSet, Strategy
from tests.bench.engines import HEARTBEAT_S, POLL_S, Clock, Downtime, Engine, Hardware, Request, work_ms

TRACE = Path(__file__).parents[3] / "shared" / "data" / "traces" / "azure_llm_conv.csv"
MILLION = Decimal(1_000_000)
TURNS = "round-robin"
STRATEGIES: tuple[Strategy | None, ...] = (None, "least_outstanding", "adaptive")
SHORT_TOKENS, LONG_TOKENS = 64, 1024  # what is asked for: short answers are promised their end, too

SLOWED = "reserved"
# A reserved large one that slows down half-way, the same as a spot instance that is taken away now and then, and a
# small one that cannot carry a third of the traffic.
HARDWARE = {
    "reserved": Hardware(slots=24, overhead_ms=30, prompt_token_ms=0.25, answer_token_ms=8),
    "spot": Hardware(slots=24, overhead_ms=30, prompt_token_ms=0.25, answer_token_ms=8),
    "small": Hardware(slots=8, overhead_ms=40, prompt_token_ms=0.30, answer_token_ms=12),
}
PRICES = {
    "reserved": Prices(Decimal("1.00"), Decimal("0.25"), Decimal("3.00")),
    "spot": Prices(Decimal("0.60"), Decimal("0.15"), Decimal("1.80")),
    "small": Prices(Decimal("0.20"), Decimal("0.05"), Decimal("0.60")),
}
FLAP_EVERY_S, DOWN_FOR_S = 60.0, 9.0
CALM_S = 25.0  # the flapping one is up this long around the slowdown, so that the recovery is the slowdown's own
RECOVERED, WINDOW_S, STEP_S = 0.8, 2.0, 0.5


@dataclass
class Result:
    """What became of each request, by its number."""

    good: dict[int, bool] = field(default_factory=dict)
    cost: Decimal = Decimal(0)
    ended: Counter[str] = field(default_factory=Counter)
    sent_to: dict[int, str] = field(default_factory=dict)
    decisions_s: float = 0.0


def read_trace(speed: float, count: int) -> list[Request]:
    """The trace with its arrivals `speed` times as fast."""
    with TRACE.open() as lines:
        rows = list(itertools.islice(csv.DictReader(lines), count or None))
    times = [datetime.fromisoformat(row["TIMESTAMP"][:26]).timestamp() for row in rows]
    return [
        Request(number, (at - times[0]) / speed, int(row["ContextTokens"]), max(int(row["GeneratedTokens"]), 1))
        for number, (at, row) in enumerate(zip(times, rows, strict=True), start=1)
    ]


def downtimes(slow_from_s: float, until_s: float) -> tuple[Downtime, ...]:
    """Every other one is silent: the heartbeat goes on and says that the engine is ready."""
    numbers = itertools.count()
    starts = (number * FLAP_EVERY_S + FLAP_EVERY_S / 2 for number in range(int(until_s / FLAP_EVERY_S) + 1))
    calm = (slow_from_s - CALM_S - DOWN_FOR_S, slow_from_s + CALM_S)
    return tuple(
        Downtime(start_s, start_s + DOWN_FOR_S, is_silent=next(numbers) % 2 == 1)
        for start_s in starts
        if not calm[0] < start_s < calm[1]
    )


class Simulation:
    """One strategy over the whole trace; None is round-robin."""

    def __init__(self, requests: Sequence[Request], strategy: Strategy | None, prices: dict[str, Prices]) -> None:
        self._prices = prices
        self.clock, self.live, self.result = Clock(), LiveState(), Result()
        self._requests = requests
        self.slow_from_s = requests[-1].at_s / 2
        end_s = requests[-1].at_s
        self.engines = {
            slug: Engine(slug, hardware, self.clock, self) for slug, hardware in HARDWARE.items() if slug != "spot"
        }
        self.engines[SLOWED].slow_from_s = self.slow_from_s
        down = downtimes(self.slow_from_s, end_s)
        self.engines["spot"] = Engine("spot", HARDWARE["spot"], self.clock, self, downtimes=down)
        self.engines = {slug: self.engines[slug] for slug in HARDWARE}
        self._choose = self._by_rule(strategy) if strategy else self._in_turn
        self._turns = itertools.count()
        self._beats: dict[str, Heartbeat] = {}
        self._fleet = FleetState(True)
        self._first_at_s: dict[int, float] = {}

    def run(self) -> Result:
        end_s = self._requests[-1].at_s
        for number in range(int(end_s / POLL_S) + 1):
            if number % int(HEARTBEAT_S / POLL_S) == 0:
                self.clock.at(number * POLL_S, self._beat)
            self.clock.at(number * POLL_S + POLL_S / 2, self._poll)
        for request in self._requests:
            self.clock.at(request.at_s, self._arrival_of(request))
        self.clock.run()
        return self.result

    def _beat(self, at_s: float) -> None:
        self._beats = {slug: engine.heartbeat(at_s) for slug, engine in self.engines.items()}

    def _poll(self, at_s: float) -> None:
        self._fleet = FleetState(True, dict(self._beats))

    def _arrival_of(self, request: Request) -> Callable[[float], None]:
        def arrive(at_s: float) -> None:
            began = time.perf_counter()
            slug = self._choose(request, at_s)
            self.result.decisions_s += time.perf_counter() - began
            if slug is None:
                self._close(request, "refused", good=False)
                return
            self.result.sent_to[request.number] = slug
            self.engines[slug].send(request, at_s)

        return arrive

    def _in_turn(self, request: Request, at_s: float) -> str | None:
        """What a plain balancer does: the next one whose health looks well."""
        ready = [slug for slug in HARDWARE if (beat := self._fleet.workers.get(slug)) and beat.engine_ready]
        return ready[next(self._turns) % len(ready)] if ready else None

    def _by_rule(self, strategy: Strategy) -> Callable[[Request, float], str | None]:
        catalog = _catalog(strategy, self._prices)

        def choose(request: Request, at_s: float) -> str | None:
            facts = _facts(request)
            try:
                decision = decide(_ask(facts), catalog, self._fleet, facts=facts, live=self.live, at_s=at_s)
            except Refusal:
                return None
            slug = decision.candidate.deployment
            exchange = facts.exchange_id
            self.live.begin(exchange, slug, request.prompt_tokens, decision.queue_ms, at_s)
            return slug

        return choose

    def first_token(self, request: Request, at_s: float) -> None:
        self._first_at_s[request.number] = at_s
        self.live.first_token(UUID(int=request.number), at_s)

    def finished(self, request: Request, at_s: float) -> None:
        self.live.succeeded(UUID(int=request.number), request.answer_tokens, at_s)
        prices = self._prices[self.result.sent_to[request.number]]
        self.result.cost += request.prompt_tokens * prices.input / MILLION
        self.result.cost += request.answer_tokens * prices.output / MILLION
        ttft_ms = (self._first_at_s[request.number] - request.at_s) * 1000
        good = _meets(request, ttft_ms, (at_s - request.at_s) * 1000)
        self._close(request, "within" if good else "late", good=good)

    def failed(self, request: Request, at_s: float) -> None:
        """Not billed, and not tried again: what a strategy sends to a dead engine is its fault."""
        self.live.failed(UUID(int=request.number), at_s)
        self._close(request, "failed", good=False)

    def _close(self, request: Request, how: str, *, good: bool) -> None:
        self.result.ended[how] += 1
        self.result.good[request.number] = good


def _meets(request: Request, ttft_ms: float, e2e_ms: float) -> bool:
    objective = OBJECTIVES["interactive"]
    if objective is None or ttft_ms > objective.ttft_ms:
        return False
    return request.answer_tokens > objective.short_tokens or e2e_ms <= objective.short_e2e_ms


def _catalog(strategy: Strategy, prices: dict[str, Prices]) -> Catalog:
    candidates = tuple(
        Candidate(UUID(int=1), slug, f"gpu.{slug}", "m", "1", 32_768, prices[slug], True) for slug in HARDWARE
    )
    return Catalog(1, {"m": candidates}, RuleSet(1, (Rule("all", route=Route(strategy=strategy)),)))


def _facts(request: Request) -> RequestFacts:
    return RequestFacts(
        exchange_id=UUID(int=request.number),
        at=datetime(2026, 1, 1, tzinfo=UTC),
        model="m",
        prompt_tokens=request.prompt_tokens,
        max_tokens=SHORT_TOKENS if request.answer_tokens <= SHORT_TOKENS else LONG_TOKENS,
    )


def _ask(facts: RequestFacts) -> Ask:
    return Ask(facts.exchange_id, "r", "http", "m", (), Sampling(facts.max_tokens))


def is_feasible(request: Request) -> bool:
    """Whether an idle, healthy deployment of the faster kind would meet the objective."""
    prompt_ms, answer_ms = work_ms(request, HARDWARE["reserved"])
    return _meets(request, prompt_ms, prompt_ms + answer_ms)


def recovery_s(requests: Sequence[Request], result: Result, slow_from_s: float) -> float | None:
    """From the slowdown until the end of the last two seconds in which more than a fifth came too late.

    Of the requests that can be in time at all. None where that had no end while it was watched.
    """
    feasible = [request for request in requests if is_feasible(request)]
    recovered_s = 0.0
    for number in range(int((CALM_S - WINDOW_S) / STEP_S) + 1):
        start_s = number * STEP_S
        window = (slow_from_s + start_s, slow_from_s + start_s + WINDOW_S)
        if _share(feasible, result, *window) < RECOVERED:
            recovered_s = start_s + WINDOW_S
    return recovered_s if recovered_s < CALM_S - WINDOW_S else None


def _share(requests: Sequence[Request], result: Result, from_s: float, until_s: float) -> float:
    asked = [result.good[request.number] for request in requests if from_s <= request.at_s < until_s]
    return sum(asked) / len(asked) if asked else 0.0


def show(requests: Sequence[Request], results: dict[str, Result]) -> None:
    total, half_s = len(requests), requests[-1].at_s / 2
    print(f"{total} requests in {requests[-1].at_s:.0f} s ({total / requests[-1].at_s:.1f}/s)")
    possible = sum(is_feasible(request) for request in requests) / total
    print(f"{possible:.3f} of them can meet their objective on an idle, healthy deployment\n")
    columns = ("goodput", "before", "after", "USD", "USD/1000 good", "late", "failed", "refused", "recovery", "µs")
    print(f"{'':<20}" + "".join(f"{column:>14}" for column in columns))
    for name, result in results.items():
        good = sum(result.good.values())
        recovered = recovery_s(requests, result, half_s)
        figures = (
            f"{good / total:.3f}",
            f"{_share(requests, result, 0, half_s):.3f}",
            f"{_share(requests, result, half_s, float('inf')):.3f}",
            f"{result.cost:.2f}",
            f"{result.cost / good * 1000:.3f}",
            *(str(result.ended[how]) for how in ("late", "failed", "refused")),
            f"> {CALM_S:.0f} s" if recovered is None else f"{recovered:.1f} s",
            f"{result.decisions_s / total * 1e6:.0f}",
        )
        print(f"{name:<20}" + "".join(f"{figure:>14}" for figure in figures))
    print()
    for name, result in results.items():
        sent = Counter(result.sent_to.values())
        shares = ", ".join(f"{slug} {sent[slug] / total:.0%}" for slug in HARDWARE)
        print(f"{name:<20}{shares}")
    adaptive, turns = results["adaptive"], results[TURNS]
    ratio = sum(adaptive.good.values()) / sum(turns.good.values())
    print(f"\nadaptive / round-robin: goodput {ratio:.2f}, cost {adaptive.cost / turns.cost:.3f}")


def show_slowdown(requests: Sequence[Request], results: dict[str, Result]) -> None:
    """How long the slowed deployment goes on losing requests, where the traffic is shared between it and another."""
    slow_from_s = requests[-1].at_s / 2
    watched = [one for one in requests if 0 <= one.at_s - slow_from_s < CALM_S and is_feasible(one)]
    print(f"\nWith the slowed one at the spot instance's price, the first {CALM_S:.0f} s of the slowdown:")
    for name, result in results.items():
        there = [one for one in watched if result.sent_to.get(one.number) == SLOWED]
        lost = [one.at_s - slow_from_s for one in there if not result.good[one.number]]
        said = f"the last sent {lost[-1]:.1f} s after it began" if lost else "none"
        print(f"{name:<20}{len(there)} requests sent to it, {len(lost)} lost that could be in time, {said}")


def simulate(requests: Sequence[Request], prices: dict[str, Prices]) -> dict[str, Result]:
    return {strategy or TURNS: Simulation(requests, strategy, prices).run() for strategy in STRATEGIES}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="bench routing", description=__doc__)
    parser.add_argument("--speed", type=float, default=1.5, help="how many times as fast as the trace")
    parser.add_argument("--count", type=int, default=0, help="of the trace's requests; 0 is all")
    options = parser.parse_args(arguments)
    if not TRACE.is_file():
        print(f"skipped: {TRACE.name} is not in ../shared/data/traces")
        return
    requests = read_trace(options.speed, options.count)
    show(requests, simulate(requests, PRICES))
    show_slowdown(requests, simulate(requests, PRICES | {SLOWED: PRICES["spot"]}))


if __name__ == "__main__":
    main()

"""Small worlds for routing: candidates, fleets, requests and what was measured, as values and as strategies."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from hypothesis import strategies as st

from gpu_workers.messages import Heartbeat
from inference.catalog import Candidate, Catalog, Prices
from inference.fleet import FleetState
from inference.routing.facts import RequestFacts
from inference.routing.live import LiveState
from inference.routing.rules import STRATEGIES, Conditions, Mirror, Route, Rule, RuleSet, TimeWindow, WeightedCandidate

NOON = datetime(2026, 6, 3, 12, tzinfo=UTC)  # a Wednesday
SLUGS = ("a", "b", "c")
PRICE_OF = {"a": Decimal(3), "b": Decimal(3), "c": Decimal(1)}


def candidate(slug: str, *, model: str = "m", price: Decimal | None = None, zone: str = "") -> Candidate:
    price = PRICE_OF.get(slug, Decimal(1)) if price is None else price
    return Candidate(UUID(int=1), slug, f"gpu.{slug}", model, "1", 4096, Prices(price, price, price), False, zone)


def catalog(rules: RuleSet | None = None, slugs: tuple[str, ...] = SLUGS) -> Catalog:
    return Catalog(7, {"m": tuple(candidate(slug) for slug in slugs)}, rules)


def beat(slug: str, *, running: int = 0, capacity: int = 8, ready: bool = True, **more: Any) -> Heartbeat:
    return Heartbeat(f"worker-{slug}", slug, "vllm", ready, False, running, capacity, "", **more)


def fleet(*beats: Heartbeat) -> FleetState:
    return FleetState(True, {one.worker: one for one in beats or [beat(slug) for slug in SLUGS]})


def facts(number: int = 1, **more: Any) -> RequestFacts:
    usual: dict[str, Any] = {"at": NOON, "model": "m", "prompt_tokens": 100, "max_tokens": 100}
    return RequestFacts(exchange_id=UUID(int=number), **usual | more)


def measured(
    times: dict[str, tuple[float, float]], *, at_s: float = 100.0, count: int = 8, prompt: int = 100
) -> LiveState:
    """What a process knows after `count` answers of each deployment, given TTFT and time per token in milliseconds."""
    live = LiveState()
    for slug, (ttft_ms, token_ms) in times.items():
        for number in range(count):
            exchange, began_s = UUID(int=hash((slug, number)) & (1 << 64) - 1), at_s - 5 + number / 10
            live.begin(exchange, slug, prompt, 0.0, began_s)
            live.first_token(exchange, began_s + ttft_ms / 1000)
            live.succeeded(exchange, 11, began_s + (ttft_ms + 10 * token_ms) / 1000)
    return live


names = st.sampled_from(["x", "y"])
some_names = st.none() | st.frozensets(names, min_size=1)
windows = st.builds(
    TimeWindow,
    weekdays=st.none() | st.frozensets(st.integers(0, 6), min_size=1),
    from_hour=st.integers(0, 23),
    until_hour=st.integers(0, 24),
)
conditions = st.builds(
    Conditions,
    organisations=some_names,
    roles=some_names,
    tags=some_names,
    models=st.none() | st.frozensets(st.sampled_from(["m", "alias"]), min_size=1),
    min_prompt_tokens=st.none() | st.integers(0, 3000),
    max_prompt_tokens=st.none() | st.integers(0, 3000),
    priorities=st.none() | st.frozensets(st.sampled_from(["interactive", "standard", "batch"]), min_size=1),
    findings=some_names,
    without_findings=some_names,
    window=st.none() | windows,
    budget_states=st.none() | st.frozensets(st.sampled_from(["calm", "degraded"]), min_size=1),
)
weights = st.floats(0, 10)
routes = st.builds(
    Route,
    candidates=st.lists(st.sampled_from([*SLUGS, "gone"]), unique=True, max_size=3).flatmap(
        lambda slugs: st.tuples(*(st.builds(WeightedCandidate, st.just(slug), weights) for slug in slugs))
    ),
    strategy=st.sampled_from(STRATEGIES),
    fallbacks=st.lists(st.sampled_from(SLUGS), unique=True, max_size=2).map(tuple),
    mirror=st.none() | st.builds(Mirror, st.sampled_from(SLUGS), st.floats(0.01, 1)),
    deadline_s=st.none() | st.floats(0.1, 60),
)
rule_sets = st.lists(st.builds(Rule, st.just(""), conditions, routes), max_size=4).map(
    lambda rules: RuleSet(
        3, tuple(Rule(f"r{number}", rule.conditions, rule.route) for number, rule in enumerate(rules)), {"alias": "m"}
    )
)
requests = st.builds(
    RequestFacts,
    exchange_id=st.uuids(),
    at=st.integers(0, 24 * 7).map(lambda hours: NOON + timedelta(hours=hours)),
    model=st.sampled_from([None, "m", "alias"]),
    prompt_tokens=st.integers(0, 4000),
    max_tokens=st.integers(1, 512),
    organisation=st.none() | names,
    role=st.none() | names,
    tag=st.none() | names,
    priority=st.sampled_from(["interactive", "standard", "batch"]),
    findings=st.frozensets(names),
    budget_state=st.sampled_from(["calm", "degraded"]),
    budget_left=st.none() | st.decimals(0, 1, places=6),
    conversation=st.none() | st.uuids(),
    previous_deployment=st.none() | st.sampled_from(SLUGS),
)
beats = st.builds(
    beat,
    st.sampled_from(SLUGS),
    running=st.integers(0, 9),
    capacity=st.integers(0, 8),
    ready=st.booleans(),
    waiting=st.integers(0, 4),
    kv_use=st.none() | st.floats(0, 1),
    prefix_hits=st.none() | st.floats(0, 1),
)
fleets = st.lists(beats, max_size=4).map(lambda found: FleetState(True, {one.worker: one for one in found}))
milliseconds = st.floats(1, 5_000)
lives = st.dictionaries(st.sampled_from(SLUGS), st.tuples(milliseconds, milliseconds)).map(measured)

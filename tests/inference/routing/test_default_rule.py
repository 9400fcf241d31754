"""Routing is a pure function: the first deployment of the model that has a ready worker, or a refusal that says why."""

from __future__ import annotations

import copy
from decimal import Decimal
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_workers.messages import Heartbeat, Sampling
from inference import routing
from inference.errors import Refusal
from inference.events import Ask
from inference.fleet import FleetState
from inference.snapshot import Candidate, Catalog, Prices

MODELS, DEPLOYMENTS = ["m1", "m2", "m3"], ["d1", "d2", "d3", "d4"]
PRICES = Prices(Decimal(1), Decimal(1), Decimal(1))


def candidate(model: str, deployment: str) -> Candidate:
    return Candidate(UUID(int=1), deployment, f"gpu.{deployment}", model, "1", 4096, PRICES, False)


def ask(model: str | None) -> Ask:
    return Ask(uuid4(), "r", "http", model, (), Sampling(max_tokens=1))


@st.composite
def catalogs(draw: st.DrawFn) -> Catalog:
    models = {
        model: tuple(candidate(model, name) for name in draw(st.permutations(DEPLOYMENTS))[: draw(st.integers(1, 3))])
        for model in draw(st.lists(st.sampled_from(MODELS), unique=True))
    }
    return Catalog(draw(st.integers(1, 9)), models)


beats = st.builds(
    Heartbeat,
    worker=st.text("abc", min_size=1, max_size=4),
    deployment=st.sampled_from(DEPLOYMENTS),
    engine=st.just("vllm"),
    engine_ready=st.booleans(),
    simulated=st.just(False),
    running=st.integers(0, 2),
    capacity=st.just(2),
    seal=st.just(""),
)
fleets = st.builds(
    lambda broker, found: FleetState(broker, {beat.worker: beat for beat in found}),
    st.booleans(),
    st.lists(beats, max_size=6),
)


def decide(model: str | None, catalog: Catalog, fleet: FleetState) -> routing.Decision | tuple[str, str | None]:
    try:
        return routing.decide(ask(model), catalog, fleet)
    except Refusal as refusal:
        return refusal.code, refusal.param


@given(st.none() | st.sampled_from([*MODELS, "unknown"]), catalogs(), fleets)
def test_the_first_deployment_with_a_ready_worker_is_taken_and_nothing_is_changed(
    model: str | None, catalog: Catalog, fleet: FleetState
) -> None:
    before = copy.deepcopy((catalog, fleet))
    decision = decide(model, catalog, fleet)
    assert decide(model, catalog, fleet) == decision
    assert (catalog, fleet) == before

    name = model or next(iter(catalog.models), "unknown")
    usable = {b.deployment for b in fleet.workers.values() if b.engine_ready and b.running < b.capacity}
    fitting = [c for c in catalog.models.get(name, ()) if c.deployment in usable]
    if name not in catalog.models:
        assert decision == ("model_not_found", "model")
    elif not fleet.broker or not fitting:
        assert decision == ("overloaded", None)
    else:
        assert isinstance(decision, routing.Decision)
        assert decision.candidate == fitting[0]
        assert decision.configuration == catalog.version
        assert fitting[0].model in decision.reason


def test_a_refusal_says_when_to_come_back_and_does_not_quote_the_model() -> None:
    catalog = Catalog(1, {"m1": (candidate("m1", "d1"),)})
    for fleet in (FleetState(), FleetState(True)):
        with pytest.raises(Refusal) as caught:
            routing.decide(ask("m1"), catalog, fleet)
        assert caught.value.status == 503
        assert caught.value.retry_after_s
    with pytest.raises(Refusal) as caught:
        routing.decide(ask("xyzzy"), catalog, FleetState(True))
    assert caught.value.status == 404
    assert "xyzzy" not in caught.value.message

"""A decision is a pure function of the request, the snapshot, the workers and what was measured. First match wins."""

from __future__ import annotations

import copy
import math
import pickle
from datetime import timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from gpu_workers.messages import Sampling
from inference.errors import Refusal
from inference.events import DEADLINE_S
from inference.fleet import FleetState
from inference.routing.candidates import AT_CAPACITY, OBJECTIVES, PASSING, TOO_LATE
from inference.routing.deciding import MAX_RETRY_AFTER_S, Outcome, find_candidates, weigh
from inference.routing.explanation import Explanation, parse_explanation
from inference.routing.facts import RequestFacts
from inference.routing.live import LiveState
from inference.routing.rules import (
    Clamps,
    Conditions,
    Mirror,
    Route,
    Rule,
    RuleSet,
    WeightedCandidate,
    failing_condition,
)
from tests.inference.routing import scenes
from tests.inference.routing.scenes import NOON, beat, candidate, catalog, facts, fleet, measured

AT_S = 100.0


def rules(*given_rules: Rule, **aliases: str) -> RuleSet:
    return RuleSet(1, given_rules, aliases)


def only(**route: Any) -> RuleSet:
    named = tuple(WeightedCandidate(*one) for one in route.pop("candidates", ()))
    return rules(Rule("only", route=Route(candidates=named, **route)))


def chosen(outcome: Outcome) -> str:
    assert outcome.decision is not None, outcome
    return outcome.decision.candidate.deployment


def outcome_of(refusal_or: Outcome) -> tuple[Any, ...]:
    refusal = refusal_or.refusal
    return refusal_or.explanation, refusal_or.decision, refusal and (refusal.code, refusal.message)


@given(scenes.requests, scenes.rule_sets, scenes.fleets, scenes.lives)
@settings(max_examples=150)
def test_the_same_facts_lead_to_the_same_decision_and_nothing_is_changed(
    request: RequestFacts, given_rules: RuleSet, workers: FleetState, live: LiveState
) -> None:
    before = pickle.dumps((request, given_rules, workers, live))
    first = weigh(request, catalog(given_rules), workers, live, AT_S)
    assert pickle.dumps((request, given_rules, workers, live)) == before
    again = weigh(*copy.deepcopy((request, catalog(given_rules), workers, live)), AT_S)
    assert outcome_of(first) == outcome_of(again)
    assert (
        parse_explanation(msgspec.json.decode(msgspec.json.encode(first.explanation.as_facts()))) == first.explanation
    )


@given(scenes.requests, scenes.rule_sets, scenes.fleets, scenes.lives)
@settings(max_examples=150)
def test_the_first_rule_that_matches_decides_and_the_explanation_says_why_others_did_not(
    request: RequestFacts, given_rules: RuleSet, workers: FleetState, live: LiveState
) -> None:
    outcome = weigh(request, catalog(given_rules), workers, live, AT_S)
    names = frozenset({"m", request.model or "m"})
    failed = [failing_condition(rule.conditions, request, names) for rule in given_rules.rules]
    fired = failed.index(None) if None in failed else None
    assert outcome.explanation.rule == ("default" if fired is None else given_rules.rules[fired].name)
    shown = [trace.failed for trace in outcome.explanation.rules]
    assert shown == (failed if fired is None else failed[: fired + 1])


@given(scenes.requests, scenes.rule_sets, scenes.fleets, scenes.lives)
@settings(max_examples=150)
def test_what_a_filter_excludes_is_never_chosen(
    request: RequestFacts, given_rules: RuleSet, workers: FleetState, live: LiveState
) -> None:
    outcome = weigh(request, catalog(given_rules), workers, live, AT_S)
    if outcome.decision is None:
        assert all(trace.filter for trace in outcome.explanation.candidates)
        return
    traces = [one for one in outcome.explanation.candidates if one.deployment == chosen(outcome)]
    assert any(trace.filter is None for trace in traces)
    # A lost attempt may go where nothing but the moment spoke against it.
    allowed = {one.deployment for one in outcome.explanation.candidates if one.filter in {None, *PASSING}}
    assert {*outcome.explanation.fallbacks, chosen(outcome)} == allowed


@pytest.mark.parametrize(
    ("condition", "met", "missed"),
    [
        ({"organisations": ["o"]}, {"organisation": "o"}, {"organisation": "p"}),
        ({"teams": ["t"]}, {"team": "t"}, {}),
        ({"keys": ["k"]}, {"key": "k"}, {"key": "l"}),
        ({"roles": ["officer"]}, {"role": "officer"}, {"role": None}),
        ({"models": ["m"]}, {"model": "alias"}, None),
        ({"models": ["alias"]}, {"model": "alias"}, {"model": "m"}),
        ({"tags": ["t"]}, {"tag": "t"}, {"tag": "u"}),
        ({"languages": ["de"]}, {"language": "de"}, {"language": "en"}),
        ({"min_prompt_tokens": 10}, {"prompt_tokens": 10}, {"prompt_tokens": 9}),
        ({"max_prompt_tokens": 10}, {"prompt_tokens": 10}, {"prompt_tokens": 11}),
        ({"priorities": ["batch"]}, {"priority": "batch"}, {"priority": "standard"}),
        ({"findings": ["IBAN"]}, {"findings": frozenset({"IBAN", "X"})}, {"findings": frozenset({"X"})}),
        ({"without_findings": ["IBAN"]}, {"findings": frozenset()}, {"findings": frozenset({"IBAN"})}),
        ({"residency": ["eu"]}, {"residency": "eu"}, {"residency": None}),
        ({"window": {"weekdays": [2]}}, {"at": NOON}, {"at": NOON + timedelta(days=1)}),
        ({"window": {"from_hour": 12, "until_hour": 13}}, {"at": NOON}, {"at": NOON + timedelta(hours=1)}),
        ({"window": {"from_hour": 22, "until_hour": 6}}, {"at": NOON + timedelta(hours=13)}, {"at": NOON}),
        ({"budget_states": ["degraded"]}, {"budget_state": "degraded"}, {"budget_state": "calm"}),
    ],
)
def test_each_condition_looks_at_its_fact(
    condition: dict[str, Any], met: dict[str, Any], missed: dict[str, Any] | None
) -> None:
    rule = Rule("special", msgspec.convert(condition, Conditions))
    world = catalog(rules(rule, alias="m"))
    assert weigh(facts(**met), world, fleet(), LiveState(), AT_S).explanation.rule == "special"
    if missed is not None:
        explanation = weigh(facts(**missed), world, fleet(), LiveState(), AT_S).explanation
        assert (explanation.rule, explanation.rules[0].failed) == ("default", next(iter(condition)))


def test_an_alias_is_asked_for_as_a_model_is_and_named_in_the_explanation() -> None:
    world = catalog(rules(alias="other", other="m"))
    outcome = weigh(facts(model="alias"), world, fleet(), LiveState(), AT_S)
    assert (outcome.explanation.alias, outcome.explanation.model) == ("alias", "m")
    assert find_candidates("alias", world) == world.models["m"]
    for name in ("unknown", "loop"):
        with pytest.raises(Refusal, match="model_not_found"):
            find_candidates(name, catalog(rules(loop="pool", pool="loop")))


def test_each_filter_says_what_it_is() -> None:
    live = measured({"a": (100, 10)})
    for number in range(5):
        live.begin(UUID(int=number), "a", 10, 0, AT_S)
        live.failed(UUID(int=number), AT_S)
    workers = fleet(beat("a"), beat("b", running=8), beat("c", ready=False))
    set_of_rules = only(candidates=[("a",), ("b",), ("c",), ("d",)])
    explanation = weigh(facts(), catalog(set_of_rules), workers, live, AT_S).explanation
    shown = {trace.deployment: trace.filter for trace in explanation.candidates}
    assert shown == {"a": "circuit breaker open", "b": "at capacity", "c": "no ready worker", "d": "not served"}


def test_residency_and_budget_exclude_what_is_not_known_to_fit() -> None:
    world = catalog()
    world.models["m"] = (candidate("a", zone="us"), candidate("b"), candidate("c", zone="eu"))
    assert chosen(weigh(facts(residency="eu"), world, fleet(), LiveState(), AT_S)) == "c"
    poor = facts(budget_left=Decimal("0.0002"))
    assert chosen(weigh(poor, catalog(), fleet(), LiveState(), AT_S)) == "c"
    assert weigh(facts(budget_left=Decimal(0)), catalog(), fleet(), LiveState(), AT_S).refusal is not None


def swamped(answers: int) -> LiveState:
    """`answers` are under way at `a`, each of which takes it about two seconds."""
    live = measured({"a": (200, 10)})
    for number in range(1000, 1000 + answers):
        live.begin(UUID(int=number), "a", 100, 0, AT_S)
    return live


def test_a_wait_past_the_rules_deadline_is_refused_at_once_and_says_when_to_ask_again() -> None:
    live, workers = swamped(300), fleet(beat("a", running=1))
    outcome = weigh(facts(), catalog(only(candidates=[("a",)], deadline_s=1.0)), workers, live, AT_S)
    shown = outcome.explanation.candidates[0]
    assert (shown.filter, outcome.decision) == (TOO_LATE, None)
    assert outcome.refusal is not None
    assert outcome.refusal.code == "overloaded"
    assert "1 s" in outcome.refusal.message
    assert outcome.refusal.retry_after_s == min(MAX_RETRY_AFTER_S, math.ceil(shown.queue_ms / 1000 - 1.0))


def test_a_wait_past_every_requests_deadline_is_refused_without_a_rule() -> None:
    workers = fleet(beat("a", running=1))
    outcome = weigh(facts(), catalog(only(candidates=[("a",)])), workers, swamped(100_000), AT_S)
    assert outcome.explanation.candidates[0].queue_ms > DEADLINE_S * 1000
    assert outcome.refusal is not None
    assert outcome.refusal.retry_after_s == MAX_RETRY_AFTER_S


def test_a_rule_cannot_give_more_time_than_there_is() -> None:
    workers = fleet(beat("a", running=1))
    generous = only(candidates=[("a",)], deadline_s=DEADLINE_S * 1000)
    outcome = weigh(facts(), catalog(generous), workers, swamped(100_000), AT_S)
    assert outcome.explanation.candidates[0].filter == TOO_LATE


def test_busy_workers_are_told_from_none() -> None:
    full = weigh(facts(), catalog(only(candidates=[("a",)])), fleet(beat("a", running=4, capacity=4)), swamped(4), AT_S)
    gone = weigh(facts(), catalog(only(candidates=[("a",)])), fleet(beat("b")), LiveState(), AT_S)
    assert full.refusal is not None
    assert gone.refusal is not None
    assert "busy" in full.refusal.message
    assert full.refusal.retry_after_s == max(1, math.ceil(full.explanation.candidates[0].queue_ms / 1000))
    assert gone.refusal.message == "No worker is ready for this model."


@given(scenes.requests, scenes.rule_sets, scenes.fleets, scenes.lives)
@settings(max_examples=150)
def test_nobody_is_sent_away_for_a_wait_while_a_place_is_free(
    request: RequestFacts, given_rules: RuleSet, workers: FleetState, live: LiveState
) -> None:
    outcome = weigh(request, catalog(given_rules), workers, live, AT_S)
    for one in outcome.explanation.candidates:
        if one.in_flight < one.capacity and one.queue_ms == 0:
            assert one.filter not in {TOO_LATE, AT_CAPACITY}
    if outcome.decision is None:
        assert outcome.refusal is not None
        assert 1 <= (outcome.refusal.retry_after_s or 0) <= MAX_RETRY_AFTER_S


zones = st.sampled_from(["", "eu", "us"])


@given(scenes.requests, scenes.rule_sets, scenes.fleets, scenes.lives, st.tuples(zones, zones, zones), zones)
@settings(max_examples=150)
def test_no_request_leaves_its_residency_whatever_the_rules_and_the_workers(
    request: RequestFacts,
    given_rules: RuleSet,
    workers: FleetState,
    live: LiveState,
    places: tuple[str, str, str],
    residency: str,
) -> None:
    zone_of = dict(zip(scenes.SLUGS, places, strict=True))
    world = catalog(given_rules)
    world.models["m"] = tuple(candidate(slug, zone=zone) for slug, zone in zone_of.items())
    resident = structs.replace(request, residency=residency or None)
    outcome = weigh(resident, world, workers, live, AT_S)
    if outcome.decision is None or not residency:
        return
    decision = outcome.decision
    goes_to = [decision.candidate, *decision.fallbacks, *filter(None, [decision.mirror])]
    assert {one.zone for one in goes_to} == {residency}


def test_a_model_that_is_nowhere_in_the_residency_is_refused_for_good() -> None:
    refusal = weigh(facts(residency="eu"), catalog(), fleet(), LiveState(), AT_S).refusal
    assert refusal is not None
    assert (refusal.code, refusal.param, refusal.retry_after_s) == ("model_not_found", "model", None)


def test_fallbacks_are_taken_in_their_order_when_no_candidate_can() -> None:
    world = catalog(only(candidates=[("gone",)], fallbacks=("a", "b")))
    outcome = weigh(facts(), world, fleet(beat("b"), beat("c")), LiveState(), AT_S)
    assert chosen(outcome) == "b"
    assert outcome.explanation.why == "no candidate can take it: fallback 2"
    assert [one.is_fallback for one in outcome.explanation.candidates] == [False, True, True]


def test_a_rule_clamps_what_is_asked_for_and_leaves_the_rest() -> None:
    clamps = Clamps(max_tokens=50, min_temperature=0.2, max_temperature=0.5)
    decision = weigh(facts(), catalog(only(clamps=clamps)), fleet(), LiveState(), AT_S).decision
    assert decision is not None
    assert decision.clamped(Sampling(100, 1.5, seed=3)) == Sampling(50, 0.5, seed=3)
    assert decision.clamped(Sampling(10, 0.0)) == Sampling(10, 0.2)
    assert decision.clamped(Sampling(10)) == Sampling(10)
    assert decision.explanation.clamped == ("max_tokens", "min_temperature", "max_temperature")


def test_a_mirror_gets_about_its_share() -> None:
    world = catalog(only(candidates=[("a",)], mirror=Mirror("c", 0.25)))
    mirrored = [weigh(facts(number), world, fleet(), LiveState(), AT_S).explanation.mirror for number in range(2000)]
    assert 0.2 < mirrored.count("c") / 2000 < 0.3
    assert set(mirrored) == {"c", None}


def test_a_copy_goes_nowhere_that_the_request_must_not_go() -> None:
    world = catalog(only(candidates=[("a",)], mirror=Mirror("c", 1.0)))
    world.models["m"] = (candidate("a", zone="eu"), candidate("c", zone="us"))
    assert weigh(facts(), world, fleet(), LiveState(), AT_S).explanation.mirror == "c"
    assert weigh(facts(residency="eu"), world, fleet(), LiveState(), AT_S).explanation.mirror is None


def test_an_explanation_holds_nothing_of_the_request_but_its_model() -> None:
    hidden = ["secret-team", "secret-key", "secret-tag", "IBAN_CODE", "secret-organisation", "secret-language"]
    told = dict(zip(("team", "key", "tag", "organisation", "language"), [*hidden[:3], *hidden[4:]], strict=True))
    request = facts(**told, findings=frozenset({"IBAN_CODE"}))
    world = catalog(rules(Rule("r", Conditions(teams=frozenset({"t"}))), Rule("all")))
    shown = msgspec.json.encode(weigh(request, world, fleet(), LiveState(), AT_S).explanation).decode()
    assert not [word for word in hidden if word in shown]


def test_an_exchange_recorded_before_there_were_explanations_has_none() -> None:
    assert parse_explanation("only rule: first deployment") is None
    assert isinstance(parse_explanation({"rule_set": None, "rule": "r", "model": "m", "strategy": "s"}), Explanation)


def test_every_class_has_its_objective() -> None:
    assert set(OBJECTIVES) == {"interactive", "standard", "batch"}

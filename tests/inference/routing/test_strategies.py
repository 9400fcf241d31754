"""How one of several is chosen: by price within the objective, by weight, by load; and how little is left to chance."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from uuid import UUID

from hypothesis import given, settings

from inference.fleet import FleetState
from inference.routing.candidates import OBJECTIVES
from inference.routing.deciding import Outcome, weigh
from inference.routing.facts import RequestFacts
from inference.routing.live import LiveState
from inference.routing.rules import Route, Rule, RuleSet, Strategy, WeightedCandidate
from tests.inference.routing import scenes
from tests.inference.routing.scenes import beat, catalog, facts, fleet, measured

AT_S = 100.0
FAST, SLOW = (150.0, 10.0), (2_000.0, 50.0)


def decide(
    request: RequestFacts, live: LiveState, workers: FleetState | None = None, strategy: Strategy = "adaptive"
) -> Outcome:
    world = catalog(RuleSet(1, (Rule("only", route=Route(strategy=strategy)),), {"alias": "m"}))
    return weigh(request, world, workers or fleet(), live, AT_S)


def shares(live: LiveState, *, strategy: Strategy = "adaptive", workers: FleetState | None = None) -> Counter[str]:
    outcomes = (decide(facts(number), live, workers, strategy) for number in range(1, 501))
    return Counter(outcome.explanation.chosen or "refused" for outcome in outcomes)


def test_the_cheapest_is_taken_while_it_meets_the_objective() -> None:
    assert shares(measured({"a": FAST, "b": FAST, "c": FAST})) == {"c": 500}


def test_what_does_not_meet_the_objective_is_not_taken_for_its_price() -> None:
    spread = shares(measured({"a": FAST, "b": FAST, "c": SLOW}))
    assert set(spread) == {"a", "b"}
    assert min(spread.values()) > 150  # equal in price: the better of two, which are equal here


def test_when_none_meets_the_objective_the_fastest_is_taken() -> None:
    outcome = decide(facts(), measured({"a": SLOW, "b": (1_500.0, 50.0), "c": (3_000.0, 50.0)}))
    assert outcome.explanation.chosen == "b"
    assert outcome.explanation.why == "none meets the objective: the fastest"


def test_of_two_equals_the_one_with_less_to_do_is_taken() -> None:
    busy = fleet(beat("a", running=6), beat("b", running=1))
    assert shares(measured({"a": FAST, "b": FAST}), workers=busy) == {"b": 500}


def test_a_queue_counts_as_time() -> None:
    live = measured({"a": FAST, "b": FAST, "c": FAST})
    full = fleet(beat("a"), beat("b"), beat("c", running=7, waiting=40))
    assert "c" not in shares(live, workers=full)


def test_batch_goes_where_it_is_cheapest_however_slow() -> None:
    assert decide(facts(priority="batch"), measured({"a": FAST, "c": SLOW})).explanation.chosen == "c"


def test_short_answers_are_promised_their_end_too() -> None:
    live = measured({"a": FAST, "b": FAST, "c": (150.0, 95.0)})
    assert decide(facts(max_tokens=512), live).explanation.chosen == "c"
    assert decide(facts(max_tokens=60), live).explanation.chosen != "c"


def test_a_conversation_stays_where_it_was_until_that_is_overloaded() -> None:
    live = measured({"a": FAST, "b": FAST, "c": FAST})
    request = facts(conversation=UUID(int=5), previous_deployment="b")
    assert decide(request, live).explanation.chosen == "b"
    full = fleet(beat("a"), beat("b", running=7, waiting=3), beat("c"))
    assert decide(request, live, full).explanation.chosen != "b"
    memory_full = fleet(beat("a"), beat("b", kv_use=0.99), beat("c"))
    assert decide(request, live, memory_full).explanation.chosen != "b"


def test_conversations_without_a_past_are_spread_and_each_keeps_its_place() -> None:
    live = measured({"a": FAST, "b": FAST, "c": SLOW})
    places: dict[int, set[str | None]] = {
        talk: {decide(facts(number, conversation=UUID(int=talk)), live).explanation.chosen for number in range(1, 6)}
        for talk in range(60)
    }
    assert all(len(place) == 1 for place in places.values())
    assert {next(iter(place)) for place in places.values()} == {"a", "b"}


def test_exploration_takes_at_most_two_in_a_hundred_and_nothing_above_the_objective() -> None:
    live = measured({"a": FAST})  # b and c are guesses; c is cheaper
    outcomes = [decide(facts(number), live) for number in range(10_000)]
    explored = [outcome.explanation for outcome in outcomes if outcome.explanation.explored]
    assert 0.005 < len(explored) / len(outcomes) <= 0.02
    assert {explanation.chosen for explanation in explored} == {"b", "c"}
    assert all(one.explanation.chosen == "a" for one in outcomes if not one.explanation.explored)


@given(scenes.requests, scenes.fleets, scenes.lives)
@settings(max_examples=200)
def test_what_is_explored_meets_the_objective_as_far_as_is_known(
    request: RequestFacts, workers: FleetState, live: LiveState
) -> None:
    outcome = decide(request, live, workers)
    if outcome.explanation.explored:
        trace = next(one for one in outcome.explanation.candidates if one.deployment == outcome.explanation.chosen)
        objective = OBJECTIVES[request.priority]
        assert trace.filter is None
        assert trace.meets_objective
        assert objective is None or (trace.ttft_high_ms or 0) <= objective.ttft_ms + 0.1


def test_weights_are_shares() -> None:
    route = Route(strategy="weighted", candidates=(WeightedCandidate("a", 3), WeightedCandidate("b", 1)))
    world = catalog(RuleSet(1, (Rule("only", route=route),)))
    counted = Counter(
        weigh(facts(number), world, fleet(), LiveState(), AT_S).explanation.chosen for number in range(4_000)
    )
    assert 0.71 < counted["a"] / 4_000 < 0.79
    assert set(counted) == {"a", "b"}


def test_the_other_strategies_do_what_they_are_called() -> None:
    busy = fleet(beat("a", running=3), beat("b", running=1), beat("c", running=2))
    live = measured({"a": FAST, "b": FAST, "c": SLOW})
    assert shares(live, strategy="least_outstanding", workers=busy) == {"b": 500}
    assert shares(live, strategy="priority_order", workers=busy) == {"a": 500}
    assert shares(live, strategy="cheapest", workers=busy) == {"c": 500}


def test_prompt_tokens_that_are_still_in_the_cache_cost_their_own_price() -> None:
    stays = facts(previous_deployment="c", prompt_tokens=1000)
    warm = fleet(beat("c", prefix_hits=0.5))
    cold = decide(stays, LiveState(), fleet(beat("c"))).explanation.candidates[-1]
    hot = decide(stays, LiveState(), warm).explanation.candidates[-1]
    assert Decimal(hot.cost_usd or 0) == Decimal(cold.cost_usd or 0)  # the scene's prices are equal
    assert (hot.ttft_ms or 0) < (cold.ttft_ms or 0)

"""A rule set is refused for what it cannot mean, with the rule and the field; and accepted for what it can."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import assume, given, settings

from inference.routing.facts import RequestFacts
from inference.routing.rules import RuleSet, failing_condition
from inference.routing.validation import Known, KnownDeployment, covers, validate
from tests.inference.routing import scenes

KNOWN = Known(
    models=frozenset({"m", "n"}),
    retired_models=frozenset({"old"}),
    deployments={
        "a": KnownDeployment("m"),
        "b": KnownDeployment("m"),
        "c": KnownDeployment("n"),
        "old-1": KnownDeployment("old", is_retired=True),
    },
)


def problems(*rules: dict[str, Any], aliases: dict[str, str] | None = None) -> list[tuple[str, str, str]]:
    named = [{"name": f"r{number}", **rule} for number, rule in enumerate(rules)]
    rule_set = msgspec.convert({"version": 1, "rules": named, "aliases": aliases or {}}, RuleSet)
    return [(problem.rule, problem.field, problem.message) for problem in validate(rule_set, KNOWN)]


def condition(**conditions: Any) -> dict[str, Any]:
    return {"conditions": conditions}


def route(**fields: Any) -> dict[str, Any]:
    return {"route": fields}


def to(*slugs: str, **fields: Any) -> dict[str, Any]:
    return route(candidates=[{"deployment": slug} for slug in slugs], **fields)


def weighted(*weights: float) -> dict[str, Any]:
    return route(candidates=[{"deployment": slug, "weight": w} for slug, w in zip("abc", weights, strict=False)])


@pytest.mark.parametrize(
    ("rule", "field", "message"),
    [
        (to("nowhere"), "candidates", "no deployment nowhere"),
        (to("old-1"), "candidates", "retired version of old"),
        (to("a", fallbacks=["nowhere"]), "fallbacks", "no deployment nowhere"),
        (to("a", fallbacks=["old-1"]), "fallbacks", "retired"),
        (to("a", mirror={"deployment": "nowhere", "share": 0.1}), "mirror.deployment", "no deployment"),
        (condition(models=["nothing"]), "models", "no model nothing"),
        (condition(models=["old"]), "models", "every version of old is retired"),
        (weighted(-1.0, 2.0), "candidates", "weight of a"),
        (weighted(float("nan")), "candidates", "weight of a"),
        (weighted(float("inf")), "candidates", "weight of a"),
        (weighted(0.0, 0.0), "candidates", "Every weight is 0"),
        (to("a", "a"), "candidates", "named 2 times"),
        (to("a", fallbacks=["b", "c", "b"]), "fallbacks", "comes back to b"),
        (to("a", fallbacks=["b", "a"]), "fallbacks", "comes back to a"),
        (condition(organisations=[]), "organisations", "matches nothing"),
        (condition(models=[]), "models", "matches nothing"),
        (condition(findings=[]), "findings", "matches nothing"),
        (condition(min_prompt_tokens=10, max_prompt_tokens=9), "min_prompt_tokens", "matches nothing"),
        (condition(max_prompt_tokens=-1), "max_prompt_tokens", "matches nothing"),
        (condition(findings=["A"], without_findings=["A", "B"]), "without_findings", "matches nothing"),
        (condition(window={"from_hour": 9, "until_hour": 9}), "window", "no hour in it"),
        (condition(window={"weekdays": []}), "window", "no hour in it"),
        (condition(window={"weekdays": [7]}), "window.weekdays", "0 (Monday) to 6"),
        (condition(window={"from_hour": 25}), "window.from_hour", "0 to 24"),
        (condition(budget_states=["rich"]), "budget_states", "no state rich"),
        (condition(languages=["en", "german"]), "languages", "german is never told"),
        (route(mirror={"deployment": "a", "share": 0}), "mirror.share", "more than 0"),
        (route(mirror={"deployment": "a", "share": 1.5}), "mirror.share", "at most 1"),
        (route(deadline_s=0), "deadline_s", "more than 0"),
        (route(deadline_s=float("nan")), "deadline_s", "more than 0"),
        (route(clamps={"max_tokens": 0}), "clamps.max_tokens", "at least 1"),
        (route(clamps={"min_temperature": 1.0, "max_temperature": 0.5}), "clamps.min_temperature", "More than"),
        (route(clamps={"max_temperature": 3.0}), "clamps.max_temperature", "between 0 and 2"),
        ({"name": " "}, "name", "needs a name"),
    ],
)
def test_what_it_cannot_mean_is_named_by_rule_and_field(rule: dict[str, Any], field: str, message: str) -> None:
    found = problems(rule)
    assert any(where == field and message in said for _, where, said in found), found


@pytest.mark.parametrize(
    ("aliases", "message"),
    [
        ({"x": "x"}, "x leads back to itself: x → x"),
        ({"x": "y", "y": "z", "z": "x"}, "x leads back to itself: x → y → z → x"),
        ({"x": "nothing"}, "no model nothing"),
        ({"x": "old"}, "retired"),
        ({"m": "n"}, "m is the name of a model"),
    ],
)
def test_aliases_that_lead_nowhere_are_refused(aliases: dict[str, str], message: str) -> None:
    found = problems(aliases=aliases)
    assert any(field == "aliases" and message in said for _, field, said in found), found


@pytest.mark.parametrize(
    ("wide", "narrow"),
    [
        ({}, {}),
        ({}, {"priorities": ["batch"]}),
        ({"roles": ["x", "y"]}, {"roles": ["x"], "tags": ["t"]}),
        ({"min_prompt_tokens": 100}, {"min_prompt_tokens": 100, "max_prompt_tokens": 200}),
        ({"max_prompt_tokens": 100}, {"max_prompt_tokens": 50}),
        ({"models": ["m"]}, {"models": ["fast"]}),
        ({"findings": ["A", "B"]}, {"findings": ["A"]}),
        ({"without_findings": ["A"]}, {"without_findings": ["A", "B"]}),
        (
            {"window": {"from_hour": 8, "until_hour": 20}},
            {"window": {"weekdays": [1], "from_hour": 9, "until_hour": 10}},
        ),
    ],
)
def test_a_rule_that_an_earlier_one_covers_is_never_reached(wide: dict[str, Any], narrow: dict[str, Any]) -> None:
    aliases = {"fast": "m"}
    found = problems(condition(**wide), condition(**narrow), aliases=aliases)
    assert found == [("r1", "conditions", "Never reached: r0 matches everything that it does.")]
    if wide != narrow:
        assert problems(condition(**narrow), condition(**wide), aliases=aliases) == []


def test_two_rules_of_one_name_are_refused() -> None:
    found = problems({"name": "same", **condition(roles=["x"])}, {"name": "same"})
    assert [(rule, field) for rule, field, _ in found] == [("same", "name"), ("same", "name")]


def test_rules_that_overlap_without_covering_each_other_are_fine() -> None:
    assert problems(condition(min_prompt_tokens=10, max_prompt_tokens=100), condition(min_prompt_tokens=50)) == []


def test_a_whole_rule_set_is_accepted() -> None:
    everything = {
        "conditions": {
            "organisations": ["3fa85f64"],
            "priorities": ["interactive", "standard"],
            "models": ["fast", "n"],
            "window": {"weekdays": [0, 1, 2, 3, 4], "from_hour": 22, "until_hour": 6},
            "findings": ["IBAN_CODE", "PERSON"],
            "without_findings": ["PERSON"],
            "budget_states": ["calm", "warned"],
        },
        "route": {
            "candidates": [{"deployment": "a", "weight": 0}, {"deployment": "b", "weight": 2.5}],
            "strategy": "weighted",
            "fallbacks": ["c"],
            "mirror": {"deployment": "a", "share": 1.0},
            "deadline_s": 2.5,
            "clamps": {"max_tokens": 1, "min_temperature": 0, "max_temperature": 2},
        },
    }
    assert problems(everything, condition(), aliases={"fast": "faster", "faster": "m"}) == []
    assert problems() == []  # without a catch-all the default rule holds


@given(scenes.requests, scenes.conditions, scenes.conditions)
@settings(max_examples=150)
def test_what_is_called_covered_is_covered_for_every_request(request: RequestFacts, wide: Any, narrow: Any) -> None:
    assume(covers(wide, narrow, {"alias": "m"}))
    names = frozenset({"m", request.model or "m"})
    if failing_condition(narrow, request, names) is None:
        assert failing_condition(wide, request, names) is None


@given(scenes.requests, scenes.conditions)
@settings(max_examples=300)
def test_what_is_said_to_match_nothing_matches_nothing(request: RequestFacts, conditions: Any) -> None:
    rule_set = msgspec.convert({"version": 1, "rules": [{"name": "r"}]}, RuleSet)
    rule = msgspec.structs.replace(rule_set.rules[0], conditions=conditions)
    found = validate(msgspec.structs.replace(rule_set, rules=(rule,), aliases={"alias": "m"}), KNOWN)
    if any("matches nothing" in problem.message for problem in found):
        assert failing_condition(conditions, request, frozenset({"m", request.model or "m"})) is not None

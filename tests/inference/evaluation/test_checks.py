"""Verdicts of answers, and checks that are refused because they could take without bound."""

from __future__ import annotations

import json
from typing import Any

import pytest

from inference.evaluation.checks import judge, parse_check

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}


@pytest.mark.parametrize(
    ("check", "answer", "reason"),
    [
        ({"kind": "contains", "text": "paris"}, "It is PARIS.", ""),
        ({"kind": "contains", "text": "paris", "ignore_case": False}, "It is Paris.", "missing"),
        ({"kind": "regex", "pattern": r"^\d{4}$"}, "1969", ""),
        ({"kind": "regex", "pattern": r"^\d{4}$"}, "in 1969", "no_match"),
        ({"kind": "number", "value": 4}, "2 + 2 is 4.", ""),
        ({"kind": "number", "value": 1234.5, "tolerance": 0.5}, "about 1,234", ""),
        ({"kind": "number", "value": 0.3}, "0.3", ""),
        ({"kind": "number", "value": 4}, "4, or rather 5", "wrong_number"),
        ({"kind": "number", "value": 4}, "four", "no_number"),
        ({"kind": "number", "value": 4}, "9" * 20_000, "wrong_number"),
        ({"kind": "number", "value": 4, "tolerance": 1}, "1e999", "wrong_number"),
        ({"kind": "refusal"}, "I’m sorry, but I can’t help with that.", ""),
        ({"kind": "contains", "text": "a"}, "a" * 20_001, "too_long"),
        ({"kind": "refusal"}, "Sure! First,", "no_refusal"),
        ({"kind": "json_schema", "schema": SCHEMA}, '{"a": 1}', ""),
        ({"kind": "json_schema", "schema": SCHEMA}, '```json\n{"a": 1}\n```', ""),
        ({"kind": "json_schema", "schema": SCHEMA}, '{"a": "1"}', "misfit"),
        ({"kind": "json_schema", "schema": SCHEMA}, "not json", "no_json"),
        ({"kind": "json_schema", "schema": SCHEMA}, "[" * 20_000, "no_json"),
        ({"kind": "json_schema", "schema": SCHEMA}, "", "no_json"),
    ],
)
def test_an_answer_gets_its_verdict(check: dict[str, Any], answer: str, reason: str) -> None:
    verdict = judge(parse_check(check), answer)
    assert (verdict.passed, verdict.reason) == (not reason, reason)


@pytest.mark.parametrize("pattern", [r"(a|aa)+$", r"(a+)+$", r"^(([a-z])+.)+[A-Z]([a-z])+$", r"(.*)*\1b$"])
def test_a_hostile_pattern_is_stopped_and_does_not_pass(pattern: str) -> None:
    verdict = judge(parse_check({"kind": "regex", "pattern": pattern}), "a" * 19_999 + "!")
    assert not verdict.passed
    assert verdict.reason in ("too_slow", "no_match")


def test_one_that_would_run_for_ever_is_stopped_by_the_clock() -> None:
    assert judge(parse_check({"kind": "regex", "pattern": "(a|aa)+$"}), "a" * 60 + "!").reason == "too_slow"


@pytest.mark.parametrize(
    "check",
    [
        None,
        [],
        {},
        {"kind": "luck"},
        {"kind": "contains"},
        {"kind": "contains", "text": ""},
        {"kind": "contains", "text": "a" * 2_001},
        {"kind": "contains", "text": "a", "colour": "red"},
        {"kind": "regex", "pattern": "("},
        {"kind": "regex", "pattern": "a" * 201},
        {"kind": "number", "value": "many"},
        {"kind": "number", "value": float("nan")},
        {"kind": "number", "value": float("inf")},
        {"kind": "number", "value": 1, "tolerance": -1},
        {"kind": "json_schema", "schema": []},
        {"kind": "json_schema", "schema": {"type": 7}},
        {"kind": "json_schema", "schema": {"properties": {"a": {"pattern": "(a+)+$"}}}},
        {"kind": "json_schema", "schema": {"$ref": "http://elsewhere.example/schema"}},
        {"kind": "json_schema", "schema": {"enum": ["a" * 8_001]}},
    ],
)
def test_what_is_no_check_is_refused(check: Any) -> None:
    with pytest.raises(ValueError):
        parse_check(check)


def test_a_refused_schema_is_not_fetched_or_repeated() -> None:
    with pytest.raises(ValueError) as caught:
        parse_check({"kind": "json_schema", "schema": {"$ref": "http://elsewhere.example/schema"}})
    assert "elsewhere" not in json.dumps(str(caught.value))

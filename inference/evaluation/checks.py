"""Checks of an answer, as plain data, and their verdicts. No pattern, schema or answer takes longer than a bound."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any, Literal

import msgspec
import regex
from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError

MAX_TEXT = 2_000
MAX_PATTERN = 200
MAX_SCHEMA = 8_000
MAX_ANSWER = 20_000
# A pattern that backtracks without end is stopped, and its check failed. Python's own engine cannot be stopped.
REGEX_TIMEOUT_S = 0.5
# These would run patterns in an engine that cannot be stopped, or fetch what the schema names.
UNBOUNDED_KEYWORDS = frozenset({"pattern", "patternProperties", "$ref", "$dynamicRef", "$recursiveRef", "format"})

NUMBER = re.compile(r"[-+]?\d{1,40}(?:,\d{3}){0,10}(?:\.\d{1,40})?(?:[eE][-+]?\d{1,3})?", re.ASCII)
REFUSALS = re.compile(
    r"\b(i can(no|')t|i can not|i(')?m (not able|unable|sorry)|i am (not able|unable|sorry)|i won't|i will not"
    r"|i must decline|unable to (help|assist)|not able to (help|assist))\b"
)


class Contains(msgspec.Struct, frozen=True, tag="contains", tag_field="kind", forbid_unknown_fields=True):
    text: str
    ignore_case: bool = True


class Matches(msgspec.Struct, frozen=True, tag="regex", tag_field="kind", forbid_unknown_fields=True):
    pattern: str


class Number(msgspec.Struct, frozen=True, tag="number", tag_field="kind", forbid_unknown_fields=True):
    """The last number of the answer is within `tolerance` of `value`."""

    value: float
    tolerance: float = 0.0


class Refuses(msgspec.Struct, frozen=True, tag="refusal", tag_field="kind", forbid_unknown_fields=True):
    pass


class FitsSchema(msgspec.Struct, frozen=True, tag="json_schema", tag_field="kind", forbid_unknown_fields=True):
    schema: dict[str, Any]


Check = Contains | Matches | Number | Refuses | FitsSchema
Reason = Literal[
    "", "too_long", "missing", "no_match", "too_slow", "no_number", "wrong_number", "no_refusal", "no_json", "misfit"
]


@dataclass(frozen=True, slots=True)
class Verdict:
    """`reason` says why an answer did not pass, and nothing of the answer."""

    passed: bool
    reason: Reason = ""


def parse_check(value: Any) -> Check:
    """Raises `ValueError` for what is no check, or could take without bound."""
    check: Check = msgspec.convert(value, Check)
    match check:
        case Contains(text):
            _require(0 < len(text) <= MAX_TEXT, f"The text has 1 to {MAX_TEXT} characters.")
        case Matches(pattern):
            _require(0 < len(pattern) <= MAX_PATTERN, f"The pattern has 1 to {MAX_PATTERN} characters.")
            _compiled(pattern)
        case Number(number, tolerance):
            _require(abs(number) < 1e300 and 0 <= tolerance < 1e300, "Numbers are finite, a tolerance not negative.")
        case FitsSchema(schema):
            _require_bounded(schema)
    return check


def judge(check: Check, answer: str) -> Verdict:
    if len(answer) > MAX_ANSWER:
        return Verdict(False, "too_long")
    match check:
        case Contains(text, ignore_case):
            found = text.casefold() in answer.casefold() if ignore_case else text in answer
            return Verdict(found, "" if found else "missing")
        case Matches(pattern):
            return _match(pattern, answer)
        case Number(value, tolerance):
            return _compare(answer, Decimal(repr(value)), Decimal(repr(tolerance)))
        case Refuses():
            refused = bool(REFUSALS.search(answer.casefold().replace("’", "'")))
            return Verdict(refused, "" if refused else "no_refusal")
        case FitsSchema(schema):
            return _fit(schema, answer)


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(message)


def _compiled(pattern: str) -> regex.Pattern[str]:
    try:
        return regex.compile(pattern)
    except (regex.error, OverflowError, RecursionError):
        raise ValueError("The pattern is no regular expression.") from None


def _match(pattern: str, answer: str) -> Verdict:
    try:
        found = _compiled(pattern).search(answer, timeout=REGEX_TIMEOUT_S) is not None
    except (TimeoutError, MemoryError):
        return Verdict(False, "too_slow")
    return Verdict(found, "" if found else "no_match")


def _compare(answer: str, value: Decimal, tolerance: Decimal) -> Verdict:
    numbers = NUMBER.findall(answer)
    if not numbers:
        return Verdict(False, "no_number")
    try:
        near = abs(Decimal(numbers[-1].replace(",", "")) - value) <= tolerance
    except InvalidOperation:
        near = False
    return Verdict(near, "" if near else "wrong_number")


def _require_bounded(schema: dict[str, Any]) -> None:
    _require(len(json.dumps(schema)) <= MAX_SCHEMA, f"The schema has at most {MAX_SCHEMA} characters.")
    if unbounded := UNBOUNDED_KEYWORDS & set(_keys(schema)):
        raise ValueError(f"A schema here has no {', '.join(sorted(unbounded))}.")
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError:
        raise ValueError("This is no JSON schema (2020-12).") from None


def _keys(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [*value, *(key for inner in value.values() for key in _keys(inner))]
    return [key for inner in value for key in _keys(inner)] if isinstance(value, list) else []


def _fit(schema: dict[str, Any], answer: str) -> Verdict:
    text = answer.strip()
    if text.startswith("```") and text.endswith("```"):  # models like to wrap what they were asked for
        text = text[3:-3].removeprefix("json").strip()
    try:
        value = json.loads(text)
        fits = Draft202012Validator(schema).is_valid(value)
    except (ValueError, RecursionError):
        return Verdict(False, "no_json")
    return Verdict(fits, "" if fits else "misfit")

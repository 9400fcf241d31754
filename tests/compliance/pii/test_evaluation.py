"""Figures by hand-worked cases, and lines that are none refused by their number, with nothing of them repeated."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from hypothesis import given
from hypothesis import strategies as st

from compliance.pii.analyzer import Analyzer
from compliance.pii.evaluation import NOTHING, Score, evaluate
from compliance.pii.findings import Finding
from compliance.pii.labelled import Labelled, LineRefused, Span, read_lines

TEXT = "Ask Jane Doe in Rome on 2024-01-01"
MARKED = Labelled(TEXT, (Span("PERSON", 4, 12), Span("GPE", 16, 20), Span("DATE_TIME", 24, 34)))


def test_characters_count_whatever_they_are_called_and_neutral_ones_not_at_all() -> None:
    found = [Finding(4, 8, "LOCATION", 0.5), Finding(13, 15, "PERSON", 0.5), Finding(24, 34, "PHONE_NUMBER", 0.5)]
    report = evaluate([MARKED], [found], neutral={"DATE_TIME"})
    assert report.characters == Score(right=4, wrong=2, missed=7)
    assert report.characters.precision == pytest.approx(4 / 6)
    assert report.characters.recall == pytest.approx(4 / 11)
    assert report.characters.f(2) == pytest.approx(5 * (4 / 6) * (4 / 11) / (4 * (4 / 6) + 4 / 11))
    assert report.worst == [(1, 7)]


def test_spans_count_by_half_and_say_what_they_were_taken_for() -> None:
    found = [Finding(4, 8, "LOCATION", 0.5), Finding(0, 3, "PERSON", 0.5)]
    report = evaluate([MARKED], [found], neutral={"DATE_TIME"})
    assert report.types == {"PERSON": Score(1, 1, 0), "GPE": Score(0, 0, 1)}
    assert report.confusion == {("PERSON", "LOCATION"): 1, ("GPE", NOTHING): 1, (NOTHING, "PERSON"): 1}


def test_clean_texts_are_counted_with_what_was_found_in_them() -> None:
    report = evaluate([Labelled("a"), Labelled("b")], [[], [Finding(0, 1, "PERSON", 0.5)]])
    assert (report.texts, report.clean, report.clean_with_findings) == (2, 2, 1)
    assert evaluate([], []).characters.f(2) == 1.0


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(1, 14)), max_size=6))
def test_what_finds_exactly_what_is_marked_is_perfect(places: list[tuple[int, int]]) -> None:
    spans = tuple(Span("PERSON", start, start + length) for start, length in places)
    found = [Finding(span.start, span.end, "PERSON", 1.0) for span in spans]
    report = evaluate([Labelled("x" * 40, spans)], [found])
    assert (report.characters.precision, report.characters.recall) == (1.0, 1.0)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"{", "Line 2 is not JSON."),
        (b"\xff", "Line 2 is not JSON."),
        (b"[" * 5000, "Line 2"),
        (b"[]", "Line 2: the line is missing or of the wrong type."),
        (b"{}", "Line 2: the line is missing or of the wrong type."),
        (b'{"text": 5}', "Line 2: text is missing or of the wrong type."),
        (b'{"text": "hidden", "spans": [{"type": "", "start": 0, "end": 1}]}', "Line 2: spans[0].type is missing"),
        (b'{"text": "hidden", "spans": [{"type": "A", "start": 0, "end": 9}]}', "Line 2: a span lies outside"),
        (b'{"text": "hidden", "spans": [{"type": "A", "start": 3, "end": 3}]}', "Line 2: a span lies outside"),
        (b'{"text": "\\ud800"}', "Line 2"),
        (b'{"text": "' + b"x" * 1_048_576 + b'"}', "Line 2 is longer than"),
    ],
)
def test_a_line_that_is_none_is_refused_by_its_number(line: bytes, said: str) -> None:
    lines = read_lines([b'{"text": "fine"}', line])
    assert next(lines).text == "fine"
    with pytest.raises(LineRefused) as refused:
        next(lines)
    assert str(refused.value).startswith(said)
    assert "hidden" not in str(refused.value)


@pytest.fixture
def _loaded_once(analyzer: Analyzer, monkeypatch: pytest.MonkeyPatch) -> None:
    for command in ("pii_detect", "pii_evaluate"):
        monkeypatch.setattr(f"compliance.pii.management.commands.{command}.Analyzer", lambda: analyzer)


@pytest.mark.usefixtures("_loaded_once")
def test_detect_writes_what_it_found_by_what(tmp_path: Path) -> None:
    text = "🙂 card 4111 1111 1111 1111, my name is Jane Doe. " + "Nothing here. " * 300 + "Write to jane@example.com"
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text(json.dumps({"text": text}) + "\n\n")
    call_command("pii_detect", "--input", str(source), "--output", str(target))
    (line,) = map(json.loads, target.read_text().splitlines())
    assert line["text"] == text
    spans: list[dict[str, Any]] = line["spans"]
    assert [(text[span["start"] : span["end"]], span["type"], span["recognizer"]) for span in spans] == [
        ("4111 1111 1111 1111", "CREDIT_CARD", "checksum"),
        ("Jane Doe", "PERSON", "context"),
        ("jane@example.com", "EMAIL_ADDRESS", "pattern"),
    ]


@pytest.mark.usefixtures("_loaded_once")
def test_evaluate_prints_figures_and_no_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gold = tmp_path / "gold.jsonl"
    lines = [{"text": "my name is Jane Doe", "spans": [{"type": "PERSON", "start": 11, "end": 19}]}, {"text": "Hello."}]
    gold.write_text("\n".join(map(json.dumps, lines)))
    call_command("pii_evaluate", str(gold), "--json")
    figures = json.loads(capsys.readouterr().out)
    assert figures["characters"] == {"precision": 1.0, "recall": 1.0, "f1": 1.0, "f2": 1.0, "marked": 7}
    assert (figures["clean"], figures["clean_with_findings"]) == (1, 0)
    call_command("pii_evaluate", str(gold))
    assert "Jane" not in capsys.readouterr().out


def test_a_broken_file_is_one_line(tmp_path: Path) -> None:
    gold = tmp_path / "gold.jsonl"
    gold.write_text("{")
    with pytest.raises(CommandError, match="Line 1 is not JSON"):
        call_command("pii_evaluate", str(gold))

"""The recognizers: what they find, with less of the model than it offers, and without a network."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest
import spacy
from hypothesis import assume, given
from hypothesis import strategies as st

from compliance.pii.analyzer import DISABLED, ENTITIES, MODEL, NAMED_BY_MODEL, PATTERN_SIGN, Analyzer

ASCII = st.characters(codec="ascii")
LABELLED = Path(__file__).resolve().parents[4] / "shared/data/pii/presidio_research_dev.jsonl"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("I am Jane Doe.", [("PERSON", "Jane Doe")]),
        ("Write to jane.doe@example.com.", [("EMAIL_ADDRESS", "jane.doe@example.com")]),
        ("My card is 4111 1111 1111 1111.", [("CREDIT_CARD", "4111 1111 1111 1111")]),
        ("It goes to GB29NWBK60161331926819.", [("IBAN_CODE", "GB29NWBK60161331926819")]),
        ("Call me at 212-555-1234.", [("PHONE_NUMBER", "212-555-1234")]),
        ("The host is 192.168.17.4.", [("IP_ADDRESS", "192.168.17.4")]),
        ("My social security number is 078-05-1121.", [("US_SSN", "078-05-1121")]),
        ("My card is 4111 1111 1111 1112.", []),  # the check digit is wrong
        ("The sky is blue, and Paris is in France.", []),
        ("", []),
    ],
)
def test_it_finds_what_it_looks_for_and_nothing_else(
    analyzer: Analyzer, text: str, found: list[tuple[str, str]]
) -> None:
    (findings,) = analyzer.find([text])
    assert [(finding.entity, text[finding.start : finding.end]) for finding in findings] == found


def test_a_batch_finds_in_each_text_what_it_finds_in_it_alone(analyzer: Analyzer) -> None:
    texts = ["I am Jane Doe.", "", "Write to a.b@example.com, or ask Peter Smith.", "nothing", "Jane Doe " * 30]
    assert analyzer.find(texts) == [analyzer.find([text])[0] for text in texts]


def test_the_parts_of_the_model_that_are_not_loaded_change_no_finding(analyzer: Analyzer) -> None:
    if not LABELLED.exists():
        pytest.skip("the labelled sentences are not here: shared/data/pii/presidio_research_dev.jsonl")
    lines = LABELLED.read_text().splitlines()
    texts = [json.loads(line)["text"] for line in lines[:: len(lines) // 100]]
    whole = spacy.load(MODEL)
    assert set(DISABLED) & set(whole.pipe_names)
    assert not set(DISABLED) & set(analyzer._nlp.pipe_names)

    def named(nlp: spacy.Language) -> list[list[tuple[str, str]]]:
        return [[(entity.label_, entity.text) for entity in document.ents] for document in nlp.pipe(texts)]

    expected = named(whole)
    assert sum(len(entities) for entities in expected) > 50
    assert named(analyzer._nlp) == expected


# What no pattern can begin without is left out, so that all that is drawn goes the short way.
WITHOUT_SIGNS = st.text(st.characters(exclude_categories=["Nd", "Cs"], exclude_characters="@:"), max_size=120)


@given(text=WITHOUT_SIGNS | st.from_regex(r"([A-Za-z]{1,12}[ .,/_-]?){1,12}", fullmatch=True, alphabet=ASCII))
def test_no_pattern_finds_anything_without_a_digit_an_at_or_a_colon(analyzer: Analyzer, text: str) -> None:
    assume(not PATTERN_SIGN.search(text))
    artifacts = analyzer._engine._doc_to_nlp_artifact(analyzer._nlp.make_doc(text), "en")
    by_pattern = [entity for entity in ENTITIES if entity not in NAMED_BY_MODEL]

    assert analyzer._analyzer.analyze(text, language="en", entities=by_pattern, nlp_artifacts=artifacts) == []


def test_nothing_is_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object, **_: object) -> None:
        raise AssertionError("a connection was tried")

    for name in ("connect", "connect_ex", "sendto"):
        monkeypatch.setattr(socket.socket, name, refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)

    (findings,) = Analyzer().find(["Write to jane.doe@mail.example.co.uk or look at www.example.org."])

    assert [finding.entity for finding in findings] == ["EMAIL_ADDRESS"]

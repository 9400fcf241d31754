"""The recognizers: what they find, with less of the model than it offers, and without a network."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest
import spacy

from compliance.pii.analyzer import DISABLED, ENTITIES, MODEL, MORE_ENTITIES, Analyzer

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
        ("My card is 4111 1111 1111 1112.", [("CREDIT_CARD", "4111 1111 1111 1112")]),  # so it is called, mistyped
        ("My parcel is 4111 1111 1111 1112.", []),
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


EVASIONS = [
    ("Card ４１１１ １１１１ １１１１ １１１１", "CREDIT_CARD", "４１１１ １１１１ １１１１ １１１１"),
    ("card 4111\u200b1111\u200b1111\u200b1111 please", "CREDIT_CARD", "4111\u200b1111\u200b1111\u200b1111"),
    ("four one one one one one one one one one one one one one one one", "CREDIT_CARD", None),
    ("it is 4111.1111.1111.1111 ok", "CREDIT_CARD", "4111.1111.1111.1111"),
    ("write to jаne@ехаmple.com", "EMAIL_ADDRESS", "jаne@ехаmple.com"),
    ("jane (at) example (dot) com", "EMAIL_ADDRESS", None),
    ("G B 2 9 N W B K 6 0 1 6 1 3 3 1 9 2 6 8 1 9", "IBAN_CODE", None),
    ("ssn 078\u201105\u20111121", "US_SSN", "078\u201105\u20111121"),
]


@pytest.mark.parametrize(("text", "entity", "value"), EVASIONS)
def test_another_way_of_writing_it_hides_nothing(analyzer: Analyzer, text: str, entity: str, value: str | None) -> None:
    (findings,) = analyzer.find([text])
    assert [(one.entity, text[one.start : one.end]) for one in findings] == [(entity, value or text)]


def test_a_name_is_found_wherever_it_stands_again(analyzer: Analyzer) -> None:
    text = "my name is borna jerković but everyone calls me borna, and borna is what i write"
    (findings,) = analyzer.find([text])
    assert [text[one.start : one.end] for one in findings] == ["borna jerković", "borna", "borna"]


def test_the_right_type_wins_and_no_part_of_the_other_is_left(analyzer: Analyzer) -> None:
    text = "Ship it to 12 Long Street, Springfield 4111 1111 1111 1111."
    (findings,) = analyzer.find([text])
    assert [(one.entity, text[one.start : one.end]) for one in findings] == [
        ("STREET_ADDRESS", "12 Long Street, Springfield"),
        ("CREDIT_CARD", "4111 1111 1111 1111"),
    ]


def test_every_type_that_is_asked_for_is_somebodys(analyzer: Analyzer) -> None:
    assert set(analyzer._analyzer.get_supported_entities("en")) >= {*ENTITIES, *MORE_ENTITIES} - {"GPE"}


def test_nothing_is_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object, **_: object) -> None:
        raise AssertionError("a connection was tried")

    for name in ("connect", "connect_ex", "sendto"):
        monkeypatch.setattr(socket.socket, name, refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)

    (findings,) = Analyzer().find(["Write to jane.doe@mail.example.co.uk or look at www.example.org."])

    assert [finding.entity for finding in findings] == ["EMAIL_ADDRESS"]

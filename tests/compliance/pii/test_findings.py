"""Findings: what overlaps is decided once, and what is masked is gone."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from compliance.pii.findings import Finding, count, mask, trimmed, without_overlaps

TEXT = "".join(chr(0x4E00 + index) for index in range(60))  # every character once


@st.composite
def findings_in_text(draw: st.DrawFn) -> list[Finding]:
    starts = draw(st.lists(st.integers(0, len(TEXT) - 1), max_size=12))
    return [
        Finding(
            start,
            draw(st.integers(start + 1, len(TEXT))),
            draw(st.sampled_from(["PERSON", "PHONE_NUMBER", "US_SSN"])),
            draw(st.sampled_from([0.4, 0.85, 1.0])),
        )
        for start in starts
    ]


@given(findings_in_text())
def test_what_is_kept_overlaps_nowhere_and_lies_in_order(findings: list[Finding]) -> None:
    kept = without_overlaps(findings)

    assert all(first.end <= second.start for first, second in pairwise(kept))


@given(findings_in_text())
def test_each_character_goes_to_the_surest_that_found_it_and_none_is_lost(findings: list[Finding]) -> None:
    kept = without_overlaps(findings)

    for at in range(len(TEXT)):
        found = [finding for finding in findings if finding.start <= at < finding.end]
        owners = [finding for finding in kept if finding.start <= at < finding.end]
        assert len(owners) == bool(found)
        if found:
            assert owners[0].score == max(finding.score for finding in found)


def test_what_reaches_beyond_a_surer_finding_stays_its_own() -> None:
    card, line = Finding(5, 9, "CREDIT_CARD", 1.0), Finding(0, 15, "STREET_ADDRESS", 0.85)
    assert without_overlaps([line, card]) == [
        Finding(0, 5, "STREET_ADDRESS", 0.85),
        card,
        Finding(9, 15, "STREET_ADDRESS", 0.85),
    ]


def test_edges_that_are_no_part_of_a_value_go() -> None:
    found = [Finding(0, 6, "PERSON", 0.5), Finding(6, 8, "PERSON", 0.5)]
    assert trimmed(" Jane, .", found) == [Finding(1, 5, "PERSON", 0.5)]


@given(findings_in_text(), st.randoms())
def test_the_order_in_which_findings_come_changes_nothing(findings: list[Finding], rng: object) -> None:
    shuffled = list(findings)
    rng.shuffle(shuffled)  # type: ignore[attr-defined]
    assert without_overlaps(shuffled) == without_overlaps(findings)


@given(findings_in_text())
def test_masking_removes_the_found_characters_and_no_other(findings: list[Finding]) -> None:
    kept = without_overlaps(findings)
    found = {character for finding in kept for character in TEXT[finding.start : finding.end]}

    masked = mask(TEXT, findings)

    assert [character for character in masked if character >= "\u4e00"] == [c for c in TEXT if c not in found]
    assert masked.count("<") == len(kept)


def test_a_mask_names_the_entity_in_its_place() -> None:
    findings = [Finding(22, 26, "PERSON", 0.85), Finding(6, 13, "EMAIL_ADDRESS", 1.0)]
    assert mask("write a@b.com, or ask Jane.", findings) == "write <EMAIL_ADDRESS>, or ask <PERSON>."
    assert mask("nothing here", []) == "nothing here"


def test_a_count_says_how_many_and_not_what() -> None:
    findings = [Finding(0, 4, "PERSON", 0.8), Finding(9, 12, "PERSON", 0.8), Finding(20, 30, "US_SSN", 0.5)]
    assert count(findings) == {"PERSON": 2, "US_SSN": 1}

"""Findings: what overlaps is decided once, and what is masked is gone."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from compliance.pii.findings import Finding, count, mask, without_overlaps

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
    assert set(kept) <= set(findings)


@given(findings_in_text())
def test_nothing_is_dropped_but_for_something_surer_or_longer_in_its_place(findings: list[Finding]) -> None:
    kept = without_overlaps(findings)

    for dropped in set(findings) - set(kept):
        rivals = [k for k in kept if k.start < dropped.end and dropped.start < k.end]
        best = max((rival.score, rival.end - rival.start) for rival in rivals)
        assert best >= (dropped.score, dropped.end - dropped.start)


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

"""Findings, and what masking does with them."""

from __future__ import annotations

from bisect import bisect, bisect_left, insort
from collections import Counter
from collections.abc import Iterable, Sequence

from msgspec import Struct

EDGES = " \t\r\n,;:.!?\"'“”‘’«»"


class Finding(Struct, frozen=True, order=True):
    """One detected piece of personal data: characters `start` to `end` of the text, and how sure (0 to 1)."""

    start: int
    end: int
    entity: str
    score: float


class InspectionUnavailable(Exception):
    """The text was not inspected. It must not go on as if it had been."""


def without_overlaps(findings: Iterable[Finding]) -> list[Finding]:
    """Of findings that overlap the surest stays, then the longest, then the first: in order of their place.

    What another one covers beyond it stays as that one's: no part of what was found is left unmasked.
    """
    kept: list[Finding] = []
    for finding in sorted(findings, key=lambda f: (-f.score, f.start - f.end, f.start, f.entity)):
        for start, end in _gaps(kept, finding):
            insort(kept, finding if (start, end) == (finding.start, finding.end) else _part(finding, start, end))
    return kept


def _gaps(kept: Sequence[Finding], finding: Finding) -> list[tuple[int, int]]:
    """The parts of a finding that none of the kept ones covers; those are in order, and overlap nowhere."""
    at, gaps = finding.start, []
    first = bisect(kept, finding.start, key=_start)
    for other in kept[max(0, first - 1) : bisect_left(kept, finding.end, key=_start)]:
        if other.start > at:
            gaps.append((at, other.start))
        at = max(at, other.end)
    return [*gaps, (at, finding.end)] if at < finding.end else gaps


def _start(finding: Finding) -> int:
    return finding.start


def _part(finding: Finding, start: int, end: int) -> Finding:
    return Finding(start, end, finding.entity, finding.score)


def trimmed(text: str, findings: Iterable[Finding]) -> list[Finding]:
    """Without the spaces and marks at their ends, and without those that hold no letter and no digit."""
    kept = []
    for finding in findings:
        value = text[finding.start : finding.end]
        inner = value.strip(EDGES)
        if any(character.isalnum() for character in inner):
            start = finding.start + value.index(inner)
            kept.append(_part(finding, start, start + len(inner)))
    return kept


def mask(text: str, findings: Sequence[Finding]) -> str:
    """`text` with each finding replaced by its entity type in angle brackets."""
    parts, at = [], 0
    for finding in without_overlaps(findings):
        parts += [text[at : finding.start], f"<{finding.entity}>"]
        at = finding.end
    return "".join([*parts, text[at:]])


def count(findings: Iterable[Finding]) -> dict[str, int]:
    """How many of each entity type: what may be said of findings without saying what they are."""
    return dict(sorted(Counter(finding.entity for finding in findings).items()))

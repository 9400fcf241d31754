"""Findings, and what masking does with them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from msgspec import Struct


class Finding(Struct, frozen=True, order=True):
    """One detected piece of personal data: characters `start` to `end` of the text, and how sure (0 to 1)."""

    start: int
    end: int
    entity: str
    score: float


class InspectionUnavailable(Exception):
    """The text was not inspected. It must not go on as if it had been."""


def without_overlaps(findings: Iterable[Finding]) -> list[Finding]:
    """Of findings that overlap the surest stays, then the longest, then the first: in order of their place."""
    kept: list[Finding] = []
    for finding in sorted(findings, key=lambda f: (-f.score, f.start - f.end, f.start, f.entity)):
        if all(finding.end <= other.start or finding.start >= other.end for other in kept):
            kept.append(finding)
    return sorted(kept)


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

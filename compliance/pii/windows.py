"""Long texts in pieces: what a recognizer needs grows faster than the text, and others wait for the same detector."""

from __future__ import annotations

from collections.abc import Iterator

from compliance.pii.findings import Finding, without_overlaps

WINDOW = 2_000
# Longer than anything that is looked for, so that each finding lies whole in one window.
OVERLAP = 200


def windows(text: str) -> Iterator[tuple[int, str]]:
    """Overlapping pieces of at most `WINDOW` characters with their places, cut at white space where there is some."""
    start = 0
    while start + WINDOW < len(text):
        end = start + WINDOW
        cut = next((at for at in range(end, end - OVERLAP, -1) if text[at].isspace()), end)
        yield start, text[start:cut]
        begin = cut - OVERLAP
        start = next((at + 1 for at in range(begin, begin - OVERLAP, -1) if text[at].isspace()), begin)
    yield start, text[start:]


def moved(findings: list[Finding], offset: int) -> list[Finding]:
    """The findings of a window as those of its text."""
    return [Finding(f.start + offset, f.end + offset, f.entity, f.score) for f in findings]


def merged(findings: list[Finding]) -> list[Finding]:
    """What several windows found, each piece once: where two overlap, the surer and then the longer stays."""
    return without_overlaps(findings)

"""Findings of a text of any length, in this process: for measurements and files, where nobody waits."""

from __future__ import annotations

from collections.abc import Iterable

from compliance.pii.analyzer import Analyzer
from compliance.pii.findings import Finding
from compliance.pii.windows import WINDOW, merged, moved, windows


def find_in(analyzer: Analyzer, text: str, entities: Iterable[str]) -> list[Finding]:
    """The same as a detector's (compliance.pii.inspector) for the same text."""
    wanted = tuple(entities)
    if len(text) <= WINDOW:
        return analyzer.find([text], wanted)[0]
    pieces = list(windows(text))
    found = analyzer.find([piece for _, piece in pieces], wanted)
    return merged([one for (offset, _), findings in zip(pieces, found, strict=True) for one in moved(findings, offset)])

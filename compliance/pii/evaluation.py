"""How well personal data is found, against texts in which people have marked it.

Recall counts twice as much as precision in F2 (van Rijsbergen, 1979): what is missed is shown to somebody.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from compliance.pii.findings import Finding
from compliance.pii.labelled import Labelled, Span

NOTHING = "nothing"


@dataclass(frozen=True)
class Score:
    """Of what was found the share that is right, of what is there the share that was found; 1 where nothing is."""

    right: int = 0
    wrong: int = 0
    missed: int = 0

    @property
    def precision(self) -> float:
        return self.right / (self.right + self.wrong) if self.right + self.wrong else 1.0

    @property
    def recall(self) -> float:
        return self.right / (self.right + self.missed) if self.right + self.missed else 1.0

    def f(self, beta: float) -> float:
        precision, recall = self.precision, self.recall
        together = beta * beta * precision + recall
        return (1 + beta * beta) * precision * recall / together if together else 0.0


@dataclass
class Report:
    """`characters` goes by characters but white space, whatever they were called; `types` by whole spans.

    `confusion` counts what marked spans were found as; `worst` are the lines of which most was missed, with how many
    characters. Nothing in it is a value.
    """

    characters: Score = field(default_factory=Score)
    types: dict[str, Score] = field(default_factory=dict)
    confusion: Counter[tuple[str, str]] = field(default_factory=Counter)
    worst: list[tuple[int, int]] = field(default_factory=list)
    texts: int = 0
    clean: int = 0
    clean_with_findings: int = 0


def evaluate(
    texts: Iterable[Labelled], found: Iterable[Sequence[Finding]], neutral: Collection[str] = (), worst: int = 10
) -> Report:
    """`found` has the findings of each text. What is marked as `neutral` counts neither way."""
    report = Report()
    for number, (labelled, findings) in enumerate(zip(texts, found, strict=True), start=1):
        report.texts += 1
        marked = [span for span in labelled.spans if span.type not in neutral]
        if not labelled.spans:
            report.clean += 1
            report.clean_with_findings += bool(findings)
        missed = _count_characters(report, labelled, marked, findings, neutral)
        _count_spans(report, labelled, marked, findings, neutral)
        if missed:
            report.worst.append((number, missed))
    report.worst = sorted(report.worst, key=lambda line: (-line[1], line[0]))[:worst]
    return report


def _count_characters(
    report: Report, labelled: Labelled, marked: Sequence[Span], findings: Sequence[Finding], neutral: Collection[str]
) -> int:
    there = _places(marked)
    ignored = _places(span for span in labelled.spans if span.type in neutral) - there
    seen = {at for finding in findings for at in range(finding.start, finding.end)} - ignored
    ink = {at for at, character in enumerate(labelled.text) if not character.isspace()}
    before = report.characters
    missed = len((there - seen) & ink)
    report.characters = Score(
        before.right + len(there & seen & ink), before.wrong + len((seen - there) & ink), before.missed + missed
    )
    return missed


def _places(spans: Iterable[Span]) -> set[int]:
    return {at for span in spans for at in range(span.start, span.end)}


def _count_spans(
    report: Report, labelled: Labelled, marked: Sequence[Span], findings: Sequence[Finding], neutral: Collection[str]
) -> None:
    """A marked span is found where a finding covers half of it or more; a finding that touches nothing is wrong."""
    for span in marked:
        best = max(findings, key=lambda finding: _shared(span, finding), default=None)
        if best is not None and 2 * _shared(span, best) >= span.end - span.start:
            _add(report, span.type, right=1)
            report.confusion[span.type, best.entity] += 1
        else:
            _add(report, span.type, missed=1)
            report.confusion[span.type, NOTHING] += 1
    for finding in findings:
        if not any(_shared(span, finding) for span in labelled.spans):
            _add(report, finding.entity, wrong=1)
            report.confusion[NOTHING, finding.entity] += 1


def _shared(span: Span, finding: Finding) -> int:
    return max(0, min(span.end, finding.end) - max(span.start, finding.start))


def _add(report: Report, type_: str, *, right: int = 0, wrong: int = 0, missed: int = 0) -> None:
    before = report.types.get(type_, Score())
    report.types[type_] = Score(before.right + right, before.wrong + wrong, before.missed + missed)

"""What a recognizer is: text in, findings out, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from compliance.pii.findings import Finding

# How sure a finding is, by what speaks for it. A checksum that fits beats words around it, which beat the shape alone.
CHECKSUM = 1.0
IN_CONTEXT = 0.85
SHAPE = 0.6
# Shapes that hardly anything else has.
SURE_SHAPE = 0.95
# Characters before a value in which a word that names it counts, and after it.
BEFORE, AFTER = 60, 25
# In which a word that says that it is something else does.
RIGHT_BEFORE = 20


EVIDENCE = {CHECKSUM: "checksum", SURE_SHAPE: "pattern", IN_CONTEXT: "context", SHAPE: "pattern"}


def evidence(finding: Finding) -> str:
    """What a finding rests on: its score says so."""
    return EVIDENCE.get(finding.score, "model")


class Recognizer(Protocol):
    """Finds values of some entity types. `text` is any string; the places are characters of it."""

    @property
    def entities(self) -> frozenset[str]: ...

    def find(self, text: str) -> Iterable[Finding]: ...


def words(text: str) -> frozenset[str]:
    """The words of a text, as a set."""
    return frozenset(text.split())


@dataclass(frozen=True)
class Context:
    """Words that name what stands beside them, between commas: as whole words and in any case."""

    words: str
    _pattern: re.Pattern[str] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        # The longest first, so that "account number" is not read as "account".
        each = sorted((" ".join(word.split()) for word in self.words.split(",")), key=len, reverse=True)
        alternatives = "|".join(re.escape(word).replace("\\ ", r"\s+") for word in each)
        object.__setattr__(self, "_pattern", re.compile(rf"(?<![^\W_])(?:{alternatives})(?![^\W\d_])", re.IGNORECASE))

    def precedes(self, text: str, start: int) -> bool:
        """Whether one of the words stands right before the value."""
        return bool(self._pattern.search(text, max(0, start - RIGHT_BEFORE), start))

    def names(self, text: str, start: int, end: int) -> bool:
        """Whether one of the words stands shortly before the value, or right after it."""
        return bool(
            self._pattern.search(text, max(0, start - BEFORE), start) or self._pattern.search(text, end, end + AFTER)
        )


def matches(pattern: re.Pattern[str], text: str) -> Iterator[tuple[int, int, str]]:
    """Place and value of each match: of the group `value` where the pattern has one."""
    group = "value" if "value" in pattern.groupindex else 0
    for match in pattern.finditer(text):
        yield match.start(group), match.end(group), match.group(group)

"""A recognizer as data: a shape, a check, and the words beside which a value counts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from compliance.pii.findings import Finding
from compliance.pii.recognizers.base import CHECKSUM, IN_CONTEXT, Context, matches

DIGIT = re.compile(r"\d")


@dataclass(frozen=True)
class Shape:
    """Values of one entity type that `pattern` describes; its group `value`, where it has one, is the value.

    A value that passes `check` is sure. One without a check, or that fails it, counts beside the words of `context`,
    or with the score `alone` by itself. In a text without a digit there is none, unless `digits` says otherwise.
    """

    entity: str
    pattern: re.Pattern[str]
    check: Callable[[str], bool] | None = None
    context: Context | None = None
    alone: float = 0.0
    strict: bool = False
    excludes: Context | None = None
    digits: bool = True

    @property
    def entities(self) -> frozenset[str]:
        return frozenset({self.entity})

    def find(self, text: str) -> Iterator[Finding]:
        if self.digits and not DIGIT.search(text):
            return
        for start, end, value in matches(self.pattern, text):
            score = self._score(text, start, end, value)
            if score:
                yield Finding(start, end, self.entity, score)

    def _score(self, text: str, start: int, end: int, value: str) -> float:
        passes = self.check is not None and self.check(value)
        if self.strict and not passes:
            return 0.0
        if self.excludes is not None and self.excludes.precedes(text, start):
            return 0.0
        named = self.context is not None and self.context.names(text, start, end)
        if passes and (named or self.alone):
            return CHECKSUM
        if named:
            return IN_CONTEXT
        return self.alone if self.check is None else 0.0

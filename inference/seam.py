"""The seam between what an answer has said and what another attempt goes on with: nothing twice, nothing missing."""

from __future__ import annotations


class AnswersDiffer(Exception):
    """An attempt that makes the answer anew says something else than what the user has read."""


class Seam:
    """Joins an attempt's text to `said`, which went out before it.

    An engine that can be told how the answer begins goes on after `told`: what was said without the white space at
    its end, since chat templates cut that off. One that cannot says everything again, and is held to it.
    """

    def __init__(self, said: str, *, repeats: bool) -> None:
        self.told = "" if repeats else said.rstrip()
        self._repeats = repeats
        self._to_drop = said[len(self.told) :]

    def join(self, text: str) -> str:
        """What of `text` is new. Raises `AnswersDiffer`."""
        if not self._to_drop:
            return text
        same = _same(self._to_drop, text)
        if same < min(len(self._to_drop), len(text)):
            if self._repeats:
                raise AnswersDiffer
            self._to_drop = ""
        else:
            self._to_drop = self._to_drop[same:]
        return text[same:]

    def end(self) -> None:
        """The attempt has said everything. Raises `AnswersDiffer` where that is less than was said before."""
        if self._repeats and self._to_drop:
            raise AnswersDiffer


def _same(one: str, other: str) -> int:
    """How many characters they begin with alike."""
    for index, (left, right) in enumerate(zip(one, other, strict=False)):
        if left != right:
            return index
    return min(len(one), len(other))

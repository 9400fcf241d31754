"""Text as detection reads it: without the ways of writing by which a value is the same to people and not to patterns.

Each character of it knows which character of the text it came from, so that what is found is masked where it stands.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from functools import lru_cache

# Letters that look like Latin ones (Unicode Technical Standard 39, confusables): read as those beside Latin ones.
LOOK_ALIKES = dict(
    zip(
        "АВЕКМНОРСТУХавеикмнорстухіјѕԁԛԝһӏ" + "ΑΒΕΖΗΙΚΜΝΟΡΤΥΧαικνορτυχ",
        "ABEKMHOPCTYXabeukmhopctyxijsdqwhl" + "ABEZHIKMNOPTYXaikvoptux",
        strict=True,
    )
)
# Read as digits among digits.
DIGIT_LIKE = {"O": "0", "o": "0", "l": "1", "I": "1", "|": "1", "S": "5", "B": "8"}
AMONG_DIGITS = re.compile(r"(?<=\d)[OolI|SB](?=[\s.\-/]?\d)")
SPELLED = {
    **dict(zip("zero one two three four five six seven eight nine".split(), "0123456789", strict=True)),  # noqa: SIM905
    "oh": "0",
    "nought": "0",
}
_DIGIT_WORD = "|".join(SPELLED)
# As many digits in a row as no sentence counts.
SPELLED_NUMBER = re.compile(
    rf"(?<![^\W_])(?:{_DIGIT_WORD})(?:[\s,.\-]{{1,3}}(?:{_DIGIT_WORD})(?![^\W_])){{5,}}", re.IGNORECASE
)
MIXED_WORD = re.compile(r"[^\W_]+")


Span = tuple[int, int]


@dataclass(frozen=True)
class Normal:
    """`spans` has for each character of `text` the place that it came from; None where they are the same."""

    text: str
    spans: list[Span] | None

    def back(self, start: int, end: int) -> Span:
        """The place in the original of the characters from `start` to `end`, of which there is at least one."""
        if self.spans is None:
            return start, end
        return self.spans[start][0], self.spans[end - 1][1]


def normalise(text: str) -> Normal:
    """`text` in compatibility form (Unicode Standard Annex 15, NFKC), without what cannot be seen."""
    plain, spans = (text, None) if text.isascii() else _visible(text)
    plain = AMONG_DIGITS.sub(lambda match: DIGIT_LIKE[match.group()], plain)
    if SPELLED_NUMBER.search(plain):
        plain, spans = _despelled(plain, spans if spans is not None else [(at, at + 1) for at in range(len(plain))])
    return Normal(plain, spans)


def _visible(text: str) -> tuple[str, list[Span]]:
    characters: list[str] = []
    spans: list[Span] = []
    for at, character in enumerate(text):
        for one in _plain(character):
            characters.append(one)
            spans.append((at, at + 1))
    return MIXED_WORD.sub(_unmixed, "".join(characters)), spans


@lru_cache(maxsize=8192)
def _plain(character: str) -> str:
    """What is read in its place: nothing, one character or several."""
    if character.isascii():
        return character
    category = unicodedata.category(character)
    # U+FE00 to U+FE0F and U+E0100 to U+E01EF select a variant of what stands before them.
    if category in ("Cf", "Cc") or 0xFE00 <= ord(character) <= 0xFE0F or 0xE0100 <= ord(character) <= 0xE01EF:
        return "\n" if character == "\x85" else ""
    if category == "Nd":
        return str(unicodedata.digit(character))
    if category == "Zs":
        return " "
    if category == "Pd" or character in "−‐⁃":
        return "-"
    return unicodedata.normalize("NFKC", character)


def _unmixed(match: re.Match[str]) -> str:
    """A word with Latin letters or digits in it, all in Latin letters: it has as many of them as before."""
    word = match.group()
    if word.isascii() or not re.search(r"[A-Za-z0-9]", word):
        return word
    return "".join(LOOK_ALIKES.get(character, character) for character in word)


def _despelled(text: str, spans: list[Span]) -> tuple[str, list[Span]]:
    """Digits in the place of their names, where many stand in a row."""
    characters: list[str] = []
    after: list[Span] = []
    at = 0
    for match in SPELLED_NUMBER.finditer(text):
        characters += text[at : match.start()]
        after += spans[at : match.start()]
        for word in re.compile(_DIGIT_WORD, re.IGNORECASE).finditer(text, match.start(), match.end()):
            characters.append(SPELLED[word.group().lower()])
            after.append((spans[word.start()][0], spans[word.end() - 1][1]))
        at = match.end()
    return "".join([*characters, *text[at:]]), [*after, *spans[at:]]

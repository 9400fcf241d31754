"""Inspection of an answer while it streams: text is released as soon as nothing in it can still become a finding.

The decision is made word by word, and only when the next character is known, so that the output is the same
however the stream is cut. Words that could be part of personal data (with a capital, a digit or an @) are held until
a word follows that could not; then the run is inspected, with what stands before it as context, and released masked.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from compliance.pii.findings import Finding, mask, without_overlaps
from compliance.pii.recognizers.addresses import JOINING
from compliance.pii.recognizers.names import EXPECTS_NAME, NOT_A_NAME, PARTICLES, mentions, name_parts

Find = Callable[[str], Awaitable[list[Finding]]]

# A word is complete when a character after it is known. The length bounds what one endless word can hold back.
MAX_WORD = 256
WORD = re.compile(rf"\s*(?:\S{{{MAX_WORD}}}(?=.)|\S{{1,{MAX_WORD}}}(?=\s))", re.DOTALL)
# A run longer than this is released but for its last words, so that an answer in capitals streams too.
MAX_RUN = 512
RUN_TAIL = 96
CONTEXT = 120
# Words that begin sentences and are no names ("will" and "may" are). Without them each sentence would wait for a
# detector.
COMMON = frozenset(
    """
    a about after all also although an and another any are as at be because before both but by can could did do does
    each either every few finally first for from furthermore given had has have he hence her here hers his how
    however i if in indeed instead is it its just let like many maybe meanwhile more moreover most much my
    neither next no none nor not note nothing now of often on once one only or other our overall perhaps please
    rather second several she should similarly since so some sometimes soon still such sure that the their them then
    there therefore these they third this those though through thus to today together too two under unless unlike
    until usually very was we well were what when where whether which while who why with without would yes yet you
    your
    """.split()  # noqa: SIM905 - a list of words reads as one
)
_TRIM = "\"'([{<*_`#.,;:!?)]}>-–—…“”‘’"


def could_be_personal(word: str) -> bool:
    """Whether `word` could be part of something that a recognizer finds."""
    if "@" in word or any(character.isdigit() for character in word):
        return True
    bare = word.strip().strip(_TRIM)
    if not any(character.isupper() for character in bare):
        return False
    return bare.replace("’", "'").split("'")[0].lower() not in COMMON


def could_join(word: str) -> bool:
    """Whether `word` could stand inside personal data that began before it: "(212) - 555", "van der Berg"."""
    return word.strip() in PARTICLES | JOINING or not any(character.isalnum() for character in word)


@dataclass
class AnswerRelease:
    """Feed it the answer's pieces; it gives back what may be released. Raises `InspectionUnavailable`."""

    find: Find
    findings: list[Finding] = field(default_factory=list)
    _unread: str = ""
    _held: str = ""
    _context: str = ""
    _released: int = 0
    _names: set[str] = field(default_factory=set)

    async def feed(self, text: str) -> str:
        """What may be released now that `text` is known, possibly nothing."""
        self._unread += text
        out: list[str] = []
        at = 0
        while found := WORD.match(self._unread, at):
            at = found.end()
            out.append(await self._take(found.group()))
        self._unread = self._unread[at:]
        return "".join(out)

    async def finish(self) -> str:
        """The rest, when the answer has ended."""
        rest, self._unread = self._unread, ""
        word = await self._take(rest) if rest else ""
        return word + await self._release_held("")

    async def _take(self, word: str) -> str:
        if could_be_personal(word) or (self._held and could_join(word)) or self._could_be_name(word):
            self._held += word
            return await self._shorten_run() if len(self._held) > MAX_RUN else ""
        if self._held:
            return await self._release_held(word)
        self._note_released(word)
        return word

    def _could_be_name(self, word: str) -> bool:
        """Names in small letters: one that was introduced just now, or that was masked before."""
        bare = word.strip().strip(_TRIM)
        if not bare or bare.lower() in NOT_A_NAME:
            return False
        before = (self._context + self._held)[-CONTEXT:]
        return bare in self._names or bool(EXPECTS_NAME.search(before + word[: len(word) - len(word.lstrip())]))

    async def _release_held(self, follower: str) -> str:
        """The held run, inspected and masked, and then `follower`, which is part of the context."""
        if not self._held:
            return follower
        findings = await self._find_in_run(self._held + follower)
        text = self._held + follower
        self._held = ""
        return self._mask_and_note(text, findings)

    async def _shorten_run(self) -> str:
        """Release the run's first part, up to a word's end that no finding crosses."""
        findings = await self._find_in_run(self._held)
        cut = len(self._held) - RUN_TAIL
        for finding in findings:
            if finding.start < cut < finding.end:
                cut = finding.start
        if cut == 0:  # one finding fills the run so far: it goes, and what follows it stays
            cut = next(finding.end for finding in findings if finding.start == 0)
        head, self._held = self._held[:cut], self._held[cut:]
        return self._mask_and_note(head, [finding for finding in findings if finding.end <= cut])

    async def _find_in_run(self, run: str) -> list[Finding]:
        """Findings in `run`, in its own coordinates; one that began in the context keeps the part inside."""
        before = len(self._context)
        text = self._context + run
        found = without_overlaps([*await self.find(text), *mentions(text, self._names)])
        # White space between the two parts belongs to neither.
        first = before + len(run) - len(run.lstrip())
        inside = []
        for finding in found:
            start = finding.start if finding.start >= before else first
            if start < finding.end and finding.end > before:
                inside.append(Finding(start - before, finding.end - before, finding.entity, finding.score))
        return without_overlaps(inside)

    def _mask_and_note(self, text: str, findings: list[Finding]) -> str:
        self._names |= name_parts(text, findings)
        self.findings += [
            Finding(f.start + self._released, f.end + self._released, f.entity, f.score) for f in findings
        ]
        self._note_released(text)
        return mask(text, findings)

    def _note_released(self, text: str) -> None:
        self._released += len(text)
        self._context = (self._context + text)[-CONTEXT:]

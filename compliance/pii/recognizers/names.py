"""Names of people, where the words around them say so: in any script and in small letters too."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from compliance.pii.findings import Finding
from compliance.pii.recognizers.base import IN_CONTEXT, words

ENTITY = "PERSON"
AGAIN = 0.5
# A text with more names than this is a list of them, each found by itself.
MOST_PARTS = 100
NAME_PART = re.compile(r"[^\W\d_]{3,}(?:['’-][^\W\d_]+)*")
# Letters and the marks that names have. A full stop belongs to an initial; after a word it ends a sentence.
WORD = r"[^\W\d_](?:[^\W\d_]|['’‘`\-](?=[^\W\d_])|\u200d|[\u0300-\u036f])*"
PART = rf"(?:[^\W\d_]\.|{WORD})"
NAME = rf"(?P<value>{PART}(?:[ \t]{{1,2}}{PART}){{0,4}})"
TITLES = "mr|mrs|ms|miss|mx|dr|prof|professor|herr|frau|mme|monsieur|señora?|sr|sra|signora?"
# After these a name follows, however it is written.
OWNERS = "my|his|her|their|our|whose|the (?:customer|client|patient|user|caller|employee|account ?holder)(?:'s)?"
FIELDS = "name|surname|card ?holder|account holder|beneficiary|recipient|passenger|patient|attn|signed"
INTRODUCTION = (
    rf"\b(?:(?:{OWNERS}) (?:full |first |last |legal |maiden |sur)?name(?:'s| is| was|:)"
    r"|(?:is|am|are|was) (?:called|named)"
    r"|(?:i am|i'm|this is) (?=[^\W\d_]+(?: [^\W\d_]+)? (?:from|and i|speaking|calling|writing|here))"
    rf"|(?:{FIELDS})\s?[:=]|c/o|(?:everyone|they|people|friends) calls? me|known as)\s{{1,3}}"
)
SAYS_NAME = re.compile(INTRODUCTION + NAME, re.IGNORECASE)
EXPECTS_NAME = re.compile(rf"{INTRODUCTION}(?:{PART}[ \t]{{1,2}}){{0,4}}\Z", re.IGNORECASE)
# After these only what is written as a name is one: with capitals, or in a script that has none.
CUES = (
    "dear|hi|hello|hey|regards|sincerely|cheers|thanks|yours|contact|ask for|spoke to|spoke with|speak to|speak with"
    "|talk to|talked to|follow up with|met with|written by|signed by|assigned to|on behalf of|i'm|i am|this is"
    "|calls? me|named?|called"
)
WRITTEN = r"(?:[^\W\d_a-z]\.|[^\W\d_a-z][\w'’-]*)"
PARTICLE = rf"(?:van|von|de|der|den|del|di|da|la|le|bin|al|el|ten|ter)(?=[ \t]{WRITTEN})"
CALLS_BY_NAME = re.compile(
    rf"\b(?i:{CUES})[,!]?[ \t\n]{{1,2}}(?!(?i:{TITLES})\b)(?P<value>{WRITTEN}(?:[ \t](?:{WRITTEN}|{PARTICLE})){{1,4}})"
)
TITLED = re.compile(rf"(?<![^\W_])(?i:{TITLES})\.?[ \t](?P<value>{WRITTEN}(?:[ \t]{WRITTEN}){{0,3}})")
# An initial between two names is written nowhere else.
WITH_INITIAL = re.compile(r"(?<![^\W_])(?P<value>[^\W\d_a-z][^\W\d_]+ [^\W\d_a-z]\.? [^\W\d_a-z][\w'’-]+)")
# Small words inside names. They begin no name, and end none either.
PARTICLES = words("al ap bin da de del della den der di dos du el ibn la le ten ter van vom von zu zur")
NOT_A_NAME = words(
    """
    a an the and or but is am are was were be been not no yes i you he she it we they my your his her its our their
    this that these those there here what who whom which when where why how can could would will shall should may
    might must do does did have has had in on at to of for from with by as if so than then too very just also only
    please thanks thank sorry everyone everybody nobody anyone someone team support sir madam all both required
    invalid missing unknown none null blank empty correct wrong misspelled spelled listed written important
    confidential looking trying calling writing interested new old happy glad sure afraid going having getting
    unable able
    """
)


class NameRecognizer:
    """Names that the text introduces, and every further mention of a part of them."""

    entities = frozenset({ENTITY})

    def find(self, text: str) -> Iterator[Finding]:
        for pattern in (SAYS_NAME, TITLED, CALLS_BY_NAME, WITH_INITIAL):
            for match in pattern.finditer(text):
                start = match.start("value")
                end = start + len(_until_no_name(match.group("value")))
                if end > start:
                    yield Finding(start, end, ENTITY, IN_CONTEXT)


def _until_no_name(value: str) -> str:
    """The name at the beginning of what could be one."""
    end = 0
    for part in re.finditer(r"\S+", value):
        if part.group().lower().strip(".,") in NOT_A_NAME:
            break
        end = part.end()
    return value[:end].rstrip(".") if end and not re.search(r"(?:^|\s)\w\.$", value[:end]) else value[:end]


def name_parts(text: str, findings: Iterable[Finding]) -> set[str]:
    """The words of the names that were found, but for those too short or too common to stand for somebody."""
    return {
        part
        for finding in findings
        if finding.entity == ENTITY
        for part in NAME_PART.findall(text[finding.start : finding.end])
        if part.lower() not in NOT_A_NAME | PARTICLES
    }


def mentions(text: str, parts: Iterable[str]) -> Iterator[Finding]:
    """Where a part of a name stands once more: what is masked in one place is not shown in another."""
    for part in sorted(parts, key=len, reverse=True)[:MOST_PARTS]:
        for match in re.finditer(rf"(?<![\w.@/-]){re.escape(part)}(?![\w@]|[./-]\w)", text):
            yield Finding(match.start(), match.end(), ENTITY, AGAIN)

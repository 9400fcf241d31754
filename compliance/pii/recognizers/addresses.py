"""Postal addresses of several countries, on one line or several: a street, and what belongs to it around it.

An address has no checksum and no fixed form. It is found by an anchor that little else has (a street's word beside a
number, a flat, a post box) and grows from there over what may stand in an address: names, numbers, codes, commas and
line ends, until something comes that may not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from compliance.pii.findings import Finding
from compliance.pii.recognizers.base import IN_CONTEXT, Context, words
from compliance.pii.recognizers.shapes import Shape

ENTITY = "STREET_ADDRESS"

# Words that are a street by themselves, beside a name or a number.
STREET_WORDS = words(
    """
    street st avenue ave av road rd lane ln drive dr boulevard blvd court ct place pl square sq terrace ter crescent
    cres close grove gardens gdns highway hwy parkway pkwy way row mews quay wharf alley esplanade circle cir trail
    trl turnpike route rue chemin impasse quai via viale vicolo corso piazza piazzale largo strada calle avenida
    avda carrera plaza paseo camino carretera rua travessa alameda praça estrada ulica ul ulice aleja trg cesta
    náměstí utca út tér körút strasse straße gasse weg allee platz ring ufer damm straat laan plein gracht kade
    dreef vej gade allé stræde plads gatan gata vägen väg gränd vei veien gate katu tie kuja polku gatvė iela tänav
    prospekt улица ул проспект переулок площадь
    """
)
# Endings of words that are streets, in languages that write them together with their name.
STREET_ENDINGS = (
    *("strasse", "straße", "gasse", "allee", "platz", "weg", "damm", "ufer", "gatan", "vägen", "gränd", "straat"),
    *("laan", "plein", "gracht", "kade", "dreef", "vej", "gade", "allé", "veien", "gata", "katu", "kuja", "polku"),
    *("hove", "steenweg", "singel", "stræde", "väg", "vegur", "gata", "stígur", "braut", "tie", "torget", "torvet"),
)
UNIT_WORDS = words(
    """
    apt apartment suite ste unit flat floor fl room rm bldg building box appartement apto piso depto top stiege
    """
)
# United States military and diplomatic mail (USPS Publication 28, section 238): a unit or a ship, then an office.
MILITARY = re.compile(
    r"(?:\b(?:psc|unit|cmr|box|uss|us[ns][sv])\b[^\n]{0,40}[\n,]?\s*)?"
    r"\b(?:apo|fpo|dpo),?\s+a[aep]\s+\d{5}(?:-\d{4})?\b",
    re.IGNORECASE,
)
CORNER = re.compile(r"\b(?:the )?(?:corner|intersection|junction|crossing) of\s+", re.IGNORECASE)
BOX = re.compile(
    r"\b(?:p\.?\s?o\.?\s?box|post(?:al)? ?box|postbus|postfach|casilla|apartado|boîte postale)\s+\d+", re.I
)
WORD = re.compile(r"[^\W\d_]+(?:['’.-][^\W\d_]+)*\.?")
NUMBER = re.compile(r"#?\d+(?:[-/]\d+)?[A-Za-z]?(?![^\W_])")
TOKEN = re.compile(
    r"(?P<code>(?<![^\W_])(?:[A-Z]{1,2}\d[A-Z\d]? ?\d[A-Z]{2}|[A-Z]\d[A-Z] ?\d[A-Z]\d|\d{4} ?[A-Z]{2})(?![^\W_]))"
    rf"|(?P<word>{WORD.pattern})|(?P<number>{NUMBER.pattern})|(?P<mark>[,#()]|\n[\s>|*?•-]*)|(?P<other>\S)"
)
POSTCODE = re.compile(
    r"(?:\d{4,6}(?:-\d{3,4})?|\d{3} \d{2}|[A-Z]{1,2}\d[A-Z\d]? ?\d[A-Z]{2}|[A-Z]\d[A-Z] ?\d[A-Z]\d|\d{4} ?[A-Z]{2})\Z"
)
# What may stand in lower case inside an address.
JOINING = words(
    """
    de del della dei di da do das dos du des la le les los las el e y i et und van von der den den't 't na nad sur
    of the and bei am im an auf op aan
    """
)
ASKED_FOR = Context(
    """
    address, addresses, live at, lives at, living at, ship to, sent to, deliver to, located at, return to, meet me
    at, meet you at, meeting at, directions to, moved to, mail to, delivered to, send it to, drop off at, drops you
    off at, pick up at, street, corner
    """
)
# These are streets only where a name stands before them: "12 Mill Way", and not "5 minutes drive".
ALSO_OTHERS = words("way drive place court close row st ct pl dr ring top tie út via largo corso grove square")
STRONG_UNITS = words("apt apartment suite ste flat appartement apto")
# Ends a sentence or begins another thought where the whole text is in small letters.
SMALL_TALK = words(
    """
    i you he she it we they my your his her its our their is are was were be been am will would can could should do
    does did have has had for from with without about after before when where which who whom what why how this that
    these those not no yes please thanks thank but or if then than so because while until as can't don't call phone
    mobile fax desk email mail tel card account number
    """
)
MOST_WORDS = 6
MOST_SEGMENTS = 6


# A code by itself, where it is called one.
POSTCODES = Shape(
    ENTITY,
    re.compile(
        r"(?<![^\W_])(?:\d{5}(?:-\d{4})?|[A-Za-z]{1,2}\d[A-Za-z\d]? ?\d[A-Za-z]{2}|\d{4} ?[A-Z]{2}|\d{4})(?![^\W_])"
    ),
    context=Context("zip, zip code, zipcode, postcode, post code, postal code, plz, postleitzahl, code postal"),
)


@dataclass(frozen=True)
class Token:
    start: int
    end: int
    text: str
    kind: str

    @property
    def lower(self) -> str:
        return self.text.lower().rstrip(".")


def tokens(text: str) -> list[Token]:
    """Codes of letters and digits count as numbers, as those of digits do."""
    kinds = {"code": "number"}
    return [
        Token(found.start(), found.end(), found.group(), kinds.get(str(found.lastgroup), str(found.lastgroup)))
        for found in TOKEN.finditer(text)
    ]


class AddressRecognizer:
    """Streets with their house, flats, post boxes, and the place, code and country that belong to them."""

    entities = frozenset({ENTITY})

    def find(self, text: str) -> Iterator[Finding]:
        if not any(character.isdigit() for character in text):
            return
        for match in MILITARY.finditer(text):
            yield Finding(match.start(), match.end(), ENTITY, IN_CONTEXT)
        grown = _Growth(text)
        yield from grown.corners()
        end = 0
        for at in range(len(grown.tokens)):
            token = grown.tokens[at]
            if token.start < end or not grown.is_anchor(at):
                continue
            first, last = grown.left(at), grown.right(at)
            start, end = grown.tokens[first].start, grown.tokens[last].end
            yield Finding(start, end, ENTITY, IN_CONTEXT)


class _Growth:
    """An address within the tokens of a text, from an anchor outwards."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = tokens(text)
        self._small = not any(character.isupper() for character in text)

    def corners(self) -> Iterator[Finding]:
        """Where two streets meet, both of them."""
        for match in CORNER.finditer(self.text):
            first = next((at for at, token in enumerate(self.tokens) if token.start >= match.end()), None)
            if first is not None and self._belongs(first):
                last = self._right_in_segment(first)
                yield Finding(self.tokens[first].start, self.tokens[last].end, ENTITY, IN_CONTEXT)

    def is_anchor(self, at: int) -> bool:
        token = self.tokens[at]
        if token.kind == "number":
            return self._is_box(at) or self._is_asked_for(at) or self._is_between_places(at)
        if token.kind != "word":
            return False
        if token.lower in STRONG_UNITS:
            return self._kind(at + 1) == "number" or (self._kind(at + 1) == "mark" and self._kind(at + 2) == "number")
        return self._is_street(token) and self._has_house(at)

    def _is_street(self, token: Token) -> bool:
        word = token.lower
        if word in STREET_WORDS:
            return self._small or not token.text[0].islower() or word not in ALSO_OTHERS
        last = word.rsplit("-", 1)[-1]
        return any(last.endswith(ending) and len(last) > len(ending) + 2 for ending in STREET_ENDINGS)

    def _has_house(self, at: int) -> bool:
        """A number right after the street's name, or before the words of which it is the last."""
        for after in range(at + 1, min(at + 4, len(self.tokens))):
            if self.tokens[after].kind == "number":
                return True
            if not self._is_name(after):
                break
        named = False
        for before in range(at - 1, max(at - 6, -1), -1):
            if self.tokens[before].kind == "number":
                return named or self.tokens[at].lower not in ALSO_OTHERS
            if not self._is_name(before) and self.tokens[before].lower not in JOINING:
                return False
            named = True
        return False

    def _is_box(self, at: int) -> bool:
        before = self.text[max(0, self.tokens[at].start - 20) : self.tokens[at].end]
        return bool(BOX.search(before))

    def _is_asked_for(self, at: int) -> bool:
        """A number, and names after it, where an address was asked for."""
        if not ASKED_FOR.names(self.text, self.tokens[at].start, self.tokens[at].start):
            return False
        return self._is_name(at + 1) or (self._kind(at + 1) == "number" and self._is_name(at + 2))

    def _is_between_places(self, at: int) -> bool:
        """House and postal number around names, with a flat, or a place and its code, on the next line or part."""
        last = self._right_in_segment(at)
        numbers = [token for token in self.tokens[at : last + 1] if token.kind == "number"]
        if len(numbers) < 2 or last - at < 2 or self._kind(last + 1) != "mark":
            return False
        following = self.tokens[last + 2 : last + 9]
        return any(POSTCODE.match(token.text) for token in following if token.kind == "number")

    def _kind(self, at: int) -> str:
        return self.tokens[at].kind if at < len(self.tokens) else ""

    def _text(self, at: int) -> str:
        return self.tokens[at].text if at < len(self.tokens) else ""

    def _goes_on(self, at: int) -> bool:
        if self._kind(at) == "word":
            return self.tokens[at].lower in UNIT_WORDS or self.tokens[at].lower in STREET_WORDS
        return self._text(at)[:1] == "\n" and self._belongs(at + 1)

    def _is_name(self, at: int) -> bool:
        if self._kind(at) != "word":
            return False
        token = self.tokens[at]
        if self._small:
            return token.lower not in SMALL_TALK
        return not token.text[0].islower()

    def _belongs(self, at: int) -> bool:
        return self._kind(at) == "number" or self._is_name(at)

    def left(self, at: int) -> int:
        """The first token of the address."""
        first = self._left_in_segment(at)
        for _ in range(MOST_SEGMENTS):
            if first < 2 or self.tokens[first - 1].kind != "mark" or not self._adjoins(first - 1):
                break
            begin = self._left_in_segment(first - 2) if self._belongs(first - 2) else first
            segment = self.tokens[begin : first - 1]
            if not any(token.kind == "number" for token in segment):
                break
            first = begin
        return first

    def _left_in_segment(self, at: int) -> int:
        first, steps = at, 0
        while first > 0 and steps < MOST_WORDS + 2:
            before = first - 1
            if self._belongs(before):
                first = before
            elif self.tokens[before].lower in JOINING and before > 0 and self._belongs(before - 1):
                first = before - 1
            else:
                break
            steps += 1
        return first

    def _adjoins(self, mark: int) -> bool:
        return self.tokens[mark].text[0] in ",\n"

    def right(self, at: int) -> int:
        """The last token of the address."""
        last = self._right_in_segment(at)
        for _ in range(MOST_SEGMENTS):
            begin = last + 1
            while self._kind(begin) == "mark" and self.tokens[begin].text[0] in ",\n(" and begin <= last + 3:
                begin += 1
            if (begin == last + 1 and self.tokens[last].text != ")") or not self._belongs(begin):
                break
            end = self._right_in_segment(begin)
            if not self._may_follow(begin, end):
                break
            last = end
            if self._kind(last + 1) == "mark" and self.tokens[last + 1].text == ")":
                last += 1
        return last

    def _right_in_segment(self, at: int) -> int:
        last, steps = at, 0
        while steps < MOST_WORDS:
            if self._belongs(last + 1):
                last += 1
            elif self._kind(last) == "number" and self._text(last + 1) == "." and self._goes_on(last + 2):
                last += 1  # house numbers are ordinals in some countries
            elif self._kind(last + 1) == "word" and self.tokens[last + 1].lower in JOINING and self._belongs(last + 2):
                last += 2
            else:
                break
            steps += 1
        return last

    def _may_follow(self, begin: int, end: int) -> bool:
        """A further line or part: a place, a code, a country; not the next field or sentence."""
        after = self.tokens[end + 1].text if end + 1 < len(self.tokens) else "\n"
        if after == ":" or end - begin >= MOST_WORDS:
            return False
        if self._kind(begin) == "word" and end == begin and not self._kind(end + 1):
            return True
        return after[0] in ",\n.)(" or any(self.tokens[at].kind == "number" for at in range(begin, end + 1))

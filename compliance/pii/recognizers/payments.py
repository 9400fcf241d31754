"""Numbers that money goes by: cards, accounts, banks and wallets."""

from __future__ import annotations

import re
from collections.abc import Iterator

from stdnum import bic, iban, luhn
from stdnum.us import rtn

from compliance.pii.findings import Finding
from compliance.pii.recognizers.base import CHECKSUM, SHAPE, Context, matches
from compliance.pii.recognizers.shapes import Shape

# What people put between the digits of a number.
GAP = r"[ .\-/_·,:|]{0,2}"


def _digits(value: str) -> str:
    return "".join(character for character in value if character.isdigit())


def is_card(value: str) -> bool:
    """13 to 19 digits that end in the check digit of ISO/IEC 7812-1, and are not all the same."""
    digits = _digits(value)
    return 13 <= len(digits) <= 19 and len(set(digits)) > 1 and bool(luhn.is_valid(digits))


def is_iban(value: str) -> bool:
    """By ISO 13616: the country's own length and form, and the remainder of 97."""
    return bool(iban.is_valid(value))


def is_routing_number(value: str) -> bool:
    return bool(rtn.is_valid(_digits(value)))


def is_bic(value: str) -> bool:
    return bool(bic.is_valid(value))


IBAN = re.compile(rf"(?<![^\W_])[A-Za-z]{GAP}[A-Za-z](?:{GAP}\d){{2}}(?:{GAP}[A-Za-z0-9]){{11,30}}")
SHORTEST_IBAN = 15


class IbanRecognizer:
    """Its own length ends it: what follows may be more letters, of the next word."""

    entities = frozenset({"IBAN_CODE"})

    def find(self, text: str) -> Iterator[Finding]:
        for start, _, value in matches(IBAN, text):
            places = [at for at, character in enumerate(value) if character.isalnum()]
            for count in range(len(places), SHORTEST_IBAN - 1, -1):
                end = places[count - 1] + 1
                if not value[end : end + 1].isalnum() and is_iban("".join(value[at] for at in places[:count])):
                    yield Finding(start, start + end, "IBAN_CODE", CHECKSUM)
                    break


CARD_WORDS = Context(
    """
    card, cards, credit card, debit card, cc, visa, mastercard, amex, american express, pan, card number, maestro,
    discover, diners, karte, carte, tarjeta, cvv, expires, expiry
    """
)
ACCOUNT_WORDS = Context(
    """
    account, acct, a/c, account number, acct no, account no, bank account, checking, savings, konto, kontonummer,
    compte, cuenta, conto, beneficiary, direct deposit, wire
    """
)
PAYMENTS = (
    Shape(
        "CREDIT_CARD",
        re.compile(rf"(?<![\d.])(?<!\d[-/ ])\d(?:{GAP}\d){{12,18}}(?![\d]|[.\-/]\d)"),
        check=is_card,
        alone=SHAPE,
        context=CARD_WORDS,
    ),
    Shape("CREDIT_CARD", re.compile(r"(?<![\d.-])\d{4}[ -]?\d{4}[ -]?\d{4}(?![\d]|[.-]\d)"), context=CARD_WORDS),
    IbanRecognizer(),
    Shape(
        "ABA_ROUTING_NUMBER",
        re.compile(r"(?<![\d-])\d{4}-?\d{4}-?\d(?![\d-])"),
        check=is_routing_number,
        context=Context("routing, aba, rtn, transit, routing number, wire"),
        strict=True,
    ),
    Shape(
        "SWIFT_CODE",
        re.compile(r"(?<![^\W_])[A-Za-z]{6}[A-Za-z0-9]{2}(?:[A-Za-z0-9]{3})?(?![^\W_])"),
        check=is_bic,
        context=Context("swift, bic, swift code, bic code, swift/bic"),
        digits=False,
        strict=True,
    ),
    Shape(
        "UK_BANK_ACCOUNT",
        re.compile(r"(?<![\d-])\d{2}[- ]\d{2}[- ]\d{2}(?![\d-])"),
        context=Context("sort code, sortcode, sort"),
    ),
    Shape(
        "UK_BANK_ACCOUNT",
        re.compile(
            r"(?<!\d)\d{2}[- ]?\d{2}[- ]?\d{2}[\s,/;]{1,3}"
            r"(?:(?:acc?(?:oun)?t|a/c)\W{0,3}(?:no\W{0,2}|number\W{0,2})?)?\d{8}(?!\d)",
            re.IGNORECASE,
        ),
        context=Context("sort code, sortcode, sort, account, bank"),
    ),
    Shape(
        "BANK_ACCOUNT_NUMBER",
        re.compile(r"(?<![\d.-])\d(?:[ -]?\d){5,17}(?![\d]|[.-]\d)"),
        context=ACCOUNT_WORDS,
        excludes=Context("order, invoice, ticket, case, version, isin, phone, call, fax"),
    ),
    Shape(
        "CRYPTO",
        re.compile(
            r"(?<![^\W_])(?:bc1[ac-hj-np-z02-9]{11,71}|[13][a-km-zA-HJ-NP-Z1-9]{25,34}|0x[0-9a-fA-F]{40}"
            r"|(?:ltc1|addr1)[ac-hj-np-z02-9]{20,110}|T[1-9A-HJ-NP-Za-km-z]{33}|4[0-9AB][1-9A-HJ-NP-Za-km-z]{93})(?![^\W_])"
        ),
        alone=SHAPE,
    ),
)

"""How people are reached: mail, telephone, and addresses of machines and sites."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator

import phonenumbers

from compliance.pii.findings import Finding
from compliance.pii.recognizers.base import IN_CONTEXT, SHAPE, SURE_SHAPE, Context, matches
from compliance.pii.recognizers.shapes import Shape

PHONE_WORDS = Context(
    """
    phone, phones, phone number, tel, telephone, mobile, mobile number, cell, cellphone, fax, desk, call, calls,
    called, text, sms, whatsapp, reach, contact, contact number, dial, ring, number is, numbers, office, home, work,
    handy, telefon, téléphone, ext, hotline, my number, phone no, landline, pager, extension, callback, answering,
    registered
    """
)
NO_PHONE = Context(
    """
    order, invoice, ticket, isin, version, price, account, iban, card, ssn, serial, sku, id
    """
)
# From seven digits on, with the marks that people write between them; the extension belongs to it.
PHONE = re.compile(
    r"(?<![\w.@/=-])(?P<value>(?:\+|00)?\(?\d{1,4}\)?(?:[ .\-/]{0,3}\(?\d{1,5}\)?){1,6}"
    r"(?:[ ,]{0,2}(?:x|ext\.?|extension|#)[ .]{0,2}\d{1,6})?)(?![\w@]|[.\-/]\d)",
    re.IGNORECASE,
)
EXTENSION = re.compile(r"(?:x|ext\.?|extension|#)[ .]{0,2}\d{1,6}\Z", re.IGNORECASE)
GROUPED = re.compile(r"\+|00\d|\(\d{2,4}\)|\d{2,4}[ .\-/]\d{2,4}[ .\-/]\d{2,5}")
LOOKS_LIKE_A_DATE = re.compile(
    r"(?:19|20)?\d{2}[ .\-/]\d{1,2}[ .\-/]\d{1,4}\Z|\d{1,2}[./-]\d{1,2}[./-](?:19|20)\d{2}\Z"
)
LIKELY = ("US", "GB", "DE", "FR", "IN")


class PhoneRecognizer:
    """Telephone numbers: international ones, those of some countries' plans, and any beside a word that names one."""

    entities = frozenset({"PHONE_NUMBER"})

    def find(self, text: str) -> Iterator[Finding]:
        for start, end, value in matches(PHONE, text):
            digits = sum(character.isdigit() for character in EXTENSION.sub("", value))
            if not 7 <= digits <= 15 or LOOKS_LIKE_A_DATE.match(value):
                continue
            if PHONE_WORDS.names(text, start, end):
                yield Finding(start, end, "PHONE_NUMBER", IN_CONTEXT)
            elif GROUPED.search(value) and not NO_PHONE.precedes(text, start) and _is_planned(value):
                yield Finding(start, end, "PHONE_NUMBER", SHAPE)


def _is_planned(value: str) -> bool:
    """Whether it is a possible number of the country that it names, or of one of the likely ones."""
    for region in (None,) if value.startswith("+") else LIKELY:
        try:
            if phonenumbers.is_valid_number(phonenumbers.parse(value, region)):
                return True
        except phonenumbers.NumberParseException:
            continue
    return False


def _is_public_address(value: str) -> bool:
    try:
        ipaddress.ip_address(value)
    except ValueError:
        return False
    return True


# The parts of RFC 5322 and 1035 that people use, in letters of any script.
EMAIL = Shape(
    "EMAIL_ADDRESS",
    re.compile(r"(?<![\w.+%'-])[\w.+%'-]{1,64}@(?:[\w-]{1,63}\.){1,8}[^\W\d_]{2,24}(?![\w-])"),
    alone=SURE_SHAPE,
    digits=False,
)
# Written so that a machine does not see it.
SPELLED_EMAIL = Shape(
    "EMAIL_ADDRESS",
    re.compile(
        r"(?<![\w.+-])[\w.+-]{1,64} ?[\[({<]? ?(?:at|@) ?[\])}>]? ?"
        r"(?:[\w-]{1,63} ?[\[({<]? ?(?:dot|\.) ?[\])}>]? ?){1,4}"
        r"(?:com|net|org|edu|gov|io|co|de|fr|uk|eu|info|biz|us|ca|in|me|dev|app)\b",
        re.IGNORECASE,
    ),
    check=lambda value: bool(re.search(r" @|@ |[\[({<] ?(?:at|@) ?[\])}>]|\bat\b.*\bdot\b|@.*\bdot\b", value, re.I)),
    alone=SHAPE,
    digits=False,
    strict=True,
)
URL = Shape(
    "URL",
    re.compile(r"(?<![\w@])(?:https?://|www\.)[^\s<>\"')\]]{3,300}", re.IGNORECASE),
    alone=SHAPE,
    digits=False,
)
IP_ADDRESS = Shape(
    "IP_ADDRESS",
    re.compile(r"(?<![\w.:])(?:\d{1,3}(?:\.\d{1,3}){3}|(?:[0-9a-fA-F]{0,4}:){2,7}[0-9a-fA-F]{0,4})(?![\w:]|\.\d)"),
    check=_is_public_address,
    alone=SHAPE,
    strict=True,
    excludes=Context("version, release, v"),
)
MAC_ADDRESS = Shape(
    "MAC_ADDRESS",
    re.compile(r"(?<![\w:-])[0-9a-fA-F]{2}(?:([:-])[0-9a-fA-F]{2})(?:\1[0-9a-fA-F]{2}){4}(?![\w:-])"),
    alone=SHAPE,
)
CONTACTS = (EMAIL, SPELLED_EMAIL, PhoneRecognizer(), URL, IP_ADDRESS, MAC_ADDRESS)

"""Our recognizers alone: what each finds, what looks like it and is not, and that no text takes them long."""

from __future__ import annotations

import sys

import pytest

from compliance.pii.findings import without_overlaps
from compliance.pii.recognizers import ALL


def found(text: str) -> list[tuple[str, str]]:
    findings = without_overlaps(finding for recognizer in ALL for finding in recognizer.find(text))
    return [(finding.entity, text[finding.start : finding.end]) for finding in findings]


@pytest.mark.parametrize(
    ("text", "entity", "value"),
    [
        ("pay with 5500-0055-5555-5559", "CREDIT_CARD", "5500-0055-5555-5559"),
        ("card no. 503867297114 is lost", "CREDIT_CARD", "503867297114"),
        ("to DE89 3704 0044 0532 0130 00 please", "IBAN_CODE", "DE89 3704 0044 0532 0130 00"),
        ("routing 021000021 for the wire", "ABA_ROUTING_NUMBER", "021000021"),
        ("our SWIFT is DEUTDEFF500", "SWIFT_CODE", "DEUTDEFF500"),
        ("sort code 12-34-56", "UK_BANK_ACCOUNT", "12-34-56"),
        ("sort code 12-34-56 account 12345678", "UK_BANK_ACCOUNT", "12-34-56 account 12345678"),
        ("my account number is 000123456789", "BANK_ACCOUNT_NUMBER", "000123456789"),
        ("send to bc1qar0srrr7xfkvy5l643lydnw9re59gtzzwf5mdq", "CRYPTO", "bc1qar0srrr7xfkvy5l643lydnw9re59gtzzwf5mdq"),
        ("SSN 078051120", "US_SSN", "078051120"),
        ("it is 536-22-1234", "US_SSN", "536-22-1234"),
        ("NINO AB 12 34 56 C", "UK_NINO", "AB 12 34 56 C"),
        ("my SIN is 130 692 544", "CA_SIN", "130 692 544"),
        ("Aadhaar 2341 2341 2346", "IN_AADHAAR", "2341 2341 2346"),
        ("pan card ABCPV1234D", "IN_PAN", "ABCPV1234D"),
        ("passport X1234567 expires", "PASSPORT", "X1234567"),
        ("driver's license D123-4567-8901", "DRIVER_LICENSE", "D123-4567-8901"),
        ("born 3 March 1979", "DATE_OF_BIRTH", "3 March 1979"),
        ("dob: 1979-03-01", "DATE_OF_BIRTH", "1979-03-01"),
        ("mail o'neil+x@mail.example.co.uk now", "EMAIL_ADDRESS", "o'neil+x@mail.example.co.uk"),
        ("jane at example dot com", "EMAIL_ADDRESS", "jane at example dot com"),
        ("call +44 20 7946 0958 ext. 12", "PHONE_NUMBER", "+44 20 7946 0958 ext. 12"),
        ("ring (212) 555-0123", "PHONE_NUMBER", "(212) 555-0123"),
        ("from 2001:db8::1 today", "IP_ADDRESS", "2001:db8::1"),
        ("card 00:1b:44:11:3a:b7 seen", "MAC_ADDRESS", "00:1b:44:11:3a:b7"),
        ("It is 221B Baker Street, London NW1 6XE.", "STREET_ADDRESS", "221B Baker Street, London NW1 6XE"),
        ("Send to Hauptstraße 12, 10115 Berlin", "STREET_ADDRESS", "Hauptstraße 12, 10115 Berlin"),
        (
            "to 12 Mill Lane\nApt. 4\nSpringfield, IL 62704\nthanks",
            "STREET_ADDRESS",
            "12 Mill Lane\nApt. 4\nSpringfield, IL 62704",
        ),
        ("PSC 1234, Box 5678\nAPO AE 09012", "STREET_ADDRESS", "PSC 1234, Box 5678\nAPO AE 09012"),
        ("Dear Dr. Ada Lovelace, thank you", "PERSON", "Ada Lovelace"),
        ("my name is ada lovelace and i pay", "PERSON", "ada lovelace"),
        ("Name: Юлия Петрова", "PERSON", "Юлия Петрова"),
    ],
)
def test_a_value_is_found_whole(text: str, entity: str, value: str) -> None:
    assert (entity, value) in found(text)


@pytest.mark.parametrize(
    "text",
    [
        "The ISIN US0378331005 closed at 189.84 USD.",
        "Order 4111111111111112 has shipped.",
        "Version 2.14.3 came out in 2024.",
        "It costs 1,234,567.89 USD, or 12.5 % less.",
        "Python 3.11.4 on port 8080, build 20240131.",
        "In 2008 the index fell by 37 % within 12 months.",
        "The meeting is on 2024-05-17 at 10:30.",
        "qwen3-4b-instruct-2507 answers in 120 ms.",
        "Invoice INV-2024-00017 over 3 items, 14 days net.",
        "UUID 0190b5c4-8f2e-7c3a-9d3b-2f6d1e7a4b10",
        "sha256 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "The ratio is 16:9, or 1.7778.",
        "Take the first road and the next street on the left.",
        "A 5 minute drive, a 2 way street.",
        "Thanks, your request was approved.",
        "My name is not important here.",
        "Hello there, how are you today?",
        "Please wait 3 to 5 business days.",
    ],
)
def test_what_looks_like_one_is_left_alone(text: str) -> None:
    assert found(text) == []


PIECES = [
    *("a@", "1-", "1 ", "a.", "(1", "+1 ", "Aa ", "St 1 ", "1 A ", "my name is ", "Dear ", "x@x.", "0:", "at dot "),
    *(
        "Apt 1\n",
        "a'",
        "12 St, ",
        "the corner of ",
        "psc box 1, ",
        "Jan 1 ",
        "https://",
        "\u0301a",
        "🙂 ",
        "GB82 WEST ",
    ),
]


@pytest.mark.parametrize("piece", PIECES)
def test_a_text_twice_as_long_takes_about_twice_the_steps(piece: str) -> None:
    """By the lines that Python runs, not by time."""
    assert steps(piece, 4_000) < 3 * steps(piece, 2_000) + 1_000


def steps(piece: str, length: int) -> int:
    count = 0

    def trace(*_: object) -> object:
        nonlocal count
        count += 1
        return trace

    text = (piece * length)[:length]
    sys.settrace(trace)  # type: ignore[arg-type]
    try:
        found(text)
    finally:
        sys.settrace(None)
    return count

"""Numbers that states and insurers know people by."""

from __future__ import annotations

import re

from stdnum.ca import sin
from stdnum.in_ import aadhaar, pan
from stdnum.us import ein, itin, ssn

from compliance.pii.recognizers.base import SHAPE, Context
from compliance.pii.recognizers.shapes import Shape

SSN_WORDS = Context("ssn, social, social security, social security number, socials, ss#, ss number")
LICENCE_WORDS = Context(
    """
    driver, drivers, driver's license, drivers license, driver's licence, driving licence, dl, dl#, driving license,
    license number, licence number, permit, license no, driver’s license
    """
)
BIRTH_WORDS = Context(
    """
    born, birth, date of birth, birthdate, birthday, dob, d.o.b, born on, geboren, naissance
    """
)
MONTHS = r"(?:jan|feb|mar|apr|may|jun|jul|aug|sep|sept|oct|nov|dec)[a-z]{0,6}"
IDENTITY_NUMBERS = (
    Shape(
        "US_SSN",
        re.compile(r"(?<![\w-])\d{3}[- .]\d{2}[- .]\d{4}(?![\w-])"),
        check=lambda value: bool(ssn.is_valid(re.sub(r"\D", "", value))),
        alone=SHAPE,
        context=SSN_WORDS,
    ),
    Shape("US_SSN", re.compile(r"(?<![\w-])\d{9}(?![\w-])"), context=SSN_WORDS),
    Shape(
        "US_ITIN",
        re.compile(r"(?<![\w-])9\d{2}[- ]?\d{2}[- ]?\d{4}(?![\w-])"),
        check=lambda value: bool(itin.is_valid(re.sub(r"\D", "", value))),
        context=Context("itin, taxpayer, tax id, individual taxpayer"),
        strict=True,
    ),
    Shape(
        "US_EIN",
        re.compile(r"(?<![\w-])\d{2}-\d{7}(?![\w-])"),
        check=lambda value: bool(ein.is_valid(value)),
        context=Context("ein, employer, fein, tax id, employer identification"),
        strict=True,
    ),
    Shape(
        "UK_NINO",
        re.compile(
            r"(?<![^\W_])(?!(?:BG|GB|NK|KN|TN|NT|ZZ))[A-CEGHJ-PR-TW-Z][A-CEGHJ-NPR-TW-Z]"
            r" ?\d{2} ?\d{2} ?\d{2} ?[A-D](?![^\W_])",
            re.IGNORECASE,
        ),
        alone=SHAPE,
    ),
    Shape(
        "CA_SIN",
        re.compile(r"(?<![\w-])\d{3}[- ]?\d{3}[- ]?\d{3}(?![\w-])"),
        check=lambda value: bool(sin.is_valid(value)),
        context=Context("sin, social insurance, social insurance number, insurance number"),
        strict=True,
    ),
    Shape(
        "IN_AADHAAR",
        re.compile(r"(?<![\w-])[2-9]\d{3}[- ]?\d{4}[- ]?\d{4}(?![\w-])"),
        check=lambda value: bool(aadhaar.is_valid(value)),
        context=Context("aadhaar, aadhar, uidai, uid"),
        alone=SHAPE,
        strict=True,
    ),
    Shape(
        "IN_PAN",
        re.compile(r"(?<![^\W_])[A-Za-z]{5}\d{4}[A-Za-z](?![^\W_])"),
        check=lambda value: bool(pan.is_valid(value)),
        context=Context("pan, permanent account, income tax, pan card"),
        alone=SHAPE,
        strict=True,
    ),
    Shape(
        "PASSPORT",
        re.compile(r"(?<![^\W_])(?=[A-Za-z]{0,3}\d)[A-Za-z0-9]{6,9}(?![^\W_])"),
        context=Context("passport, passport number, passport no, reisepass, passeport, pasaporte"),
    ),
    Shape(
        "DRIVER_LICENSE",
        re.compile(r"(?<![^\W_])(?=[A-Za-z*]{0,5}[\d -]{0,2}\d)[A-Za-z]{0,5}\d(?:[- ]?[A-Za-z0-9]){4,17}(?![^\W_])"),
        context=LICENCE_WORDS,
    ),
    Shape(
        "DATE_OF_BIRTH",
        re.compile(
            rf"(?<![\w/.-])(?:\d{{1,2}}[./-]\d{{1,2}}[./-](?:19|20)?\d{{2}}|(?:19|20)\d{{2}}[./-]\d{{1,2}}[./-]\d{{1,2}}"
            rf"|\d{{1,2}}(?:st|nd|rd|th)?(?: of)? {MONTHS}\.?,? (?:19|20)\d{{2}}"
            rf"|{MONTHS}\.? \d{{1,2}}(?:st|nd|rd|th)?,? (?:19|20)\d{{2}})(?![\w/-])",
            re.IGNORECASE,
        ),
        context=BIRTH_WORDS,
    ),
)

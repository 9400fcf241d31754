"""Recognizers of this platform's own, beside Presidio's: no model, no language but the words of their contexts."""

from __future__ import annotations

from compliance.pii.recognizers.addresses import POSTCODES, AddressRecognizer
from compliance.pii.recognizers.base import Recognizer
from compliance.pii.recognizers.contacts import CONTACTS
from compliance.pii.recognizers.identity_numbers import IDENTITY_NUMBERS
from compliance.pii.recognizers.names import NameRecognizer
from compliance.pii.recognizers.payments import PAYMENTS
from compliance.pii.recognizers.secrets import SECRETS

ALL: tuple[Recognizer, ...] = (
    *(*PAYMENTS, *IDENTITY_NUMBERS, *SECRETS, *CONTACTS),
    *(AddressRecognizer(), POSTCODES, NameRecognizer()),
)

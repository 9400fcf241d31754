"""The key of the record: AES-256-GCM, bound to the organisation, table, column and row that a value lies in."""

from __future__ import annotations

import functools
import hashlib
import hmac
import os
from uuid import UUID

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from django.conf import settings

FORMAT = b"\x01"
NONCE_BYTES = 12


class PayloadBroken(ValueError):
    """The bytes were not sealed with this key for this place, or were changed."""


class RecordKey:
    """Seals values for one place each.

    Every row has a key of its own (the expand step of RFC 5869 over the master key), so that random nonces stay
    far below what NIST SP 800-38D allows a key. The place is the seal's additional data.
    """

    def __init__(self, master: bytes) -> None:
        if len(master) != 32:
            raise ValueError("The record key has 32 bytes.")
        self._master = master
        self.id = hashlib.sha256(b"bursar key id\x00" + master).hexdigest()[:16]

    def _cipher(self, row: UUID) -> AESGCM:
        return AESGCM(hmac.digest(self._master, b"bursar record\x00" + row.bytes + b"\x01", "sha256"))

    def seal(self, data: bytes, *, organisation_id: UUID, table: str, column: str, row: UUID) -> bytes:
        nonce = os.urandom(NONCE_BYTES)
        return FORMAT + nonce + self._cipher(row).encrypt(nonce, data, _place(organisation_id, table, column, row))

    def open(self, sealed: bytes, *, organisation_id: UUID, table: str, column: str, row: UUID) -> bytes:
        """Raises `PayloadBroken`."""
        sealed = bytes(sealed)
        if sealed[:1] != FORMAT:
            raise PayloadBroken("The value has an unknown format.")
        nonce, body = sealed[1 : 1 + NONCE_BYTES], sealed[1 + NONCE_BYTES :]
        try:
            return self._cipher(row).decrypt(nonce, body, _place(organisation_id, table, column, row))
        except (InvalidTag, ValueError) as error:
            raise PayloadBroken("A sealed value does not open.") from error


def _place(organisation_id: UUID, table: str, column: str, row: UUID) -> bytes:
    return f"{organisation_id}/{table}/{column}/{row}".encode()


@functools.cache
def current() -> RecordKey:
    """The key that the settings name. Raises `ValueError` where it is missing or malformed, without its value."""
    try:
        return RecordKey(bytes.fromhex(settings.RECORD_KEY))
    except ValueError:
        raise ValueError("BURSAR_RECORD_KEY must be 64 hexadecimal digits.") from None


def seal_text(text: str, *, organisation_id: UUID, table: str, column: str, row: UUID) -> bytes:
    return current().seal(text.encode(), organisation_id=organisation_id, table=table, column=column, row=row)


def open_text(sealed: bytes, *, organisation_id: UUID, table: str, column: str, row: UUID) -> str:
    """Raises `PayloadBroken`."""
    return current().open(sealed, organisation_id=organisation_id, table=table, column=column, row=row).decode()

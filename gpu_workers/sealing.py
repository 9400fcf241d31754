"""Seals for what lies in the broker: AES-256-GCM under a key that web processes and workers share."""

from __future__ import annotations

import hmac
import os
from collections.abc import Mapping
from uuid import UUID

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from gpu_workers.identifiers import uuid7

NONCE_BYTES = 12
UUID_BYTES = 16
FINGERPRINT_BYTES = 8


class SealBroken(ValueError):
    """The bytes were not sealed with this key for this place."""


def fingerprint(key: bytes) -> str:
    """16 hexadecimal digits by which two processes see whether they have the same seal key; they say nothing of it.

    HMAC-SHA256 under a key derived for this alone (the expand step of RFC 5869), truncated.
    """
    derived = hmac.digest(key, b"bursar seal fingerprint\x01", "sha256")
    return hmac.digest(derived, b"bursar seal key", "sha256")[:FINGERPRINT_BYTES].hex()


class Sealer:
    """Seals for one exchange.

    Each exchange has a key of its own (the expand step of RFC 5869), so that random nonces stay far below the
    2^32 messages that NIST SP 800-38D allows a key.
    """

    def __init__(self, key: bytes, exchange: UUID) -> None:
        if len(key) != 32:
            raise ValueError("A seal key has 32 bytes.")
        self._cipher = AESGCM(hmac.digest(key, b"bursar seal\x00" + exchange.bytes + b"\x01", "sha256"))

    def seal(self, data: bytes, *, place: str) -> bytes:
        """`data` sealed for `place`, a name that tells one message of the exchange from another."""
        nonce = os.urandom(NONCE_BYTES)
        return nonce + self._cipher.encrypt(nonce, data, place.encode())

    def open(self, sealed: bytes, *, place: str) -> bytes:
        """Raises `SealBroken`."""
        try:
            return self._cipher.decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], place.encode())
        except (InvalidTag, ValueError) as error:
            raise SealBroken("A sealed message does not open.") from error


def seal_fields(key: bytes, data: bytes, *, place: str) -> dict[str, bytes]:
    """A hash for the broker that says which key of its own its `data` was sealed with."""
    identifier = uuid7()
    return {"i": identifier.bytes, "s": Sealer(key, identifier).seal(data, place=place)}


def open_fields(key: bytes, fields: Mapping[bytes, bytes], *, place: str) -> bytes:
    """Raises `SealBroken`, also for what is no such hash."""
    identifier = fields.get(b"i", b"")
    if len(identifier) != UUID_BYTES:
        raise SealBroken("A sealed message names no key of its own.")
    return Sealer(key, UUID(bytes=identifier)).open(fields.get(b"s", b""), place=place)


def task_place(attempt: int) -> str:
    return f"task/{attempt}"


def frame_place(attempt: int, sequence: int) -> str:
    return f"frame/{attempt}/{sequence}"

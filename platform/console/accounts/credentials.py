"""API keys as text: how one is made, recognised in a header and turned into what is stored of it."""

from __future__ import annotations

import hashlib
import re
import secrets

KEY_BYTES = 32  # 256 bits; a plain SHA-256 is enough for what cannot be guessed
PREFIX_LENGTH = 12

# \Z and not $: a key followed by a line break is not a key.
_KEY = re.compile(r"bsk_[A-Za-z0-9_-]{43}\Z")
_BEARER = re.compile(r"bearer +(\S+) *\Z", re.IGNORECASE)


def new_key() -> str:
    """A fresh key: `bsk_` and 43 URL-safe characters, which carry 256 random bits."""
    return f"bsk_{secrets.token_urlsafe(KEY_BYTES)}"


def is_key(text: str) -> bool:
    """Whether this has a key's shape. It says nothing about the key being known."""
    return _KEY.match(text) is not None


def digest(key: str) -> bytes:
    """The SHA-256 of a key, 32 bytes: the only form in which it is stored and compared."""
    return hashlib.sha256(key.encode()).digest()


def prefix(key: str) -> str:
    """The first characters of a key, by which people tell keys apart."""
    return key[:PREFIX_LENGTH]


def bearer_key(header: str | None) -> str | None:
    """The key in an `Authorization: Bearer <key>` header (RFC 6750), or None if it holds none.

    What does not have a key's shape is refused here, so that nothing of another size is hashed or looked up.
    """
    match = _BEARER.match(header or "")
    if match is None or not is_key(match[1]):
        return None
    return match[1]

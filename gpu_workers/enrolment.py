"""The worker token: one string that holds what a GPU host needs to know of a platform besides its broker's address.

It is `bwt_` and base64url of: the format's number (one byte), the seal key (32 bytes), the deployment's name (ASCII),
and the first eight bytes of the SHA-256 of all that. The checksum finds a token that was cut or mistyped; it proves
nothing about who made it.
"""

from __future__ import annotations

import hashlib
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass, field

PREFIX = "bwt_"
VERSION = 1
KEY_BYTES = 32
CHECKSUM_BYTES = 8
# As the catalog has them (inference.models.Deployment.slug).
DEPLOYMENT = re.compile(r"[A-Za-z0-9_-]{1,60}\Z")
_MOST_CHARACTERS = 160
_BASE64URL = re.compile(r"[A-Za-z0-9_-]+\Z")


class TokenRefused(ValueError):
    """Not a worker token. The message says what is wrong with it in one line, and holds nothing of it."""


@dataclass(frozen=True)
class Enrolment:
    """What a token says: the platform's seal key, and the deployment that the host serves."""

    seal_key: bytes = field(repr=False)
    deployment: str


def write_token(enrolment: Enrolment) -> str:
    """Raises ValueError where the key or the name is not one that `read_token` would take."""
    if len(enrolment.seal_key) != KEY_BYTES or not DEPLOYMENT.match(enrolment.deployment):
        raise ValueError("A token holds a key of 32 bytes and a deployment's name.")
    body = bytes([VERSION]) + enrolment.seal_key + enrolment.deployment.encode("ascii")
    return PREFIX + urlsafe_b64encode(body + _checksum(body)).decode().rstrip("=")


def read_token(text: str) -> Enrolment:
    """What the token says; white space around it is allowed. Raises `TokenRefused`."""
    body = _checked_body(text.strip())
    if body[0] != VERSION:
        raise TokenRefused("the token is of another format: make it with the version of Bursar that this host has.")
    name = body[1 + KEY_BYTES :].decode("ascii", errors="replace")
    if not DEPLOYMENT.match(name):
        raise TokenRefused("the token names no deployment.")
    return Enrolment(body[1 : 1 + KEY_BYTES], name)


def _checked_body(token: str) -> bytes:
    encoded = token.removeprefix(PREFIX)
    if encoded == token or len(token) > _MOST_CHARACTERS or not _BASE64URL.match(encoded):
        raise TokenRefused("this is not a worker token: `manage.py worker_token` makes one.")
    try:
        data = urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4))
    except ValueError:
        data = b""
    body, checksum = data[:-CHECKSUM_BYTES], data[-CHECKSUM_BYTES:]
    if len(body) < 1 + KEY_BYTES or checksum != _checksum(body):
        raise TokenRefused("the token is not complete, or was changed: copy it again.")
    return body


def _checksum(body: bytes) -> bytes:
    return hashlib.sha256(body).digest()[:CHECKSUM_BYTES]

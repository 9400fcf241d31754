"""Tickets: what lets a browser or program that can set no header open one socket. Each is valid once, for 30 s."""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
from dataclasses import dataclass
from uuid import UUID

import msgspec
import redis
import redis.asyncio
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from console.accounts.principal import Principal

LIFETIME_S = 30
NONCE_BYTES = 12

_TICKET = re.compile(r"[A-Za-z0-9_-]{43}\Z")


@dataclass(frozen=True, slots=True)
class Bearer:
    """Who a ticket was issued to, and the session that they asked for it in: the socket ends when that does."""

    principal: Principal
    session_key: str | None = None


class _Stored(msgspec.Struct, frozen=True):
    """What lies in Valkey. A session's key is as good as its cookie, so it is sealed under the ticket itself."""

    organisation_id: UUID
    user_id: UUID | None
    api_key_id: UUID | None
    sealed_session_key: bytes | None


def issue(valkey: redis.Redis, bearer: Bearer) -> str:
    """A new ticket for this caller. Valkey holds only its digest, so a dump of it opens no socket and no session."""
    ticket = secrets.token_urlsafe(32)
    valkey.set(_key(ticket), _encode(ticket, bearer), ex=LIFETIME_S)
    return ticket


async def redeem(valkey: redis.asyncio.Redis, ticket: str) -> Bearer | None:
    """Who the ticket was issued to, and None if it is unknown, used or older than 30 s. It is used up by this."""
    if _TICKET.match(ticket) is None:
        return None
    value = await valkey.getdel(_key(ticket))
    return None if value is None else _decode(ticket, value)


def _key(ticket: str) -> str:
    return f"ticket:{hashlib.sha256(ticket.encode()).hexdigest()}"


def _cipher(ticket: str) -> AESGCM:
    return AESGCM(hmac.digest(ticket.encode(), b"bursar ticket\x00session\x01", "sha256"))


def _encode(ticket: str, bearer: Bearer) -> bytes:
    sealed = None
    if bearer.session_key is not None:
        nonce = os.urandom(NONCE_BYTES)
        sealed = nonce + _cipher(ticket).encrypt(nonce, bearer.session_key.encode(), None)
    of = bearer.principal
    return msgspec.json.encode(_Stored(of.organisation_id, of.user_id, of.api_key_id, sealed))


def _decode(ticket: str, value: bytes | str) -> Bearer:
    stored = msgspec.json.decode(value, type=_Stored)
    session_key = None
    if (sealed := stored.sealed_session_key) is not None:
        session_key = _cipher(ticket).decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], None).decode()
    return Bearer(Principal(stored.organisation_id, stored.user_id, stored.api_key_id), session_key)

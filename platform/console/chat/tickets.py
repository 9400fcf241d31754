"""Tickets: what lets a browser or program that can set no header open one socket. Each is valid once, for 30 s."""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from typing import Any
from uuid import UUID

import redis
import redis.asyncio

from console.accounts.principal import Principal

LIFETIME_S = 30

_TICKET = re.compile(r"[A-Za-z0-9_-]{43}\Z")


def issue(valkey: redis.Redis, principal: Principal) -> str:
    """A new ticket for this caller. Valkey holds only its digest, so a dump of it opens no socket."""
    ticket = secrets.token_urlsafe(32)
    valkey.set(_key(ticket), _encode(principal), ex=LIFETIME_S)
    return ticket


async def redeem(valkey: redis.asyncio.Redis, ticket: str) -> Principal | None:
    """Who the ticket was issued to, and None if it is unknown, used or older than 30 s. It is used up by this."""
    if _TICKET.match(ticket) is None:
        return None
    value = await valkey.getdel(_key(ticket))
    return None if value is None else _decode(value)


def _key(ticket: str) -> str:
    return f"ticket:{hashlib.sha256(ticket.encode()).hexdigest()}"


def _encode(principal: Principal) -> str:
    fields = {
        "organisation_id": principal.organisation_id,
        "user_id": principal.user_id,
        "api_key_id": principal.api_key_id,
    }
    return json.dumps({name: None if value is None else str(value) for name, value in fields.items()})


def _decode(value: bytes | str) -> Principal:
    fields: dict[str, Any] = json.loads(value)
    return Principal(
        organisation_id=UUID(fields["organisation_id"]),
        user_id=UUID(fields["user_id"]) if fields["user_id"] else None,
        api_key_id=UUID(fields["api_key_id"]) if fields["api_key_id"] else None,
    )

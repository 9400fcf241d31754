"""Who a session cookie or a ticket stands for, for transports that have no Django request."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import import_module
from uuid import UUID

from asgiref.sync import sync_to_async
from django.conf import settings
from django.contrib.auth import get_user
from django.http import HttpRequest

from inference.events import Caller, Limits
from inference.snapshot import Pool

SELECT_MEMBERS = """
    SELECT u.id, u.password, m.organisation_id, o.requests_per_minute, o.concurrent_answers, m.team_id, m.role,
           o.residency
    FROM accounts_user u
    JOIN accounts_member m ON m.user_id = u.id
    JOIN accounts_organisation o ON o.id = m.organisation_id
    WHERE u.id = ANY(%s) AND u.is_active AND o.is_active
"""
SELECT_SESSIONS = "SELECT session_key FROM django_session WHERE session_key = ANY(%s) AND expire_date > now()"


@dataclass(frozen=True, slots=True)
class SignedIn:
    """A member, with a fingerprint that changes when the password does."""

    caller: Caller
    fingerprint: bytes


async def find_members(pool: Pool, user_ids: Iterable[UUID]) -> dict[UUID, SignedIn]:
    """The active members among these users."""
    async with pool.connection() as connection:
        rows = await (await connection.execute(SELECT_MEMBERS, [list(user_ids)])).fetchall()
    return {
        row[0]: SignedIn(
            Caller(row[2], row[0], None, Limits("user", row[3], row[4]), row[5], row[6], row[7]),
            hashlib.sha256(row[1].encode()).digest(),
        )
        for row in rows
    }


async def find_sessions(pool: Pool, session_keys: Iterable[str]) -> set[str]:
    """Which of these sessions still exist: signing out deletes one."""
    async with pool.connection() as connection:
        rows = await (await connection.execute(SELECT_SESSIONS, [list(session_keys)])).fetchall()
    return {row[0] for row in rows}


async def user_of_session(session_key: str) -> UUID | None:
    """The user signed in under this key, checked as Django's own middleware does; None where there is none."""
    return await sync_to_async(_user_of_session, thread_sensitive=False)(session_key)


def _user_of_session(session_key: str) -> UUID | None:
    from django.db import connection

    request = HttpRequest()
    request.session = import_module(settings.SESSION_ENGINE).SessionStore(session_key)
    try:
        user = get_user(request)
    finally:
        connection.close()  # this thread is the pool's and keeps nothing open
    return user.pk if user.is_authenticated else None

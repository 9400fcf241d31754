"""The open sockets of this process, and the sweep that closes those whose key, user or session is no longer valid."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import Protocol
from uuid import UUID

import psycopg
import structlog
from psycopg_pool import PoolTimeout

from console.accounts.keyring import Keyring
from console.accounts.sessions import SignedIn, find_members, find_sessions
from inference.events import Caller
from inference.snapshot import Pool

log = structlog.get_logger(__name__)

SWEEP_S = 1.0
SWEEP_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a socket belongs to and what that rests on: a key, or a user's password and session."""

    caller: Caller
    fingerprint: bytes | None = None
    session_key: str | None = None


class OpenSocket(Protocol):
    identity: Identity

    async def close_unauthenticated(self) -> None: ...


class OpenSockets:
    def __init__(self, keyring: Keyring, pool: Pool) -> None:
        self._keyring = keyring
        self._pool = pool
        self._open: set[OpenSocket] = set()
        self._task: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._open)

    def add(self, socket: OpenSocket) -> None:
        self._open.add(socket)

    def discard(self, socket: OpenSocket) -> None:
        self._open.discard(socket)

    def start(self) -> None:
        self._task = asyncio.create_task(self._sweep(), name="open-sockets")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_S)
            try:
                async with asyncio.timeout(SWEEP_TIMEOUT_S):
                    invalid = await self._invalid()
            except (psycopg.Error, PoolTimeout, OSError, TimeoutError) as error:
                # Nothing is served without the database, so a socket that stays open meanwhile gains nothing.
                log.warning("sockets_not_swept", error=type(error).__name__)
                continue
            for socket in invalid:
                self._open.discard(socket)
                await socket.close_unauthenticated()

    async def _invalid(self) -> list[OpenSocket]:
        """The sockets whose caller is gone; the others get their caller's limits as they are now."""
        sockets = list(self._open)
        user_ids = {user_id for socket in sockets if (user_id := socket.identity.caller.user_id)}
        sessions = {key for socket in sockets if (key := socket.identity.session_key)}
        members = await find_members(self._pool, user_ids) if user_ids else {}
        alive = await find_sessions(self._pool, sessions) if sessions else set()
        invalid = []
        for socket in sockets:
            caller = self._caller_now(socket.identity, members, alive)
            if caller is None:
                invalid.append(socket)
            elif caller != socket.identity.caller:
                socket.identity = replace(socket.identity, caller=caller)
        return invalid

    def _caller_now(self, identity: Identity, members: dict[UUID, SignedIn], alive: set[str]) -> Caller | None:
        caller = identity.caller
        if caller.api_key_id is not None:
            return self._keyring.get(caller.api_key_id)
        member = members.get(caller.user_id) if caller.user_id else None
        if member is None or member.fingerprint != identity.fingerprint:
            return None
        if member.caller.organisation_id != caller.organisation_id:
            return None
        return member.caller if identity.session_key in alive else None


async def identify_user(pool: Pool, user_id: UUID, session_key: str) -> Identity | None:
    """The identity of a signed-in member; None for a user who is inactive or belongs to no organisation."""
    member = (await find_members(pool, [user_id])).get(user_id)
    return Identity(member.caller, member.fingerprint, session_key) if member else None

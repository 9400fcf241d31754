"""The API keys that are valid now, in memory: a request is authenticated without a query."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

from console.accounts import credentials
from inference.events import Caller, Limits
from inference.snapshot import Pool

SELECT_KEYS = """
    SELECT k.digest, k.id, k.organisation_id, k.expires_at,
           COALESCE(k.requests_per_minute, o.requests_per_minute),
           COALESCE(k.concurrent_answers, o.concurrent_answers), k.team_id, o.residency
    FROM accounts_apikey k JOIN accounts_organisation o ON o.id = k.organisation_id
    WHERE k.revoked_at IS NULL AND o.is_active
"""


@dataclass(frozen=True, slots=True)
class _Key:
    caller: Caller
    expires_at: datetime | None

    def caller_now(self) -> Caller | None:
        expired = self.expires_at is not None and self.expires_at <= datetime.now(UTC)
        return None if expired else self.caller


class Keyring:
    """Reloaded by the configuration's watcher whenever keys or organisations change."""

    def __init__(self) -> None:
        self._by_digest: dict[bytes, _Key] = {}
        self._by_id: dict[UUID, _Key] = {}

    async def reload(self, pool: Pool, version: int) -> None:
        by_digest: dict[bytes, _Key] = {}
        by_id: dict[UUID, _Key] = {}
        async with pool.connection() as connection:
            for row in await (await connection.execute(SELECT_KEYS)).fetchall():
                limits = Limits("API key", row[4], row[5])
                caller = Caller(row[2], None, row[1], limits, team_id=row[6], residency=row[7])
                key = _Key(caller, row[3])
                by_digest[bytes(row[0])] = by_id[row[1]] = key
        self._by_digest, self._by_id = by_digest, by_id

    def find(self, authorization: str | None) -> Caller | None:
        """Whose key an `Authorization` header carries; None for no key, an unknown, revoked or expired one."""
        key = credentials.bearer_key(authorization)
        found = self._by_digest.get(credentials.digest(key)) if key else None
        return found.caller_now() if found else None

    def get(self, api_key_id: UUID) -> Caller | None:
        found = self._by_id.get(api_key_id)
        return found.caller_now() if found else None

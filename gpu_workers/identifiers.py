"""Identifiers of everything that Bursar counts: UUIDs that sort by time (RFC 9562, version 7)."""

from uuid import UUID

from uuid6 import uuid7 as _uuid7


def uuid7() -> UUID:
    """A new UUIDv7 as a plain `uuid.UUID`, so that drivers and serialisers treat it as any other."""
    return UUID(bytes=_uuid7().bytes)

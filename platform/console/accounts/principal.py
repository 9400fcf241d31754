"""Who a request comes from, once it is known: a member who signed in, or a program with an API key."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID


@dataclass(frozen=True, slots=True)
class Principal:
    """Exactly one of `user_id` and `api_key_id` is set."""

    organisation_id: UUID
    user_id: UUID | None
    api_key_id: UUID | None

"""Limits as the request's way sees them: how much each scope may ask for, whoever of it asks."""

from __future__ import annotations

from dataclasses import dataclass, field
from uuid import UUID

from inference.events import Caller


@dataclass(frozen=True, slots=True)
class Limit:
    """Counted under `name`, told to callers as `scope`. None is not limited."""

    scope: str
    name: str
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    concurrent_answers: int | None = None


# What a row of the table is for: the narrowest of its scopes, and a model's name or "" for all models.
Scope = tuple[str, UUID | None, str]


@dataclass(frozen=True, slots=True)
class LimitBook:
    """The limits in force, by what they are for."""

    by_scope: dict[Scope, Limit] = field(default_factory=dict)

    def for_request(self, caller: Caller, model: str) -> tuple[Limit, ...]:
        """The caller's own first, then all that it shares with others."""
        own = caller.limits
        limits = [Limit(own.scope, caller.name, own.requests_per_minute, None, own.concurrent_answers)]
        for scope, scope_id in _scopes(caller):
            for name in ("", model):
                if found := self.by_scope.get((scope, scope_id, name)):
                    limits.append(found)
        return tuple(limits)


def _scopes(caller: Caller) -> list[tuple[str, UUID | None]]:
    scopes: list[tuple[str, UUID | None]] = [("model", None), ("organisation", caller.organisation_id)]
    if caller.team_id is not None:
        scopes.append(("team", caller.team_id))
    if caller.user_id is not None:
        scopes.append(("user", caller.user_id))
    if caller.api_key_id is not None:
        scopes.append(("API key", caller.api_key_id))
    return scopes

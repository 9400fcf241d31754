"""Create an API key. The key is in the return value and nowhere else."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from django.core.exceptions import ValidationError

from compliance.access import sees_everything
from console.accounts import credentials
from console.accounts.history import acting
from console.accounts.models import APIKey, Organisation, User
from console.accounts.permissions import require

LIMITS = ("requests_per_minute", "concurrent_answers")


@dataclass(frozen=True, slots=True)
class NewKey:
    row: APIKey
    key: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class KeyTerms:
    """What a key is made with. A limit that is None is the organisation's."""

    name: str
    requests_per_minute: int | None = None
    concurrent_answers: int | None = None
    expires_at: datetime | None = None


def create_api_key(actor: User, organisation: Organisation, terms: KeyTerms, *, key: str | None = None) -> NewKey:
    """`key` is given only by an installer that chose it; otherwise a fresh one is made.

    Raises PermissionDenied, and ValidationError for terms that the actor may not give.
    """
    require(actor, "accounts.add_apikey", organisation.pk)
    check_limits(actor, organisation, terms)
    key = key or credentials.new_key()
    row = APIKey(
        organisation=organisation,
        name=terms.name,
        prefix=credentials.prefix(key),
        digest=credentials.digest(key),
        requests_per_minute=terms.requests_per_minute,
        concurrent_answers=terms.concurrent_answers,
        expires_at=terms.expires_at,
        created_by=actor,
    )
    with acting(actor):
        row.save()
    return NewKey(row, key)


def check_limits(actor: User, organisation: Organisation, terms: KeyTerms) -> None:
    """An organisation's own administrator gives its keys no more than the organisation has."""
    if sees_everything(actor):
        return
    faults = {
        name: f"At most {most}, the organisation's own limit."
        for name in LIMITS
        if (getattr(terms, name) or 0) > (most := getattr(organisation, name))
    }
    if faults:
        raise ValidationError(faults)

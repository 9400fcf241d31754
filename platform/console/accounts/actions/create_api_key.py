"""Create an API key. The key is in the return value and nowhere else."""

from __future__ import annotations

from django.core.exceptions import ValidationError

from compliance.access import sees_everything
from console.accounts import credentials
from console.accounts.history import acting
from console.accounts.models import APIKey, Organisation, User, check_team
from console.accounts.permissions import require

LIMITS = ("requests_per_minute", "concurrent_answers")


def create_api_key(actor: User, row: APIKey, *, key: str | None = None) -> str:
    """Save this new row, which says whose key it is and on what terms, and return the key to show once.

    `key` is given only by an installer that chose it; otherwise a fresh one is made.
    Raises PermissionDenied, and ValidationError for terms that the actor may not give.
    """
    require(actor, "accounts.add_apikey", row.organisation_id)
    check_limits(actor, row.organisation, {name: getattr(row, name) for name in LIMITS})
    check_team(row.team, row.organisation)
    key = key or credentials.new_key()
    row.prefix, row.digest, row.created_by = credentials.prefix(key), credentials.digest(key), actor
    with acting(actor):
        row.save(force_insert=True)
    return key


def check_limits(actor: User, organisation: Organisation, limits: dict[str, int | None]) -> None:
    """An organisation's own administrator gives its keys no more than the organisation has."""
    if sees_everything(actor):
        return
    faults = {
        name: f"At most {most}, the organisation's own limit."
        for name, limit in limits.items()
        if limit is not None and limit > (most := getattr(organisation, name))
    }
    if faults:
        raise ValidationError(faults)

"""The check that every action on accounts begins with."""

from __future__ import annotations

from uuid import UUID

from django.core.exceptions import PermissionDenied

from compliance.access import organisation_of, sees_everything
from console.accounts.models import User


def require(actor: User, permission: str, organisation_id: UUID) -> None:
    """Raise PermissionDenied unless this actor may do this in this organisation."""
    if sees_everything(actor):
        return
    if not actor.has_perm(permission) or organisation_of(actor) != organisation_id:
        raise PermissionDenied(f"{permission} is not allowed here.")

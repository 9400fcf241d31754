"""Revoke an API key. It is refused from now on, and its open sockets close."""

from __future__ import annotations

from uuid import UUID

from django.db import transaction
from django.utils import timezone

from console.accounts.history import acting
from console.accounts.models import APIKey, User
from console.accounts.permissions import require


@transaction.atomic
def revoke_api_key(actor: User, api_key_id: UUID) -> APIKey:
    """The revoked key. A key revoked before keeps the time of its first revocation."""
    row = APIKey.objects.select_for_update().get(pk=api_key_id)
    require(actor, "accounts.change_apikey", row.organisation_id)
    if row.revoked_at is None:
        row.revoked_at = timezone.now()
        with acting(actor):
            row.save(update_fields=["revoked_at"])
    return row

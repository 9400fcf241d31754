"""Reads of accounts: which key a program holds, and who a request comes from."""

from __future__ import annotations

from django.db.models import Q
from django.db.models.functions import Now

from console.accounts import credentials
from console.accounts.models import APIKey, Member
from console.accounts.principal import Principal


def usable_key(key: str) -> APIKey | None:
    """The row of a key that is known, not revoked, not expired, and whose organisation is active."""
    return (
        APIKey.objects.filter(Q(expires_at=None) | Q(expires_at__gt=Now()))
        .filter(digest=credentials.digest(key), revoked_at=None, organisation__is_active=True)
        .first()
    )


def principal_of_key(row: APIKey) -> Principal:
    return Principal(organisation_id=row.organisation_id, user_id=None, api_key_id=row.pk)


def principal_of_member(member: Member) -> Principal:
    return Principal(organisation_id=member.organisation_id, user_id=member.user_id, api_key_id=None)

"""Give a user a place and a role in an organisation. Whether they may enter the admin follows from it."""

from __future__ import annotations

from django.core.exceptions import PermissionDenied
from django.db import transaction

from compliance.access import sees_everything
from console.accounts.history import acting
from console.accounts.models import Member, Organisation, Team, User, check_team
from console.accounts.permissions import require
from console.accounts.roles import STAFF


@transaction.atomic
def assign_role(actor: User, user: User, organisation: Organisation, role: str, *, team: Team | None = None) -> Member:
    """The membership, created or changed. Nobody but a superuser changes their own role or a superuser's.

    Raises PermissionDenied, and ValidationError for a team of another organisation.
    """
    require(actor, "accounts.change_member", organisation.pk)
    member = Member.objects.select_for_update().filter(user=user).first() or Member(user=user)
    if not member._state.adding:
        require(actor, "accounts.change_member", member.organisation_id)
    if not sees_everything(actor) and (user.pk == actor.pk or user.is_superuser):
        raise PermissionDenied("This role is not yours to change.")
    check_team(team, organisation)
    member.organisation, member.role, member.team = organisation, role, team
    with acting(actor):
        member.save()
        sync_staff(user, role)
    return member


def sync_staff(user: User, role: str) -> None:
    """Members whose role has work there, and superusers, enter the admin."""
    is_staff = user.is_superuser or role in STAFF
    if user.is_staff != is_staff:
        user.is_staff = is_staff
        user.save(update_fields=["is_staff"])

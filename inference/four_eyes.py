"""Four eyes: who proposes a change does not approve it, where the approver's organisation asks for that."""

from __future__ import annotations

from django.core.exceptions import PermissionDenied
from django.db.models import Model


class SecondPersonNeeded(PermissionDenied):
    """The same person proposed this, or nobody knows who did."""


def require_second_person(proposer: Model | None, approver: Model) -> None:
    """Raises `SecondPersonNeeded`. An approver without an organisation has nobody who could have switched it off."""
    member = getattr(approver, "member", None)
    if member is not None and not member.organisation.four_eyes:
        return
    if proposer is None or proposer.pk == approver.pk:
        raise SecondPersonNeeded("Somebody else must approve what you proposed (four-eyes of your organisation).")

"""What the forms of accounts share: administrators place what they make in their own organisation."""

from __future__ import annotations

from typing import Any

from django.contrib.admin.options import BaseModelAdmin
from django.core.exceptions import PermissionDenied
from django.db.models import ForeignKey
from django.forms import ModelChoiceField
from django.http import HttpRequest

from compliance.access import organisation_of, sees_everything
from console.accounts.models import Organisation, Team, User


class OwnOrganisation(BaseModelAdmin):  # type: ignore[type-arg]
    """Offers every organisation to the operator, and one's own to everybody else."""

    def formfield_for_foreignkey(
        self, db_field: ForeignKey[Any, Any], request: HttpRequest, **kwargs: Any
    ) -> ModelChoiceField[Any] | None:
        if db_field.name == "organisation" and not sees_everything(request.user):
            own = Organisation.objects.filter(members__user=actor_of(request))
            kwargs |= {"queryset": own, "initial": organisation_of(request.user)}
        if db_field.name == "team" and not sees_everything(request.user):
            kwargs |= {"queryset": Team.objects.filter(organisation=organisation_of(request.user))}
        return super().formfield_for_foreignkey(db_field, request, **kwargs)


def actor_of(request: HttpRequest) -> User:
    """The user who acts here; the admin lets nobody else in."""
    if not isinstance(request.user, User):
        raise PermissionDenied
    return request.user

"""Who sees which rows in the admin: members their own organisation's, superusers all. There is no other way in.

What somebody may do comes from their role (console.accounts.roles); here it is narrowed to rows, and records are
closed to every change, a superuser's too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar
from uuid import UUID

from django.db.models import Model, QuerySet
from django.http import HttpRequest

if TYPE_CHECKING:  # unfold has no types; its classes behave as Django's
    from django.contrib.admin import ModelAdmin as _ModelAdmin
    from django.contrib.admin import TabularInline as _TabularInline

    ModelAdmin = _ModelAdmin[Any]
    TabularInline = _TabularInline[Any, Any]
else:
    from unfold.admin import ModelAdmin, TabularInline


def organisation_of(user: object) -> UUID | None:
    """The organisation that this user belongs to, if any."""
    member = getattr(user, "member", None)
    return None if member is None else member.organisation_id


def sees_everything(user: object) -> bool:
    return bool(getattr(user, "is_active", False) and getattr(user, "is_superuser", False))


class ScopedAdmin(ModelAdmin):
    """An admin of rows that belong to an organisation, found at `organisation_path` from the row."""

    organisation_path: ClassVar[str] = "organisation"
    # Filters that name other organisations or their people: shown to those who see everything only.
    wide_filters: ClassVar[tuple[str, ...]] = ("organisation",)
    list_fullwidth = True

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        rows = super().get_queryset(request)
        if sees_everything(request.user):
            return rows
        organisation = organisation_of(request.user)
        return rows.none() if organisation is None else rows.filter(**{self.organisation_path: organisation})

    def get_list_filter(self, request: HttpRequest) -> list[Any]:
        filters = list(super().get_list_filter(request))
        return filters if sees_everything(request.user) else [f for f in filters if f not in self.wide_filters]


class RecordAdmin(ScopedAdmin):
    """An admin of what happened. It shows, and nobody adds, changes or deletes."""

    actions = None
    # A record grows without bound: counting it for every page would cost more than the page.
    show_full_result_count = False

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> Any:
        # What never changes has no history of changes to offer.
        context = {"show_history": False, **(extra_context or {})}
        return super().changeform_view(request, object_id, form_url, context)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False


class RecordInline(TabularInline):
    """The same for rows shown inside another record's page."""

    extra = 0
    can_delete = False

    def has_add_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

"""Organisations and their limits. The operator keeps them; their own people see their own."""

from __future__ import annotations

from collections.abc import Sequence

from django.contrib import admin
from django.db.models import Count, Model, QuerySet
from django.http import HttpRequest

from compliance.access import ScopedAdmin
from console.accounts.models import Organisation


@admin.register(Organisation)
class OrganisationAdmin(ScopedAdmin):
    organisation_path = "pk"
    list_display = ["name", "slug", "is_active", "member_count", "requests_per_minute", "concurrent_answers"]
    list_filter = ["is_active"]
    search_fields = ["name", "slug"]
    given_fields = (
        *("name", "slug", "is_active", "requests_per_minute", "concurrent_answers"),
        *("four_eyes", "requires_evaluation", "residency"),
    )
    readonly_fields = ["created_at"]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Organisation]:
        rows: QuerySet[Organisation] = super().get_queryset(request)
        return rows.annotate(member_count=Count("members"))

    def get_fields(self, request: HttpRequest, obj: Model | None = None) -> tuple[str, ...]:
        return self.given_fields if obj is None else (*self.given_fields, "created_at")

    def get_prepopulated_fields(self, request: HttpRequest, obj: Model | None = None) -> dict[str, Sequence[str]]:
        # Only while it is named: a slug that follows a renaming would break what refers to it.
        return {"slug": ["name"]} if obj is None else {}

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False  # made inactive instead: the record refers to it

    @admin.display(description="Members", ordering="member_count")
    def member_count(self, row: Organisation) -> int:
        return row.member_count  # type: ignore[attr-defined,no-any-return]

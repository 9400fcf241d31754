"""Teams: parts of an organisation with limits and budgets of their own."""

from __future__ import annotations

from django.contrib import admin
from django.db.models import Count, Model, QuerySet
from django.http import HttpRequest

from compliance.access import ScopedAdmin
from console.accounts.admin.own_organisation import OwnOrganisation
from console.accounts.models import Team


@admin.register(Team)
class TeamAdmin(OwnOrganisation, ScopedAdmin):
    list_display = ["name", "organisation", "member_count", "key_count", "created_at"]
    list_filter = ["organisation"]
    list_select_related = ["organisation"]
    search_fields = ["name"]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Team]:
        rows: QuerySet[Team] = super().get_queryset(request)
        return rows.annotate(member_count=Count("members", distinct=True), key_count=Count("api_keys", distinct=True))

    def get_fields(self, request: HttpRequest, obj: Model | None = None) -> tuple[str, ...]:
        return ("organisation", "name") if obj is None else ("organisation", "name", "created_at")

    def get_readonly_fields(self, request: HttpRequest, obj: Model | None = None) -> tuple[str, ...]:
        return () if obj is None else ("organisation", "created_at")

    @admin.display(description="Members", ordering="member_count")
    def member_count(self, row: Team) -> int:
        return row.member_count  # type: ignore[attr-defined,no-any-return]

    @admin.display(description="API keys", ordering="key_count")
    def key_count(self, row: Team) -> int:
        return row.key_count  # type: ignore[attr-defined,no-any-return]

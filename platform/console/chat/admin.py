"""Conversations without what they are about: whose, when and how long. Titles are sealed and not shown."""

from __future__ import annotations

from django.contrib import admin
from django.db.models import Count, IntegerField, OuterRef, QuerySet, Subquery
from django.db.models.functions import Coalesce
from django.http import HttpRequest

from compliance.access import RecordAdmin
from console.chat.models import Conversation
from inference.exchange_models import Exchange


@admin.register(Conversation)
class ConversationAdmin(RecordAdmin):
    date_hierarchy = "updated_at"
    list_display = ["id", "organisation", "held_by", "created_at", "updated_at", "deleted_at", "exchange_count"]
    list_filter = ["organisation", ("deleted_at", admin.EmptyFieldListFilter)]
    search_fields = ["=id", "user__username", "api_key__prefix"]
    search_help_text = "The id of a conversation, a user's name or the first characters of a key"
    fields = ["id", "organisation", "user", "api_key", "created_at", "updated_at", "deleted_at", "exchange_count"]
    readonly_fields = ["exchange_count"]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Conversation]:
        counted = (
            Exchange.objects.filter(conversation_id=OuterRef("pk"))
            .order_by()
            .values("conversation_id")
            .annotate(count=Count("pk"))
            .values("count")
        )
        rows: QuerySet[Conversation] = (
            super().get_queryset(request).select_related("organisation", "user", "api_key").defer("title")
        )
        return rows.annotate(exchange_count=Coalesce(Subquery(counted, output_field=IntegerField()), 0))

    def lookup_allowed(self, lookup: str, value: object, request: HttpRequest) -> bool:
        return not lookup.startswith("title") and super().lookup_allowed(lookup, str(value), request)

    @admin.display(description="Held by")
    def held_by(self, row: Conversation) -> str:
        return str(row.user or row.api_key)

    @admin.display(description="Exchanges", ordering="exchange_count")
    def exchange_count(self, row: Conversation) -> int:
        return row.exchange_count  # type: ignore[attr-defined,no-any-return]

"""The entries of the record: their facts, in clear. Payloads are not fetched, and not opened here."""

from __future__ import annotations

import json
from datetime import UTC

from django.contrib import admin
from django.db.models import QuerySet
from django.db.models.functions import Length
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString

from compliance.access import RecordAdmin
from compliance.audit.models import Entry


@admin.register(Entry)
class EntryAdmin(RecordAdmin):
    organisation_path = "organisation_id"
    date_hierarchy = "recorded_at"
    list_display = ["recorded", "kind", "exchange_id", "organisation_id", "payload_size", "key_id"]
    list_filter = ["kind"]
    search_fields = ["=id", "=exchange_id"]
    search_help_text = "The id of an entry or exchange"
    fields = ["id", "kind", "recorded_at", "organisation_id", "exchange_id", "shown_facts", "payload_size", "key_id"]
    readonly_fields = ["shown_facts", "payload_size"]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Entry]:
        rows: QuerySet[Entry] = super().get_queryset(request).defer("payload")
        return rows.annotate(payload_size=Length("payload"))

    @admin.display(description="Recorded (UTC)", ordering="id")
    def recorded(self, entry: Entry) -> str:
        return f"{entry.recorded_at.astimezone(UTC):%Y-%m-%d %H:%M:%S}"

    @admin.display(description="Facts")
    def shown_facts(self, entry: Entry) -> SafeString:
        return format_html(
            '<pre class="whitespace-pre-wrap">{}</pre>', json.dumps(entry.facts, indent=2, sort_keys=True)
        )

    @admin.display(description="Sealed payload")
    def payload_size(self, entry: Entry) -> str:
        size: int | None = entry.payload_size  # type: ignore[attr-defined]
        return "none" if size is None else f"{size} bytes"

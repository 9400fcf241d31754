"""The entries of the record: their facts, in clear. Payloads are not fetched, and not opened here."""

from __future__ import annotations

import json
from datetime import datetime
from uuid import UUID

from django.contrib import admin
from django.db.models import QuerySet
from django.db.models.functions import Length
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from compliance.access import RecordAdmin
from compliance.audit.models import Entry, EntryKind, Refusal


@admin.register(Entry)
class EntryAdmin(RecordAdmin):
    organisation_path = "organisation_id"
    date_hierarchy = "recorded_at"
    list_display = ["recorded", "kind", "exchange_id", "organisation_id", "payload_size", "key_id"]
    list_filter = ["kind"]
    search_fields = ["=id", "=exchange_id"]
    search_help_text = "The id of an entry or exchange"
    fields = ["id", "kind", "recorded_at", "organisation", "exchange", "shown_facts", "payload_size", "key_id"]
    readonly_fields = ["organisation", "exchange", "shown_facts", "payload_size"]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Entry]:
        rows: QuerySet[Entry] = super().get_queryset(request).defer("payload")
        return rows.annotate(payload_size=Length("payload"))

    @admin.display(description="Recorded", ordering="id")
    def recorded(self, entry: Entry) -> datetime:
        return entry.recorded_at

    @admin.display(description="Organisation")
    def organisation(self, entry: Entry) -> str:
        return _link("accounts_organisation", entry.organisation_id)

    @admin.display(description="Exchange")
    def exchange(self, entry: Entry) -> str:
        # Refusals, budget steps and configuration are about no exchange: there is no page to lead to.
        is_exchange = entry.kind in (EntryKind.INTENT, EntryKind.OUTCOME)
        return _link("inference_exchange", entry.exchange_id) if is_exchange else str(entry.exchange_id)

    @admin.display(description="Facts")
    def shown_facts(self, entry: Entry) -> SafeString:
        return format_html('<pre class="facts">{}</pre>', json.dumps(entry.facts, indent=2, sort_keys=True))

    @admin.display(description="Sealed payload")
    def payload_size(self, entry: Entry) -> str:
        size: int | None = entry.payload_size  # type: ignore[attr-defined]
        return "none" if size is None else f"{size} bytes"


@admin.register(Refusal)
class RefusalAdmin(EntryAdmin):
    """What was refused, why and to whom; the caller's own words are in no refusal."""

    list_display = ["recorded", "error", "field", "channel", "caller", "organisation_id"]
    list_filter = []
    fields = ["id", "recorded_at", "error", "field", "channel", "caller", "organisation", "exchange", "shown_facts"]
    readonly_fields = ["organisation", "exchange", "shown_facts", "error", "field", "channel", "caller"]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Entry]:
        return super().get_queryset(request).filter(kind=EntryKind.REFUSAL)

    @admin.display(description="Refused with", ordering="facts__error_code")
    def error(self, refusal: Refusal) -> str:
        return _fact(refusal, "error_code")

    @admin.display(description="Field at fault")
    def field(self, refusal: Refusal) -> str:
        return _fact(refusal, "param")

    @admin.display(description="Channel")
    def channel(self, refusal: Refusal) -> str:
        return _fact(refusal, "channel")

    @admin.display(description="Caller")
    def caller(self, refusal: Refusal) -> str:
        return _fact(refusal, "caller")


def _fact(entry: Entry, name: str) -> str:
    return str(entry.facts.get(name) or "-")


def _link(model: str, identifier: UUID | None) -> str:
    """The row's page in the admin; by name, since what is recorded knows nothing of the apps above it."""
    if identifier is None:
        return "-"
    return format_html('<a href="{}">{}</a>', reverse(f"admin:{model}_change", args=[identifier]), identifier)

"""The exchanges, which nobody changes. Content is shown nowhere here."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html

import inference.budget_admin
import inference.catalog_admin
import inference.evaluation.admin
import inference.fitting.admin
import inference.routing.admin
import inference.scaling.admin  # noqa: F401 - their pages are registered with these
from compliance.access import RecordAdmin, RecordInline
from compliance.audit.models import Entry, EntryKind
from inference.exchange_models import MIRROR_NUMBER, Attempt, Exchange
from inference.routing.explanation import parse_explanation


class AttemptInline(RecordInline):
    model = Attempt
    fields = ["turn", "deployment", "worker", "status", "error_code", "queued", "ttft", "completion_tokens"]
    verbose_name_plural = "Attempts"
    readonly_fields = ["turn", "queued", "ttft"]

    @admin.display(description="Attempt")
    def turn(self, row: Attempt) -> str:
        return "mirror" if row.number >= MIRROR_NUMBER else str(row.number)

    @admin.display(description="Queued (ms)")
    def queued(self, row: Attempt) -> str:
        return _milliseconds(row.queued_ms)

    @admin.display(description="TTFT (ms)")
    def ttft(self, row: Attempt) -> str:
        return _milliseconds(row.ttft_ms)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Attempt]:
        return super().get_queryset(request).select_related("deployment")


@admin.register(Exchange)
class ExchangeAdmin(RecordAdmin):
    """Facts of each question and its answer: who, where, how long, how much. What was said is in the record."""

    date_hierarchy = "opened_at"
    inlines = [AttemptInline]
    list_display = [
        "opened",
        "asked_by",
        "asked_for",
        "ended",
        "ttft",
        "e2e",
        "tokens",
        "price",
        "findings",
        "deployment",
        "organisation",
    ]
    list_filter = ["status", "channel", "deployment", "finish_reason", "organisation"]
    list_select_related = ["organisation", "user", "api_key", "deployment"]
    # Identifiers are looked up whole: a search inside them would read the whole table.
    search_fields = ["=id", "=conversation_id", "=request_id", "user__username", "api_key__prefix"]
    search_help_text = "An exchange, conversation or request id, a user's name or the first characters of a key"
    fieldsets = [
        (None, {"fields": ["id", "status", "finish_reason", "error_code", "request_id", "conversation_id"]}),
        ("Asked by", {"fields": ["organisation", "user", "api_key", "channel"]}),
        ("Route", {"fields": ["model", "deployment", "route", "owner", "configuration"]}),
        ("Time", {"fields": ["opened_at", "deadline_at", "finished_at", "ttft_ms", "e2e_ms"]}),
        ("Personal data masked", {"fields": ["in_prompt", "in_answer"]}),
        ("Use", {"fields": ["prompt_tokens", "cached_tokens", "completion_tokens", "price"]}),
        ("Record", {"fields": ["intent", "receipt"]}),
    ]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Exchange]:
        # The related rows are joined for the page of one exchange as well.
        return super().get_queryset(request).select_related(*self.list_select_related)

    @admin.display(description="Why this route")
    def route(self, row: Exchange) -> str:
        kept = _facts(row, EntryKind.INTENT).get("route", "-")
        return str(parse_explanation(kept) or kept)

    @admin.display(description="In the prompt")
    def in_prompt(self, row: Exchange) -> str:
        return _counts(_facts(row, EntryKind.INTENT).get("prompt_findings"))

    @admin.display(description="In the answer")
    def in_answer(self, row: Exchange) -> str:
        return _counts(_facts(row, EntryKind.OUTCOME).get("answer_findings"))

    @admin.display(description="Intent")
    def intent(self, row: Exchange) -> str:
        return _link_to_entry(row, EntryKind.INTENT)

    @admin.display(description="Outcome (receipt)")
    def receipt(self, row: Exchange) -> str:
        return _link_to_entry(row, EntryKind.OUTCOME)

    @admin.display(description="Opened", ordering="id")
    def opened(self, row: Exchange) -> datetime:
        return row.opened_at

    @admin.display(description="Status", ordering="status")
    def ended(self, row: Exchange) -> str:
        return " · ".join(filter(None, [row.get_status_display(), row.error_code]))

    @admin.display(description="Findings in / out")
    def findings(self, row: Exchange) -> str:
        return f"{row.prompt_findings} / {row.answer_findings}"

    @admin.display(description="Asked by")
    def asked_by(self, row: Exchange) -> str:
        return str(row.user or row.api_key or "-")

    @admin.display(description="Model", ordering="model")
    def asked_for(self, row: Exchange) -> str:
        return row.model

    @admin.display(description="Tokens in / out")
    def tokens(self, row: Exchange) -> str:
        return f"{_or_dash(row.prompt_tokens)} / {_or_dash(row.completion_tokens)}"

    @admin.display(description="Cost (USD)", ordering="cost")
    def price(self, row: Exchange) -> str:
        return "-" if row.cost is None else f"{row.cost.normalize():f}"

    @admin.display(description="TTFT (ms)", ordering="ttft_ms")
    def ttft(self, row: Exchange) -> str:
        return _milliseconds(row.ttft_ms)

    @admin.display(description="E2E (ms)", ordering="e2e_ms")
    def e2e(self, row: Exchange) -> str:
        return _milliseconds(row.e2e_ms)


def _or_dash(count: int | None) -> str:
    return "-" if count is None else str(count)


def _milliseconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}"


def _entries(row: Exchange) -> dict[str, Entry]:
    """The exchange's entries in the record by kind, without their payloads; read once for a page."""
    found: dict[str, Entry] | None = getattr(row, "_entries_found", None)
    if found is None:
        found = {entry.kind: entry for entry in Entry.objects.filter(exchange_id=row.pk).defer("payload")}
        row._entries_found = found  # type: ignore[attr-defined]
    return found


def _facts(row: Exchange, kind: EntryKind) -> dict[str, Any]:
    entry = _entries(row).get(kind)
    return entry.facts if entry else {}


def _counts(found: Any) -> str:
    return ", ".join(f"{entity} {number}" for entity, number in found.items()) if found else "nothing"


def _link_to_entry(row: Exchange, kind: EntryKind) -> str:
    entry = _entries(row).get(kind)
    if entry is None:
        return "-"
    return format_html('<a href="{}">{}</a>', reverse("admin:audit_entry_change", args=[entry.pk]), entry.pk)

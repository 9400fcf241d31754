"""Limits, budgets and the ledger in the console. Budgets show what their period has spent so far."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from django.conf import settings
from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.utils.formats import localize
from unfold.decorators import action

from compliance.access import RecordAdmin, RecordInline, ScopedAdmin
from inference.budget_models import Budget, BudgetCrossing, LedgerMonth, Limit, Transfer
from inference.budget_queries import Standing, standing_of
from inference.crossing_mails import MAX_TRIES, NOBODY
from inference.ledger_csv import months_as_csv


@admin.register(Limit)
class LimitAdmin(ScopedAdmin):
    list_display = ["whose", "model", "requests_per_minute", "tokens_per_minute", "concurrent_answers"]
    list_filter = ["organisation"]
    list_select_related = ["organisation", "team", "api_key", "user"]
    autocomplete_fields = ["organisation", "team", "api_key", "user"]
    fieldsets = [
        (
            "For",
            {
                "fields": ["organisation", "team", "api_key", "user", "model"],
                "description": "All who ask within it share the limit; each key and user has limits of its own, too.",
            },
        ),
        ("At most", {"fields": ["requests_per_minute", "tokens_per_minute", "concurrent_answers"]}),
    ]

    @admin.display(description="For")
    def whose(self, row: Limit) -> str:
        return " · ".join(str(part) for part in (row.organisation, row.narrowest()) if part) or "Everybody"


class CrossingInline(RecordInline):
    model = BudgetCrossing
    fields = ["period", "stage", "crossed_at", "told"]
    readonly_fields = ["told"]
    verbose_name_plural = "Steps reached"

    @admin.display(description="Told by mail")
    def told(self, row: BudgetCrossing) -> str:
        if row.notified_at is not None:
            return f"{localize(row.notified_at)} UTC"
        if not settings.EMAIL_HOST:
            return "no mail server is set"
        if row.tries:
            again = "given up" if row.tries >= MAX_TRIES else "it is tried again"
            why = "no administrator has an address" if row.notice_error == NOBODY else row.notice_error
            return f"not yet: {why} ({again})"
        return "not yet"


@admin.register(Budget)
class BudgetAdmin(ScopedAdmin):
    list_display = ["whose", "period", "amount", "spent", "share", "renews", "is_enabled"]
    list_filter = ["period", "is_enabled", "organisation"]
    list_select_related = ["organisation", "team", "api_key"]
    autocomplete_fields = ["organisation", "team", "api_key"]
    inlines = [CrossingInline]
    given_fieldsets = [
        (
            "For",
            {
                "fields": ["organisation", "team", "api_key"],
                "description": "With none of them it is the platform's: engine-hours of its own deployments and tokens "
                "of external ones.",
            },
        ),
        ("Budget", {"fields": ["period", "amount", "is_enabled"]}),
        ("Ladder", {"fields": ["warn_at", "degrade_at", "cheaper_model", "refuse_batch_at", "refuse_at"]}),
    ]

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        shown = ("This period", {"fields": ["spent", "left", "share", "renews"]})
        return self.given_fieldsets if obj is None else [*self.given_fieldsets, shown]

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        # Another scope or period is another budget: what was spent belongs to the one it was spent under.
        fixed = ["organisation", "team", "api_key", "period"] if obj else []
        return [*fixed, "spent", "left", "share", "renews"]

    @admin.display(description="For", ordering="organisation__name")
    def whose(self, row: Budget) -> str:
        return str(row.api_key or row.team or row.organisation or "The platform")

    @admin.display(description="Spent (USD)")
    def spent(self, row: Budget) -> str:
        return f"{_standing(row).spent:.6f}"

    @admin.display(description="Left (USD)")
    def left(self, row: Budget) -> str:
        return f"{max(Decimal(0), row.amount - _standing(row).spent):.6f}"

    @admin.display(description="Spent (%)")
    def share(self, row: Budget) -> str:
        return f"{_standing(row).spent / row.amount * 100:.1f}" if row.amount else "100.0"

    @admin.display(description="Renews")
    def renews(self, row: Budget) -> str:
        return f"{_standing(row).renews:%Y-%m-%d} UTC"


def _standing(row: Budget) -> Standing:
    found: Standing | None = getattr(row, "_standing", None)
    if found is None:
        found = row._standing = standing_of(row, datetime.now(UTC))  # type: ignore[attr-defined]
    return found


@admin.register(Transfer)
class TransferAdmin(RecordAdmin):
    """The ledger: rows are added by answers and engine-hours, and never changed."""

    list_display = ["at", "kind", "organisation", "deployment", "model", "usd", "tokens"]
    list_filter = ["kind", "external", "deployment", "organisation"]
    list_select_related = ["organisation", "deployment"]
    search_fields = ["=exchange_id", "=api_key_id", "=team_id", "=user_id"]
    search_help_text = "The identifier of an exchange, key, team or user"
    date_hierarchy = "at"

    @admin.display(description="Amount (USD)", ordering="amount")
    def usd(self, row: Transfer) -> str:
        return f"{row.amount.normalize():f}"

    @admin.display(description="Tokens in / cached / out")
    def tokens(self, row: Transfer) -> str:
        return f"{row.prompt_tokens} / {row.cached_tokens} / {row.completion_tokens}"


@admin.register(LedgerMonth)
class LedgerMonthAdmin(RecordAdmin):
    """What the ledger adds up to, month by month, and as a table to take away."""

    list_display = ["when", "kind", "organisation", "deployment", "model", "usd", "tokens", "transfers"]
    list_filter = ["kind", "external", "deployment", "organisation"]
    list_select_related = ["organisation", "deployment"]
    search_fields = ["=api_key_id", "=team_id", "=user_id"]
    search_help_text = "The identifier of a key, team or user"
    actions_list = ["export"]

    @admin.display(description="Month", ordering="month")
    def when(self, row: LedgerMonth) -> str:
        return f"{row.month:%Y-%m}"

    @admin.display(description="Amount (USD)", ordering="amount")
    def usd(self, row: LedgerMonth) -> str:
        return f"{row.amount.normalize():f}"

    @admin.display(description="Tokens in / cached / out")
    def tokens(self, row: LedgerMonth) -> str:
        return f"{row.prompt_tokens} / {row.cached_tokens} / {row.completion_tokens}"

    @action(description="All as CSV", url_path="csv", icon="download")  # type: ignore[untyped-decorator]
    def export(self, request: HttpRequest) -> HttpResponse:
        if not self.has_view_permission(request):
            raise PermissionDenied
        rows = self.get_queryset(request).select_related("organisation", "deployment")
        headers = {"Content-Disposition": 'attachment; filename="ledger-by-month.csv"'}
        return HttpResponse(months_as_csv(rows), content_type="text/csv; charset=utf-8", headers=headers)

"""The ledger's months as a table for spreadsheets (RFC 4180), in which no cell is a formula."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from decimal import Decimal

from inference.budget_models import LedgerMonth

HEAD = (
    *("month", "kind", "organisation", "team", "api_key", "user", "deployment", "model", "external", "amount_usd"),
    *("prompt_tokens", "cached_tokens", "answer_tokens", "transfers"),
)
# A cell that begins with one of these is computed by the program that opens it.
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def months_as_csv(rows: Iterable[LedgerMonth]) -> str:
    """One line for each row; amounts with all their digits."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(HEAD)
    for row in rows:
        writer.writerow([safe_cell(value) for value in _values(row)])
    return text.getvalue()


def safe_cell(value: object) -> str:
    """The value as text, marked as text where it would be a formula."""
    if isinstance(value, Decimal):
        return f"{value:f}"
    text = "" if value is None else str(value)
    return f"'{text}" if text.startswith(FORMULA) else text


def _values(row: LedgerMonth) -> tuple[object, ...]:
    names = (f"{row.month:%Y-%m}", row.kind, row.organisation.name if row.organisation else "")
    ids = (row.team_id, row.api_key_id, row.user_id, row.deployment.slug, row.model, "yes" if row.external else "no")
    counts = (row.prompt_tokens, row.cached_tokens, row.completion_tokens, row.transfers)
    return (*names, *ids, row.amount, *counts)

"""The ledger added up by day, beside the request's way: reports read this and no single transfer."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import structlog
from django.db import connection, transaction

from inference.budget_models import LedgerDay

log = structlog.get_logger(__name__)

# An exchange counts on the day it was opened; its outcome, and the reconciliation of a lost one, come later.
DAYS_STILL_OPEN = 2
LOCK = 0x42757273617202  # one at a time, whoever asks
ADD_UP = """
    INSERT INTO inference_ledgerday (day, kind, organisation_id, team_id, api_key_id, user_id, deployment_id, external,
        model, amount, prompt_tokens, cached_tokens, completion_tokens, transfers)
    SELECT (at AT TIME ZONE 'UTC')::date, kind, organisation_id, team_id, api_key_id, user_id, deployment_id, external,
        model, sum(amount), sum(prompt_tokens), sum(cached_tokens), sum(completion_tokens), count(*)
    FROM inference_transfer WHERE at >= %s AND at < %s
    GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9
"""


def roll_up(now: datetime) -> int:
    """Add up every day that may have changed since the last time; how many days. The same whoever runs it how often."""
    first = _first_day(now.astimezone(UTC).date())
    if first is None:
        return 0
    days = (now.astimezone(UTC).date() - first).days + 1
    for number in range(days):
        _add_up(first + timedelta(days=number))
    return days


def _first_day(today: date) -> date | None:
    """The oldest day that is not final; None where there is no transfer at all."""
    # A row of a day to come, from a clock that was ahead, says nothing of the days before it.
    newest = LedgerDay.objects.filter(day__lte=today).order_by("-day").values_list("day", flat=True).first()
    if newest is not None:
        return newest - timedelta(days=DAYS_STILL_OPEN)
    with connection.cursor() as cursor:
        cursor.execute("SELECT min((at AT TIME ZONE 'UTC')::date) FROM inference_transfer")
        oldest = cursor.fetchone()[0]
    return None if oldest is None else min(oldest, today)


def _add_up(day: date) -> None:
    start = datetime(day.year, day.month, day.day, tzinfo=UTC)
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [LOCK])
        LedgerDay.objects.filter(day=day).delete()
        cursor.execute(ADD_UP, [start, start + timedelta(days=1)])

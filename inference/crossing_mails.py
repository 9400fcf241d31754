"""Mails about steps that a budget reached, sent once each: the crossings themselves are the outbox.

A mail is sent in the transaction that marks its crossings, which are locked meanwhile. A sender that dies between the
two leaves them unmarked, and the mail goes out a second time; none is lost.
"""

from __future__ import annotations

import smtplib
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

import structlog
from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.mail import EmailMessage
from django.db import transaction
from django.db.models import F, Q, QuerySet
from django.urls import reverse

from inference.budget_models import Budget, BudgetCrossing
from inference.budget_queries import standing_of

log = structlog.get_logger(__name__)

# What is older is history and no news: of a console that got its mail server late, for instance.
NEWS = timedelta(days=1)
MAX_TRIES = 10
FIRST_PAUSE = timedelta(seconds=15)
NOBODY = "no_recipient"
ADMINISTRATOR = "administrator"

WHAT_FOLLOWS = {
    1: "Nothing changes: this is a warning.",
    2: "From now on the budget's cheaper model answers, where it names one.",
    3: "From now on requests of priority batch are refused.",
    4: "From now on every request is refused, until the budget renews or is raised.",
}


def send_crossing_mails(now: datetime) -> int:
    """Send what is due, one mail for each budget and period; how many. Nothing where no mail server is set."""
    if not settings.EMAIL_HOST:
        return 0
    sent = 0
    for budget, period in _due(now).order_by("budget", "period").values_list("budget", "period").distinct():
        sent += _send(budget, period, now)
    return sent


def _due(now: datetime) -> QuerySet[BudgetCrossing]:
    tries = Q()
    for number in range(1, MAX_TRIES):
        tries |= Q(tries=number, tried_at__lte=now - FIRST_PAUSE * 2 ** (number - 1))
    return BudgetCrossing.objects.filter(Q(tries=0) | tries, notified_at=None, crossed_at__gt=now - NEWS)


@transaction.atomic
def _send(budget: Any, period: str, now: datetime) -> bool:
    """One mail about all that is due of a budget's period. Whoever else looks at it meanwhile passes it over."""
    due = _due(now).filter(budget=budget, period=period).select_for_update(skip_locked=True, of=("self",))
    crossings = list(due.order_by("stage").select_related("budget__organisation", "budget__team", "budget__api_key"))
    if not crossings:
        return False
    rows = BudgetCrossing.objects.filter(pk__in=[crossing.pk for crossing in crossings])
    error = _try(crossings, now)
    if error is not None:
        rows.update(tries=F("tries") + 1, tried_at=now, notice_error=error)
        log.warning("crossing_mail_not_sent", budget=str(budget), error=error)
        return False
    rows.update(tries=F("tries") + 1, tried_at=now, notified_at=now, notice_error="")
    return True


def _try(crossings: list[BudgetCrossing], now: datetime) -> str | None:
    """Why the mail could not be sent, in a word; None where it was. The server's own words may hold addresses."""
    budget = crossings[0].budget
    addresses = sorted(set(_recipients(budget)))
    if not addresses:
        return NOBODY
    errors = [_error_of_sending(_mail(crossings, now, address)) for address in addresses]
    # One who was told is enough: a second mail to them would not help another's address.
    return None if None in errors else errors[0]


def _error_of_sending(mail: EmailMessage) -> str | None:
    try:
        mail.send()
    except smtplib.SMTPResponseException as error:
        return f"smtp_{error.smtp_code}"
    except (smtplib.SMTPException, OSError, ValueError) as error:
        log.warning("mail_not_sent", error=type(error).__name__)
        return type(error).__name__[:40]
    return None


def _recipients(budget: Budget) -> Iterable[str]:
    """Administrators of the budget's organisation; of the platform's, those who see everything."""
    people = get_user_model().objects.filter(is_active=True).exclude(email="")
    if budget.organisation_id is None:
        return people.filter(is_superuser=True).values_list("email", flat=True)
    return people.filter(member__organisation_id=budget.organisation_id, member__role=ADMINISTRATOR).values_list(
        "email", flat=True
    )


def _mail(crossings: list[BudgetCrossing], now: datetime, address: str) -> EmailMessage:
    furthest = crossings[-1]
    budget, standing = furthest.budget, standing_of(furthest.budget, furthest.crossed_at)
    page = reverse("admin:inference_budget_change", args=[budget.pk])
    lines = [
        f"The budget “{budget}” has reached {_percent(budget, furthest.stage)} % of {budget.amount} USD"
        f" in {furthest.period}: {furthest.get_stage_display().lower()}.",
        "",
        WHAT_FOLLOWS[furthest.stage],
        "",
        f"Spent: {standing.spent:.2f} USD of {budget.amount} USD, besides what is held for answers under way.",
        f"Renews: {standing.renews:%Y-%m-%d} UTC.",
        f"Reached: {furthest.crossed_at:%Y-%m-%d %H:%M:%S} UTC.",
        "",
        f"{settings.PUBLIC_URL.rstrip('/')}{page}",
    ]
    # A name is whatever somebody typed: in a header it is one line.
    subject = " ".join(f"[Bursar] {budget}: {furthest.get_stage_display().lower()}".split())
    return EmailMessage(subject, "\n".join(lines), None, [address])


def _percent(budget: Budget, stage: int) -> str:
    thresholds = (budget.warn_at, budget.degrade_at, budget.refuse_batch_at, budget.refuse_at)
    return f"{thresholds[stage - 1].normalize():f}"

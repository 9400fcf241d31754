"""How many wrong passwords are taken: by user and address together, and by address alone with more room.

django-axes counts and refuses; this says how much, what is kept and what the person sees.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import structlog
from axes.handlers.database import AxesDatabaseHandler
from axes.models import AccessAttempt
from django.conf import settings
from django.db import connection
from django.db.models import Sum
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.utils.crypto import salted_hmac
from psycopg.types.json import Jsonb

from compliance.audit.entries import INSERT
from compliance.audit.models import EntryKind
from console.accounts.models import User
from gpu_workers.identifiers import uuid7
from inference.errors import Refusal

log = structlog.get_logger(__name__)

# An office shares an address: several people may be wrong there before all of them have to wait.
FAILURES_OF_ADDRESS = 50
LOCKED = Refusal("rate_limit_exceeded", "Too many wrong passwords.", param="sign-in")


class SignInLimits(AxesDatabaseHandler):  # type: ignore[misc]
    """Two counts with a limit each, where axes has one limit for all of them."""

    def get_failures(self, request: HttpRequest, credentials: dict[str, Any] | None = None) -> int:
        of_pair, of_address = (_sum(attempts) for attempts in self.get_user_attempts(request, credentials))
        limit: int = settings.AXES_FAILURE_LIMIT
        return max(of_pair, limit) if of_address >= FAILURES_OF_ADDRESS else of_pair

    def reset_user_attempts(self, request: HttpRequest, credentials: dict[str, Any] | None = None) -> int:
        """Who signs in clears their own count. The address keeps its: else one account would open all others."""
        of_pair, _ = self.filter_user_attempts(request, credentials)
        deleted: int = of_pair.delete()[0]
        return deleted


def _sum(attempts: Any) -> int:
    return attempts.aggregate(failures=Sum("failures_since_start"))["failures"] or 0


def counted_name(request: HttpRequest, credentials: dict[str, Any] | None) -> str:
    """The name under which a failure is kept: a user's own, and of what is nobody's a digest.

    It may be a password that went into the wrong field, and be longer than any name.
    """
    name = str((credentials or {}).get("username") or "")
    if User.objects.filter(username=name).exists():
        return name
    return f"unknown {salted_hmac(__name__, name, algorithm='sha256').hexdigest()[:32]}"


def respond(request: HttpRequest, response: HttpResponse, credentials: Any) -> HttpResponse:
    """The page of somebody who has to wait: the same whether there is such a user or not."""
    wait: timedelta = settings.AXES_COOLOFF_TIME
    minutes = int(wait.total_seconds() // 60)
    page = render(request, "429.html", {"minutes": minutes}, status=429)
    page["Retry-After"] = str(int(wait.total_seconds()))
    return page


def keep_no_content(sender: type[AccessAttempt], instance: AccessAttempt, **_: Any) -> None:
    """Axes would keep what the form and the address held, and add to it with every failure."""
    instance.get_data = instance.post_data = ""


def record_lockout(sender: Any, request: HttpRequest, username: str, **_: Any) -> None:
    """Axes says it of every request that is refused, the record of the failure that reached the limit."""
    if request.axes_failures_since_start is None:  # type: ignore[attr-defined]
        return
    user = User.objects.filter(username=username).select_related("member").first()
    member = getattr(user, "member", None)
    caller = f"user:{user.pk}" if user else "unknown"
    facts = {"error_code": LOCKED.code, "param": LOCKED.param, "channel": "page", "caller": caller}
    organisation_id = member.organisation_id if member else None
    entry: Any = (uuid7(), organisation_id, uuid7(), EntryKind.REFUSAL.value, timezone.now(), Jsonb(facts), None, "")
    with connection.cursor() as cursor:
        cursor.execute(INSERT, entry)
    log.warning("sign_in_locked", caller=caller)


def forget_attempts() -> int:
    """Delete the failures that count no more, names and addresses with them; how many there were."""
    until = timezone.now() - settings.AXES_COOLOFF_TIME
    deleted: int = AccessAttempt.objects.filter(attempt_time__lte=until).delete()[0]
    return deleted

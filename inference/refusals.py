"""Refusals outside an exchange, recorded: callers that are not known, and input that could not be parsed."""

from __future__ import annotations

from collections import Counter
from uuid import UUID

import structlog

from compliance.audit.entries import insert_entry
from compliance.audit.models import EntryKind
from compliance.audit.writer import GroupWriter
from gpu_workers.identifiers import uuid7
from inference.errors import Refusal
from inference.rates import TokenBucket

log = structlog.get_logger(__name__)

# What anybody can cause must not fill the record: past this rate a caller's refusals are counted, and the count is
# recorded. All unknown callers are one.
MAX_PER_SECOND = 50
MAX_CALLERS = 10_000


class RefusalRecorder:
    """One per process. Never waits, and holds nothing that the caller sent."""

    def __init__(self, writer: GroupWriter) -> None:
        self._writer = writer
        self._rates: dict[str, TokenBucket] = {}
        self._suppressed: Counter[str] = Counter()

    def record(self, refusal: Refusal, *, channel: str, caller: str, organisation_id: UUID | None) -> None:
        """`caller` is the name of a known one, or "unknown"."""
        if not self.may_record(caller):
            return
        facts = {"error_code": refusal.code, "param": refusal.recorded_param, "channel": channel, "caller": caller}
        if suppressed := self._suppressed.pop(caller, 0):
            facts["suppressed_before"] = str(suppressed)
        entry = insert_entry(
            uuid7(), organisation_id=organisation_id, exchange_id=uuid7(), kind=EntryKind.REFUSAL, facts=facts
        )
        self._writer.submit([entry])

    def may_record(self, caller: str) -> bool:
        """False past the rate; what is then left out is counted."""
        allowed = self._rate_of(caller).take()
        if not allowed:
            self._suppressed[caller] += 1
        return allowed

    def _rate_of(self, caller: str) -> TokenBucket:
        if caller not in self._rates:
            if len(self._rates) >= MAX_CALLERS:
                self._rates.clear()  # all begin anew, with a full bucket each
                self._suppressed.clear()
            self._rates[caller] = TokenBucket(MAX_PER_SECOND)
        return self._rates[caller]

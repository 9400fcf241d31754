"""Refusals outside an exchange, recorded: callers that are not known, and input that could not be parsed."""

from __future__ import annotations

from uuid import UUID

import structlog

from compliance.audit.entries import insert_entry
from compliance.audit.models import EntryKind
from compliance.audit.writer import GroupWriter
from gpu_workers.identifiers import uuid7
from inference.errors import Refusal
from inference.rates import TokenBucket

log = structlog.get_logger(__name__)

# What anybody can cause must not fill the record: past this rate refusals are counted, and the count is recorded.
MAX_PER_SECOND = 20


class RefusalRecorder:
    """One per process. Never waits, and holds nothing that the caller sent."""

    def __init__(self, writer: GroupWriter) -> None:
        self._writer = writer
        self._rate = TokenBucket(MAX_PER_SECOND)
        self._suppressed = 0

    def record(self, refusal: Refusal, *, channel: str, caller: str, organisation_id: UUID | None) -> None:
        """`caller` is the name of a known one, or "unknown"."""
        if not self._rate.take():
            self._suppressed += 1
            return
        facts = {"error_code": refusal.code, "param": refusal.param, "channel": channel, "caller": caller}
        if self._suppressed:
            facts["suppressed_before"] = str(self._suppressed)
            self._suppressed = 0
        entry = insert_entry(
            uuid7(), organisation_id=organisation_id, exchange_id=uuid7(), kind=EntryKind.REFUSAL, facts=facts
        )
        self._writer.submit([entry])

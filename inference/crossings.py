"""Steps that a budget's ladder reached: each recorded once a period, whichever process notices it first."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Protocol
from uuid import UUID

import structlog
from psycopg.types.json import Jsonb

from compliance.audit.models import EntryKind
from compliance.audit.writer import GroupWriter, Statement
from gpu_workers.identifiers import uuid7
from inference.budgets import Budget, Stage, period_label

log = structlog.get_logger(__name__)

# The crossing and its entry in the record, or neither: the table holds a step of a period once.
RECORD = (
    "WITH crossing AS (INSERT INTO inference_budgetcrossing (id, budget_id, period, stage, crossed_at)"
    " VALUES (%s, %s, %s, %s, %s) ON CONFLICT DO NOTHING RETURNING id)"
    " INSERT INTO audit_entry (id, organisation_id, exchange_id, kind, recorded_at, facts, key_id)"
    " SELECT %s, %s, id, %s, %s, %s, '' FROM crossing"
)


class Opened(Protocol):
    """The exchange in which a step was noticed: its opening decides the period."""

    @property
    def opened_at(self) -> datetime: ...


class CrossingRecorder:
    """Not waited for: a crossing that cannot be written now is noticed again by the next request."""

    def __init__(self, writer: GroupWriter) -> None:
        self._writer = writer
        self._known: set[tuple[UUID, str, Stage]] = set()

    def note(self, exchange: Opened, reached: tuple[tuple[Budget, Stage], ...]) -> None:
        """Record every step up to the ones that were reached."""
        for budget, stage in reached:
            period = period_label(budget.period, exchange.opened_at)
            for step in range(Stage.WARNED, stage + 1):
                self._note(budget, period, Stage(step))

    def _note(self, budget: Budget, period: str, step: Stage) -> None:
        if (budget.id, period, step) in self._known:
            return
        self._known.add((budget.id, period, step))
        now = datetime.now(UTC)
        organisation = budget.organisation_id
        facts = {"budget": str(budget.id), "scope": budget.scope, "period": period, "step": step.name.lower()}
        crossing = (uuid7(), budget.id, period, int(step), now)
        entry = (uuid7(), organisation, EntryKind.BUDGET.value, now, Jsonb(facts))
        written = self._writer.submit([Statement(RECORD, (*crossing, *entry))])
        written.add_done_callback(
            lambda done: (
                self._known.discard((budget.id, period, step)) if done.cancelled() or done.exception() else None
            )
        )
        log.warning("budget_step_reached", budget=str(budget.id), period=period, step=step.name.lower())

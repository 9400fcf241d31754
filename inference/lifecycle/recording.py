"""Entries in the record about steps of a lifecycle: identifiers, states and times, and nobody's name."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from compliance.access import organisation_of
from compliance.audit.models import Entry, EntryKind
from gpu_workers.identifiers import uuid7
from inference.lifecycle.models import LifecycleStep


def record_step(step: LifecycleStep, event: str, actor: Any | None) -> None:
    """Added in the transaction of the step itself. Without an actor it is time that did it, and whoever approved."""
    by = actor or step.approved_by
    Entry.objects.create(
        organisation_id=organisation_of(by),
        exchange_id=uuid7(),  # an entry about no exchange: an identifier of its own
        kind=EntryKind.CONFIGURATION,
        facts={
            "about": "lifecycle",
            "event": event,
            "model_version": str(step.model_version_id),
            "model": step.model_version.name,
            "version": step.model_version.version,
            "step": str(step.pk),
            "kind": step.kind,
            "from": step.from_state,
            "to": step.to_state,
            "effective_from": _text(step.effective_from),
            "proposed_by": _text(step.proposed_by_id),
            "approved_by": _text(step.approved_by_id),
            **({"figures": step.figures} if step.figures else {}),
            "by": _text(actor.pk if actor is not None else None),
        },
    )


def _text(value: datetime | UUID | None) -> str | None:
    if isinstance(value, datetime):
        return value.isoformat()
    return None if value is None else str(value)

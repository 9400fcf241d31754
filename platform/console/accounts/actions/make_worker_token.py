"""Make the token with which a GPU host joins. It is in the return value and nowhere else; that it was made is kept."""

from __future__ import annotations

from auditlog.models import LogEntry
from django.db import transaction

from compliance.audit.models import Entry, EntryKind
from gpu_workers.enrolment import Enrolment, write_token
from gpu_workers.identifiers import uuid7
from gpu_workers.sealing import fingerprint
from inference.models import Deployment


@transaction.atomic
def make_worker_token(deployment: Deployment, seal_key: bytes) -> str:
    """For whoever can run the platform's own commands, and has the seal key already: no other permission is asked."""
    seal = fingerprint(seal_key)
    Entry.objects.create(
        organisation_id=None,
        exchange_id=uuid7(),  # an entry about no exchange: an identifier of its own
        kind=EntryKind.CONFIGURATION,
        facts={"about": "enrolment", "event": "worker_token_made", "deployment": deployment.slug, "seal": seal},
    )
    LogEntry.objects.log_create(
        deployment, action=LogEntry.Action.ACCESS, changes={"worker_token": [None, f"made, for seal key {seal}"]}
    )
    return write_token(Enrolment(seal_key, deployment.slug))

"""What would happen with a request now, and what happened with one: the same explanation for both."""

from __future__ import annotations

import time
from uuid import UUID

from asgiref.sync import async_to_sync
from django.db import connection

from compliance.audit.models import Entry, EntryKind
from inference.catalog import Catalog
from inference.fleet_now import fleet_now
from inference.models import Configuration
from inference.routing.deciding import Outcome, weigh
from inference.routing.explanation import Explanation, parse_explanation
from inference.routing.facts import RequestFacts
from inference.routing.live import shared
from inference.routing.queries import active_rule_set
from inference.snapshot import SELECT_CANDIDATES, models_of


def explain_now(facts: RequestFacts) -> Outcome:
    """Decide for this request with the configuration and the workers of this moment, and send it nowhere.

    What was measured is this process's own: another one, such as a command's, has measured nothing.
    Raises `Refusal` for a model that is not served.
    """
    return async_to_sync(_weigh)(facts, _catalog())


async def _weigh(facts: RequestFacts, catalog: Catalog) -> Outcome:
    # On the server's own event loop, where nothing is measured meanwhile.
    fleet = await fleet_now()
    return weigh(facts, catalog, fleet, shared(), time.monotonic())


def _catalog() -> Catalog:
    configuration = Configuration.objects.first()
    active = active_rule_set()
    with connection.cursor() as cursor:
        cursor.execute(SELECT_CANDIDATES, [None])
        models = models_of(cursor.fetchall())
    return Catalog(configuration.version if configuration else 0, models, active.as_rule_set() if active else None)


def recorded_explanation(exchange: UUID) -> Explanation | None:
    """Why an exchange went where it went; None for one that was refused, or recorded before there were any."""
    entries = Entry.objects.filter(exchange_id=exchange, kind=EntryKind.INTENT)
    facts = entries.values_list("facts", flat=True).first()
    return parse_explanation(facts.get("route")) if facts else None

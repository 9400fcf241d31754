"""The active rule set, read for the snapshot."""

from __future__ import annotations

from typing import Any

import msgspec
import psycopg
import structlog

from inference.routing.rules import RuleSet

log = structlog.get_logger(__name__)

SELECT_RULE_SET = """
    SELECT s.version, s.aliases, coalesce(
        jsonb_agg(jsonb_build_object('name', r.name, 'conditions', r.conditions, 'route', r.route)
                  ORDER BY r.position, r.id) FILTER (WHERE r.id IS NOT NULL), '[]')
    FROM inference_routingruleset s LEFT JOIN inference_routingrule r ON r.rule_set_id = s.id
    WHERE s.state = 'active' GROUP BY s.id
"""


async def load_rule_set(connection: psycopg.AsyncConnection[Any]) -> RuleSet | None:
    """None when no rule set is active. Raises `psycopg.DataError` for one that was written past the console.

    Going on without it could send a request where its rules forbid: the snapshot stays old, and soon nothing is served.
    """
    row = await (await connection.execute(SELECT_RULE_SET)).fetchone()
    if row is None:
        return None
    try:
        return msgspec.convert({"version": row[0], "aliases": row[1], "rules": row[2]}, RuleSet)
    except msgspec.ValidationError:
        log.error("rule_set_not_understood", version=row[0])
        raise psycopg.DataError("The active rule set cannot be understood.") from None

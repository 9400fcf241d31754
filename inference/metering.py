"""Metering: what an answer cost, booked in the ledger in the transaction that records its outcome."""

from __future__ import annotations

from decimal import Decimal
from uuid import UUID

import structlog

from compliance.audit.writer import Statement
from gpu_workers.identifiers import uuid7
from gpu_workers.messages import Usage
from inference.budgets import NANO, Demand, nano
from inference.catalog import Candidate, Prices
from inference.reservations import Used

log = structlog.get_logger(__name__)

MILLION = Decimal(1_000_000)
# Who pays, for which key and team, and the period come from the exchange's own row.
BOOK_ANSWER = (
    "INSERT INTO inference_transfer (id, kind, exchange_id, organisation_id, team_id, api_key_id, user_id,"
    " deployment_id, external, model, amount, prompt_tokens, cached_tokens, completion_tokens, at)"
    " SELECT %s, 'answer', id, organisation_id, team_id, api_key_id, user_id, deployment_id, %s, %s, %s, %s, %s, %s,"
    " opened_at FROM inference_exchange WHERE id = %s"
)


def cost_of(usage: Usage, prices: Prices) -> Decimal:
    """USD, exact. Cached prompt tokens are paid at their own price and not at the input price."""
    fresh = max(usage.prompt_tokens - usage.cached_tokens, 0)
    total = fresh * prices.input + usage.cached_tokens * prices.cached + usage.completion_tokens * prices.output
    return total / MILLION


def bounded(cost: Decimal, demand: Demand) -> Decimal:
    """The cost, at most what was held for it: an engine that counts what nobody asked for is not paid for that."""
    held = Decimal(demand.cost) / NANO
    if cost > held:
        log.warning("engine_counts_more_than_asked_for", cost=str(cost), held=str(held))
    return min(cost, held)


def used(usage: Usage, cost: Decimal, candidate: Candidate) -> Used:
    return Used(usage.prompt_tokens + usage.completion_tokens, nano(cost), candidate.external)


def book(exchange_id: UUID, usage: Usage, cost: Decimal, candidate: Candidate) -> Statement:
    """The transfer from the organisation to the deployment. A second one for the exchange fails."""
    tokens = (usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens)
    return Statement(BOOK_ANSWER, (uuid7(), candidate.external, candidate.model, cost, *tokens, exchange_id))

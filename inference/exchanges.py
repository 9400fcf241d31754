"""One exchange while it is served, and the statements that its intent and its outcome leave in the database."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec

from compliance.audit.entries import IntentPayload, OutcomePayload, insert_entry
from compliance.audit.models import EntryKind
from compliance.audit.writer import Statement
from compliance.pii.findings import Finding, count
from gpu_workers.identifiers import uuid7
from gpu_workers.messages import ChatMessage, Usage
from inference import metering
from inference.attempts import AttemptRun
from inference.budgets import NANO
from inference.catalog import Catalog
from inference.errors import Refusal
from inference.events import DEADLINE_S, Ask, Caller
from inference.exchange_models import ExchangeStatus
from inference.generation import Generation
from inference.reservations import Reservation, Used
from inference.routing import Decision

TITLE_CHARS = 80

INSERT_EXCHANGE = (
    "INSERT INTO inference_exchange (id, organisation_id, user_id, api_key_id, conversation_id, request_id, channel,"
    " model, deployment_id, status, owner, configuration, opened_at, deadline_at, prompt_findings,"
    " team_id, reserved, reserved_external, budget_generation)"
    " VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, 'open', %s, %s, %s, %s, %s,"
    " %s, %s, %s, inference_check_generation(%s))"
)
CLOSE_EXCHANGE = (
    "UPDATE inference_exchange SET status = %s, finish_reason = %s, error_code = %s, finished_at = %s,"
    " prompt_tokens = %s, cached_tokens = %s, completion_tokens = %s, cost = %s, ttft_ms = %s, e2e_ms = %s,"
    " answer_findings = %s, deployment_id = %s WHERE id = %s"
)
INSERT_ATTEMPT = (
    "INSERT INTO inference_attempt (id, exchange_id, number, deployment_id, worker, status, error_code, queued_ms,"
    " ttft_ms, completion_tokens) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s)"
)


@dataclass
class Exchange:
    """State of one exchange in the process that serves it."""

    ask: Ask
    caller: Caller
    owner: str
    # As it was when the exchange opened: it goes nowhere that its money was not held for.
    catalog: Catalog = field(default_factory=Catalog)
    opened_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    opened: float = field(default_factory=time.monotonic)
    messages: tuple[ChatMessage, ...] = ()
    prompt_findings: list[Finding] = field(default_factory=list)
    answer_findings: list[Finding] = field(default_factory=list)
    decision: Decision | None = None
    intent_recorded: bool = False
    ttft_ms: float | None = None
    e2e_ms: float | None = None
    released: list[str] = field(default_factory=list)
    deadline_s: float = DEADLINE_S
    # What is settled when it ends here: nothing before the intent, unknown after it, then what the outcome says.
    used: Used | None = field(default_factory=Used)

    @property
    def id(self) -> UUID:
        return self.ask.exchange_id

    @property
    def deadline_at(self) -> datetime:
        return self.opened_at + timedelta(seconds=self.deadline_s)

    def elapsed_ms(self) -> float:
        return round((time.monotonic() - self.opened) * 1000, 3)

    def release(self, text: str) -> None:
        """Note text that goes to the user now."""
        if self.ttft_ms is None:
            self.ttft_ms = self.elapsed_ms()
        self.released.append(text)

    def intent(self, decision: Decision, reservation: Reservation) -> list[Statement]:
        ask, caller, candidate = self.ask, self.caller, decision.candidate
        facts = self._facts() | {
            "model": candidate.model,
            "version": candidate.version,
            "deployment": candidate.deployment,
            "route": decision.explanation.as_facts(),
            "configuration": decision.configuration,
            "prompt_findings": count(self.prompt_findings),
            "opened_at": self.opened_at.isoformat(),
        }
        if ask.tag is not None:  # here alone: it lies in clear, and has been inspected by now
            facts["tag"] = ask.tag
        messages = [{"role": message.role, "content": message.content} for message in self.messages]
        payload = IntentPayload(messages, list(ask.history_ids), msgspec.to_builtins(ask.sampling))
        values = (
            *(self.id, caller.organisation_id, caller.user_id, caller.api_key_id, ask.conversation_id, ask.request_id),
            *(ask.channel, candidate.model, candidate.deployment_id, self.owner, decision.configuration),
            *(self.opened_at, self.deadline_at, len(self.prompt_findings)),
            *(caller.team_id, *_reserved(reservation), reservation.generation),
        )
        return [
            Statement(INSERT_EXCHANGE, values),
            self._entry(uuid7(), EntryKind.INTENT, facts, payload),
            *(ask.with_intent(self._title()) if ask.with_intent else ()),
        ]

    def _title(self) -> str:
        words = " ".join(self.messages[-1].content.split())
        return words if len(words) <= TITLE_CHARS else words[: TITLE_CHARS - 1].rstrip() + "…"

    def outcome(self, receipt: UUID, generation: Generation, cost: Decimal, failure: Refusal | None) -> list[Statement]:
        usage = generation.usage
        status = _status(generation, failure)
        finish_reason = "" if failure else generation.finish_reason
        code = failure.code if failure else ""
        e2e_ms = self.e2e_ms = self.elapsed_ms()
        facts = self._facts() | {
            "status": status.value,
            "finish_reason": finish_reason,
            "error_code": code,
            "usage": _usage_facts(usage),
            "cost_usd": str(cost),
            "ttft_ms": self.ttft_ms,
            "e2e_ms": e2e_ms,
            "attempts": len(generation.attempts),
            "deployment": generation.candidate.deployment,
            "model": generation.candidate.model,
            "answer_findings": count(self.answer_findings),
        }
        values = (
            *(status.value, finish_reason, code, datetime.now(UTC)),
            *(usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens, cost, self.ttft_ms, e2e_ms),
            *(len(self.answer_findings), generation.candidate.deployment_id, self.id),
        )
        payload = OutcomePayload("".join(self.released))
        return [
            Statement(CLOSE_EXCHANGE, values),
            *(insert_attempt(self.id, attempt.number, attempt) for attempt in generation.attempts),
            metering.book(self.id, usage, cost, generation.candidate),
            self._entry(receipt, EntryKind.OUTCOME, facts, payload),
        ]

    def refusal(self, refusal: Refusal) -> list[Statement]:
        """The one entry of an exchange that was refused before its intent."""
        # A name that no model has is whatever the caller wrote: facts lie in clear and hold none of that.
        known = None if refusal.code == "model_not_found" else self.ask.model
        facts = self._facts() | {"error_code": refusal.code, "param": refusal.recorded_param, "model": known}
        return [self._entry(uuid7(), EntryKind.REFUSAL, facts, None)]

    def _entry(
        self, entry_id: UUID, kind: EntryKind, facts: dict[str, Any], payload: IntentPayload | OutcomePayload | None
    ) -> Statement:
        return insert_entry(
            entry_id,
            organisation_id=self.caller.organisation_id,
            exchange_id=self.id,
            kind=kind,
            facts=facts,
            payload=payload,
        )

    def _facts(self) -> dict[str, Any]:
        return {"caller": self.caller.name, "channel": self.ask.channel, "request_id": self.ask.request_id}


def insert_attempt(exchange: UUID, number: int, attempt: AttemptRun) -> Statement:
    tokens = attempt.usage.completion_tokens if attempt.usage else None
    values = (
        *(uuid7(), exchange, number, attempt.candidate.deployment_id, attempt.worker),
        *(attempt.status.value, attempt.error_code, _rounded(attempt.queued_ms), _rounded(attempt.ttft_ms), tokens),
    )
    return Statement(INSERT_ATTEMPT, values)


def _reserved(reservation: Reservation) -> tuple[Decimal | None, Decimal | None]:
    """USD that the open exchange may cost, in all and to others; nothing where no budget is held."""
    if reservation.generation is None:
        return None, None
    demand = reservation.claims.demand
    return Decimal(demand.cost) / NANO, Decimal(demand.external_cost) / NANO


def _status(generation: Generation, failure: Refusal | None) -> ExchangeStatus:
    if failure is not None:
        return ExchangeStatus.FAILED
    return ExchangeStatus.CANCELLED if generation.finish_reason == "cancelled" else ExchangeStatus.FINISHED


def _usage_facts(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.prompt_tokens,
        "cached_tokens": usage.cached_tokens,
        "completion_tokens": usage.completion_tokens,
        "estimated": usage.estimated,
    }


def _rounded(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else round(milliseconds, 3)

"""What goes into the pipeline and what comes out of it, the same for every transport."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal
from uuid import UUID

from compliance.audit.writer import Statement
from compliance.pii.findings import Finding
from gpu_workers.messages import ChatMessage, FinishReason, Sampling, Usage
from inference.beforehand import Beforehand
from inference.errors import Refusal

Priority = Literal["interactive", "standard", "batch"]

# Within this an answer is whole; a rule may ask for less.
DEADLINE_S = 120.0


@dataclass(frozen=True, slots=True)
class Limits:
    """What one key or user may do. `scope` names it in a refusal."""

    scope: str
    requests_per_minute: int
    concurrent_answers: int


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks. One of `user_id` and `api_key_id` is set.

    `residency` is the zone in which the organisation's requests must stay, empty for none.
    """

    organisation_id: UUID
    user_id: UUID | None
    api_key_id: UUID | None
    limits: Limits
    team_id: UUID | None = None
    role: str | None = None
    residency: str = ""

    @property
    def name(self) -> str:
        return f"key:{self.api_key_id}" if self.api_key_id else f"user:{self.user_id}"


@dataclass(frozen=True, slots=True)
class Ask:
    """One prompt as it came in, parsed. `messages` are new; `history` was inspected when it was new.

    `tag` is what the caller calls the task; `previous_deployment` is where the conversation's last answer came from.
    """

    exchange_id: UUID
    request_id: str
    channel: Literal["socket", "http"]
    model: str | None
    messages: tuple[ChatMessage, ...]
    sampling: Sampling
    priority: Priority = "interactive"
    tag: str | None = None
    previous_deployment: str | None = None
    conversation_id: UUID | None = None
    history: tuple[ChatMessage, ...] = ()
    history_ids: tuple[UUID, ...] = ()
    # Statements that are committed with the intent, given the title: the first words of the masked prompt.
    with_intent: Callable[[str], Sequence[Statement]] | None = None
    # The findings of each message, where looking for them began before the ask was whole.
    findings: Beforehand[list[list[Finding]]] | None = None


@dataclass(frozen=True, slots=True)
class Room:
    """What is left of the tightest limits after this request; None where nothing limits."""

    requests: int | None = None
    requests_limit: int | None = None
    tokens: int | None = None
    tokens_limit: int | None = None


@dataclass(frozen=True, slots=True)
class Started:
    """The intent is in the record. `findings` counts what was masked in the prompt, by entity type."""

    model: str
    simulated: bool
    findings: dict[str, int]
    room: Room


@dataclass(frozen=True, slots=True)
class Delta:
    text: str


@dataclass(frozen=True, slots=True)
class Finished:
    """The outcome is in the record; `receipt` is its entry. Times in milliseconds, `cost` in USD."""

    finish_reason: FinishReason
    usage: Usage
    cost: Decimal
    ttft_ms: float | None
    e2e_ms: float
    model: str
    simulated: bool
    prompt_findings: dict[str, int]
    findings: dict[str, int]
    receipt: UUID


@dataclass(frozen=True, slots=True)
class Refused:
    """The request ends here. After `Started`, the outcome in the record says the same."""

    refusal: Refusal


Event = Started | Delta | Finished | Refused

"""Attempts of one exchange as the web process sees them, and what they are billed for together."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal

from gpu_workers.messages import Usage
from inference.catalog import Candidate
from inference.exchange_models import AttemptStatus
from inference.metering import cost_of


class AttemptLost(Exception):
    """The attempt ended without an answer and without the request's fault."""

    def __init__(self, status: AttemptStatus, code: str) -> None:
        super().__init__(code)
        self.status = status
        self.code = code


@dataclass
class AttemptRun:
    """What is known of one attempt; it becomes a row when the exchange ends. Times in milliseconds.

    `usage` is the worker's last word on it. `after_tokens` of the answer were there before it: it goes on after them,
    or `repeats` them where its engine cannot be told what it has said already. `sent_to` is the only worker that may
    take it, None for whichever of the deployment's does.
    """

    number: int
    candidate: Candidate
    after_tokens: int = 0
    repeats: bool = False
    sent_to: str | None = None
    started: float = field(default_factory=time.monotonic)
    worker: str = ""
    epoch: int | None = None
    status: AttemptStatus = AttemptStatus.LOST
    error_code: str = ""
    queued_ms: float | None = None
    ttft_ms: float | None = None
    usage: Usage | None = None
    looks_without_heartbeat: int = 0

    @property
    def place(self) -> str:
        """The worker that has it, or alone may take it; empty for none yet."""
        return self.worker or self.sent_to or ""

    @property
    def source(self) -> str:
        """The engine that it ran on: a name that another start of it does not have."""
        return f"{self.worker}#{self.epoch}" if self.worker else ""

    def elapsed_ms(self) -> float:
        return (time.monotonic() - self.started) * 1000


Billed = list[tuple[AttemptRun, Usage]]


def billed(attempts: Sequence[AttemptRun]) -> Billed:
    """The usage that is paid: the prompt once, every token of the answer once, each where it was made.

    What an attempt that was lost had given is in the answer, and paid. An attempt that gave nothing costs nothing,
    unless it is the last.
    """
    paid: Billed = []
    for attempt in attempts:
        usage = attempt.usage
        if usage is None or (not usage.completion_tokens and attempt is not attempts[-1]):
            continue
        if attempt.repeats and usage.completion_tokens >= completion_tokens(paid):
            paid = []  # it has made the whole answer so far by itself
        elif attempt.repeats:
            continue
        paid.append((attempt, _its_own(usage, attempt, prompt_is_paid=any(one.prompt_tokens for _, one in paid))))
    return paid


def _its_own(usage: Usage, attempt: AttemptRun, *, prompt_is_paid: bool) -> Usage:
    """Without the answer's beginning, which was part of its prompt, and without a prompt that is paid already."""
    continued = 0 if attempt.repeats else attempt.after_tokens
    prompt = 0 if prompt_is_paid else max(usage.prompt_tokens - continued, 0)
    return Usage(prompt, min(usage.cached_tokens, prompt), usage.completion_tokens, usage.estimated)


def completion_tokens(paid: Billed) -> int:
    return sum(usage.completion_tokens for _, usage in paid)


def usage_of(attempts: Sequence[AttemptRun]) -> Usage:
    """What the exchange is billed for. It is an estimate where some engine's count of its own is missing."""
    used = [usage for _, usage in billed(attempts)]
    return Usage(
        prompt_tokens=sum(usage.prompt_tokens for usage in used),
        cached_tokens=sum(usage.cached_tokens for usage in used),
        completion_tokens=sum(usage.completion_tokens for usage in used),
        estimated=any(usage.estimated for usage in used) or any(attempt.usage is None for attempt in attempts[-1:]),
    )


def total_cost(attempts: Sequence[AttemptRun]) -> Decimal:
    """USD: the usage that is paid, at the prices of where it was made."""
    return sum((cost_of(usage, attempt.candidate.prices) for attempt, usage in billed(attempts)), Decimal(0))


def ending(attempts: Sequence[AttemptRun]) -> tuple[str, int]:
    """How the last attempt ended, empty where the answer came to its end; and the tokens that it made."""
    last = attempts[-1] if attempts else None
    tokens = last.usage.completion_tokens if last and last.usage else 0
    if last is not None and last.status is AttemptStatus.FINISHED:
        return "", tokens
    return (last.error_code if last else "") or "cancelled", tokens

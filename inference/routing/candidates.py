"""Each candidate of a decision, looked at: what excludes it, or how long it would take and what it would cost."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from gpu_workers.messages import Heartbeat
from inference.catalog import Candidate
from inference.events import DEADLINE_S, Priority
from inference.fleet import FleetState
from inference.routing.explanation import CandidateTrace
from inference.routing.facts import RequestFacts
from inference.routing.latency import Prediction
from inference.routing.live import LiveState
from inference.routing.replicas import KV_FULL

MILLION = Decimal(1_000_000)
# A wait for others to end is a guess at the mean; nine in ten waits are shorter than twice that.
QUEUE_HIGH = 2.0


# What excludes a candidate now and may not a second later: heartbeats come late, and places become free.
AT_CAPACITY, NOT_READY = "at capacity", "no ready worker"
PASSING = frozenset({AT_CAPACITY, NOT_READY})
# Where the organisation's requests must not go.
ELSEWHERE = "residency"
# It could not begin before the request's time is over.
TOO_LATE = "deadline"


@dataclass(frozen=True, slots=True)
class Objective:
    """What a class of requests is promised. E2E is promised for answers of up to `short_tokens`."""

    ttft_ms: float
    short_e2e_ms: float
    short_tokens: int = 64


OBJECTIVES: dict[Priority, Objective | None] = {
    "interactive": Objective(1_000, 1_000),
    "standard": Objective(3_000, 5_000),
    "batch": None,
}


@dataclass(frozen=True, slots=True)
class Load:
    """A deployment's workers together. `in_flight` counts what they reported or what this process sent, if more."""

    ready: int
    in_flight: int
    capacity: int
    kv_use: float
    prefix_hits: float

    @property
    def share(self) -> float:
        return self.in_flight / self.capacity if self.capacity else 1.0

    @property
    def is_overloaded(self) -> bool:
        return self.share >= 1 or self.kv_use >= KV_FULL


@dataclass(frozen=True, slots=True)
class Assessed:
    """A candidate with its score. `filter` says what excludes it, None for one that can be chosen."""

    candidate: Candidate
    weight: float
    filter: str | None
    load: Load
    prediction: Prediction
    queue_ms: float
    answer_tokens: float
    cost: Decimal
    meets: bool

    @property
    def may_take_later(self) -> bool:
        """Whether nothing but the moment speaks against it: an attempt that is lost may go on there."""
        return self.filter is None or self.filter in PASSING

    @property
    def ttft_ms(self) -> float:
        return self.queue_ms + self.prediction.ttft_ms

    @property
    def ttft_high_ms(self) -> float:
        return self.queue_ms * QUEUE_HIGH + self.prediction.ttft_high_ms

    @property
    def e2e_ms(self) -> float:
        return self.queue_ms + self.prediction.e2e_ms(self.answer_tokens)

    @property
    def e2e_high_ms(self) -> float:
        return self.queue_ms * QUEUE_HIGH + self.prediction.e2e_high_ms(self.answer_tokens)

    def trace(self, *, is_fallback: bool = False) -> CandidateTrace:
        return CandidateTrace(
            deployment=self.candidate.deployment,
            model=self.candidate.model,
            weight=self.weight,
            filter=self.filter,
            ready=self.load.ready,
            in_flight=self.load.in_flight,
            capacity=self.load.capacity,
            queue_ms=round(self.queue_ms, 1),
            ttft_ms=round(self.ttft_ms, 1),
            ttft_high_ms=round(self.ttft_high_ms, 1),
            e2e_ms=round(self.e2e_ms, 1),
            e2e_high_ms=round(self.e2e_high_ms, 1),
            cost_usd=f"{self.cost:f}",
            meets_objective=self.meets,
            samples=round(self.prediction.samples, 2),
            is_fallback=is_fallback,
        )


def load_of(deployment: str, fleet: FleetState, outstanding: int) -> Load:
    beats = [beat for beat in fleet.workers.values() if beat.deployment == deployment and beat.engine_ready]
    # A worker's running attempts include those that wait inside its engine.
    reported = sum(beat.running for beat in beats)
    hits = [beat.prefix_hits for beat in beats if beat.prefix_hits is not None]
    return Load(
        ready=len(fleet.ready(deployment)),
        # Heartbeats are up to a second and a half old; what this process sent since then it knows itself.
        in_flight=max(reported, outstanding),
        capacity=sum(_capacity(beat) for beat in beats),
        kv_use=min((beat.kv_use or 0.0 for beat in beats), default=0.0),
        prefix_hits=sum(hits) / len(hits) if hits else 0.0,
    )


def _capacity(beat: Heartbeat) -> int:
    """An engine in which requests wait takes no more at once than it has, however many its worker would hold."""
    return min(beat.capacity, max(1, beat.running - beat.waiting)) if beat.waiting else beat.capacity


@dataclass(frozen=True, slots=True)
class Assessor:
    """Looks at the candidates of one request. `at_s` is monotonic seconds, `deadline_s` the time that it has."""

    facts: RequestFacts
    fleet: FleetState
    live: LiveState
    at_s: float
    deadline_s: float = DEADLINE_S

    def assess(self, candidate: Candidate, weight: float = 1.0) -> Assessed:
        facts, known = self.facts, self.live.latency.of(candidate.deployment)
        load = load_of(candidate.deployment, self.fleet, len(known.outstanding))
        # Where the conversation was before, the beginning of its prompt may still lie in the engine's cache.
        stays = facts.previous_deployment == candidate.deployment
        cached = int(facts.prompt_tokens * load.prefix_hits) if stays else 0
        prediction = known.predict(facts.prompt_tokens - cached, self.at_s)
        queue_ms = _queue_ms(load, known.service_ms(self.at_s))
        answer_tokens = self.live.latency.answer_tokens(facts.max_tokens, self.at_s)
        return Assessed(
            candidate=candidate,
            weight=weight,
            filter=self._filter(candidate, weight, load, queue_ms),
            load=load,
            prediction=prediction,
            queue_ms=queue_ms,
            answer_tokens=answer_tokens,
            cost=_cost(candidate, facts.prompt_tokens, cached, round(answer_tokens)),
            meets=self._meets(prediction, queue_ms, answer_tokens),
        )

    def _filter(self, candidate: Candidate, weight: float, load: Load, queue_ms: float) -> str | None:
        facts = self.facts
        if weight <= 0:
            return "weight 0"
        if facts.residency is not None and candidate.zone != facts.residency:
            return ELSEWHERE
        worst = _cost(candidate, facts.prompt_tokens, 0, facts.max_tokens)
        if facts.budget_left is not None and worst > facts.budget_left:
            return "budget"
        if not self.live.permits(candidate.deployment, self.at_s):
            return f"circuit breaker {self.live.breaker_state(candidate.deployment, self.at_s)}"
        if not load.ready:
            return AT_CAPACITY if load.capacity else NOT_READY
        if queue_ms > self.deadline_s * 1000:
            return TOO_LATE
        return None

    def _meets(self, prediction: Prediction, queue_ms: float, answer_tokens: float) -> bool:
        objective = OBJECTIVES[self.facts.priority]
        if objective is None:
            return True
        queue_high_ms = queue_ms * QUEUE_HIGH
        if queue_high_ms + prediction.ttft_high_ms > objective.ttft_ms:
            return False
        is_short = 0 < self.facts.max_tokens <= objective.short_tokens
        return not is_short or queue_high_ms + prediction.e2e_high_ms(answer_tokens) <= objective.short_e2e_ms


def _queue_ms(load: Load, service_ms: float) -> float:
    """Until a place is free, when every place is taken and answers end one after the other."""
    ahead = load.in_flight - load.capacity + 1
    if load.kv_use >= KV_FULL:
        ahead = max(ahead, 1)
    return ahead * service_ms / load.capacity if ahead > 0 and load.capacity else 0.0


def _cost(candidate: Candidate, prompt_tokens: int, cached_tokens: int, answer_tokens: int) -> Decimal:
    prices = candidate.prices
    fresh = prompt_tokens - cached_tokens
    return (fresh * prices.input + cached_tokens * prices.cached + answer_tokens * prices.output) / MILLION

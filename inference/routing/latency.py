"""How long a deployment takes, learned while it answers: recent measurements count most, and contradictions at once.

Times are learned as ratios to a rough prior by prompt length, so that what one length shows is a hint for the others.
Every function takes the time as monotonic seconds; nothing here reads a clock.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from math import exp, log, sqrt
from uuid import UUID

HALF_LIFE_S = 10.0
# More samples than this make an estimate no more certain: the engine's state changes faster.
MAX_WEIGHT = 20.0
PRIOR_WEIGHT = 0.5
PRIOR_SPREAD = 0.5  # of a ratio that nobody has measured
# This many measurements in a row that are all over twice, or all under half, of what was expected are a new level.
CONTRADICTIONS = 3
CONTRADICTING = 2.0
WEIGHT_AFTER_CONTRADICTION = 2.0
# A prediction is "high" this many standard deviations above the mean: about nine in ten answers are faster.
HIGH = 1.3
# Below this many fresh samples a prediction is a guess.
TRUSTED_WEIGHT = 1.5
FIRST_BUCKET_BITS, LAST_BUCKET = 7, 8  # up to 128 tokens, 256, 512 … more than 16,384
LOOKED_AT = 8

PRIOR_TTFT_MS, PRIOR_TTFT_MS_PER_TOKEN = 100.0, 0.2
PRIOR_TOKEN_MS = 20.0
PRIOR_ANSWER_TOKENS = 200.0


def bucket_of(prompt_tokens: int) -> int:
    """Lengths by powers of two."""
    return min(max((max(prompt_tokens, 1) - 1).bit_length() - FIRST_BUCKET_BITS, 0), LAST_BUCKET)


def prior_ttft_ms(prompt_tokens: int) -> float:
    return PRIOR_TTFT_MS + PRIOR_TTFT_MS_PER_TOKEN * max(prompt_tokens, 0)


@dataclass
class Estimate:
    """A mean and spread whose samples lose half their weight every `HALF_LIFE_S`."""

    mean: float = 1.0
    weight: float = 0.0
    squares: float = 0.0
    at_s: float = 0.0

    def weight_at(self, at_s: float) -> float:
        # A clock that went back makes nothing fresher than it was.
        return self.weight * exp(-max(at_s - self.at_s, 0.0) * log(2) / HALF_LIFE_S)

    def observe(self, value: float, at_s: float) -> None:
        before = self.weight_at(at_s)
        self.squares *= before / self.weight if self.weight else 0.0
        self.weight = before + 1
        distance = value - self.mean
        self.mean += distance / self.weight
        self.squares += distance * (value - self.mean)
        self.at_s = max(self.at_s, at_s)
        self._bound(MAX_WEIGHT)

    def relevel(self, factor: float) -> None:
        """Keep the shape, at another level, and little certainty of it."""
        self.mean *= factor
        self.squares *= factor * factor
        self._bound(WEIGHT_AFTER_CONTRADICTION)

    def variance(self) -> float:
        return max(self.squares, 0.0) / self.weight if self.weight else 0.0

    def _bound(self, most: float) -> None:
        if self.weight > most:
            self.squares *= most / self.weight
            self.weight = most


@dataclass(frozen=True, slots=True)
class Ratio:
    """Observed over prior: expected, how far off it may be, and by how many fresh samples."""

    mean: float
    spread: float
    samples: float


@dataclass
class Curve:
    """One quantity of one deployment over prompt lengths."""

    overall: Estimate = field(default_factory=Estimate)
    buckets: dict[int, Estimate] = field(default_factory=dict)
    contradictions: deque[float] = field(default_factory=lambda: deque(maxlen=CONTRADICTIONS))

    def read(self, bucket: int, at_s: float) -> Ratio:
        own, whole = self.buckets.get(bucket), self.overall.weight_at(at_s)
        shared = (self.overall.mean * whole + PRIOR_WEIGHT) / (whole + PRIOR_WEIGHT)
        shared_variance = self.overall.variance() * whole / (whole + PRIOR_WEIGHT)
        fresh = own.weight_at(at_s) if own else 0.0
        mean = ((own.mean if own else 0.0) * fresh + shared) / (fresh + 1)
        variance = ((own.variance() if own else 0.0) * fresh + shared_variance) / (fresh + 1)
        doubt = PRIOR_SPREAD * mean / sqrt(1 + max(fresh, whole))
        return Ratio(mean, sqrt(variance + doubt * doubt), max(fresh, whole))

    def observe(self, bucket: int, ratio: float, at_s: float) -> None:
        if self._contradicts(ratio / max(self.read(bucket, at_s).mean, 1e-9)):
            self._relevel()
        self.overall.observe(ratio, at_s)
        self.buckets.setdefault(bucket, Estimate()).observe(ratio, at_s)

    def _contradicts(self, factor: float) -> bool:
        """True with the last of a row of measurements that all lie far off on the same side."""
        slower, faster = factor > CONTRADICTING, factor < 1 / CONTRADICTING
        if not (slower or faster) or (self.contradictions and (self.contradictions[-1] > 1) != slower):
            self.contradictions.clear()
        if slower or faster:
            self.contradictions.append(factor)
        return len(self.contradictions) == CONTRADICTIONS

    def _relevel(self) -> None:
        factor = sorted(self.contradictions)[CONTRADICTIONS // 2]
        self.contradictions.clear()
        for estimate in (self.overall, *self.buckets.values()):
            estimate.relevel(factor)


@dataclass(frozen=True, slots=True)
class Prediction:
    """Milliseconds without any queue. The `high` ones are met by about nine answers in ten."""

    ttft_ms: float
    ttft_high_ms: float
    token_ms: float
    token_high_ms: float
    samples: float

    @property
    def is_trusted(self) -> bool:
        return self.samples >= TRUSTED_WEIGHT

    def e2e_ms(self, answer_tokens: float) -> float:
        return self.ttft_ms + self.token_ms * max(answer_tokens - 1, 0)

    def e2e_high_ms(self, answer_tokens: float) -> float:
        return self.ttft_high_ms + self.token_high_ms * max(answer_tokens - 1, 0)


@dataclass
class Outstanding:
    """An answer that this process waits for. `queue_ms` is the wait that was predicted when it was sent."""

    at_s: float
    prompt_tokens: int
    expected_ttft_ms: float
    queue_ms: float
    first_at_s: float | None = None

    def own_ttft_ms(self) -> float:
        """Without the wait in the queue, which says little of the engine's own speed.

        That wait was a guess at when others would end. After one, the engine counts as at most twice as slow, and
        twice as fast, as expected.
        """
        waited_ms = max((self.first_at_s or self.at_s) - self.at_s, 0.0) * 1000
        if self.queue_ms <= 0:
            return waited_ms
        expected_ms = self.expected_ttft_ms
        return min(max(waited_ms - self.queue_ms, expected_ms / 2), expected_ms * 2, waited_ms)


@dataclass
class DeploymentLatency:
    """Everything measured of one deployment, and what is under way to it from this process."""

    ttft: Curve = field(default_factory=Curve)
    token: Curve = field(default_factory=Curve)
    service: Estimate = field(default_factory=lambda: Estimate(mean=0.0))
    outstanding: dict[UUID, Outstanding] = field(default_factory=dict)

    def predict(self, prompt_tokens: int, at_s: float) -> Prediction:
        bucket, prior = bucket_of(prompt_tokens), prior_ttft_ms(prompt_tokens)
        first, token = self.ttft.read(bucket, at_s), self.token.read(bucket, at_s)
        overdue = self.overdue(at_s)
        return Prediction(
            ttft_ms=prior * first.mean * overdue,
            ttft_high_ms=prior * (first.mean + HIGH * first.spread) * overdue,
            token_ms=PRIOR_TOKEN_MS * token.mean,
            token_high_ms=PRIOR_TOKEN_MS * (token.mean + HIGH * token.spread),
            samples=first.samples,
        )

    def overdue(self, at_s: float) -> float:
        """How many times longer than expected first tokens have been waited for: at least 1.

        A slow deployment shows so before it has answered anything. One late answer may be that answer's fault:
        the second latest of the oldest ones counts.
        """
        late = []
        for waiting in self.outstanding.values():
            if waiting.first_at_s is None:
                late.append((at_s - waiting.at_s) * 1000 / max(waiting.expected_ttft_ms + waiting.queue_ms, 1.0))
                if len(late) == LOOKED_AT:
                    break
        return max(1.0, sorted(late)[-2]) if len(late) > 1 else 1.0

    def service_ms(self, at_s: float) -> float:
        """How long an answer holds its place in the engine."""
        prior = prior_ttft_ms(512) + PRIOR_TOKEN_MS * PRIOR_ANSWER_TOKENS
        weight = self.service.weight_at(at_s)
        return (self.service.mean * weight + prior * PRIOR_WEIGHT) / (weight + PRIOR_WEIGHT)


class LatencyModel:
    """One per process. Reading it changes nothing."""

    def __init__(self) -> None:
        self._deployments: dict[str, DeploymentLatency] = {}
        self._answers = Estimate(mean=0.0)

    def of(self, deployment: str) -> DeploymentLatency:
        """What is known of a deployment: for one never seen, the prior."""
        return self._deployments.get(deployment) or DeploymentLatency()

    def answer_tokens(self, max_tokens: int, at_s: float) -> float:
        """How long an answer is likely to be, within what was asked for."""
        weight = self._answers.weight_at(at_s)
        likely = (self._answers.mean * weight + PRIOR_ANSWER_TOKENS * PRIOR_WEIGHT) / (weight + PRIOR_WEIGHT)
        return min(float(max_tokens), likely) if max_tokens > 0 else likely

    def begin(self, deployment: str, exchange: UUID, prompt_tokens: int, queue_ms: float, at_s: float) -> None:
        known = self._deployments.setdefault(deployment, DeploymentLatency())
        expected = known.predict(prompt_tokens, at_s).ttft_ms
        known.outstanding[exchange] = Outstanding(at_s, prompt_tokens, expected, queue_ms)

    def first_token(self, deployment: str, exchange: UUID, at_s: float) -> None:
        known = self._deployments.get(deployment)
        sent = known.outstanding.get(exchange) if known else None
        if known is None or sent is None or sent.first_at_s is not None:
            return
        sent.first_at_s = at_s
        ratio = sent.own_ttft_ms() / prior_ttft_ms(sent.prompt_tokens)
        known.ttft.observe(bucket_of(sent.prompt_tokens), ratio, at_s)

    def end(self, deployment: str, exchange: UUID, answer_tokens: int, at_s: float) -> None:
        """The answer has ended; one that failed or was cut short is told with 0 tokens and measures nothing."""
        known = self._deployments.get(deployment)
        sent = known.outstanding.pop(exchange, None) if known else None
        if known is None or sent is None or sent.first_at_s is None or answer_tokens <= 0:
            return
        streamed_ms = max(at_s - sent.first_at_s, 0.0) * 1000
        if answer_tokens > 1:
            token_ms = streamed_ms / (answer_tokens - 1)
            known.token.observe(bucket_of(sent.prompt_tokens), token_ms / PRIOR_TOKEN_MS, at_s)
        known.service.observe(sent.own_ttft_ms() + streamed_ms, at_s)
        self._answers.observe(float(answer_tokens), at_s)

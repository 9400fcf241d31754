"""How long an engine takes for a token: by two medians, or as it was measured of a real one."""

from __future__ import annotations

import random
from bisect import bisect_right
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Literal, Protocol

import msgspec
from msgspec import Meta, Struct

# The shares of samples at which a distribution is kept; between them it is taken for a straight line.
LEVELS = (0.0, 0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0)
MAX_POINTS = 64
MAX_BYTES = 1_000_000
# A token that takes ten minutes is no token.
Milliseconds = Annotated[float, Meta(ge=0, le=600_000)]
Positive = Annotated[int, Meta(ge=1, le=100_000_000)]
Line = Annotated[str, Meta(max_length=200)]


class Latency(Protocol):
    """Seconds, drawn for a request by its number, or by its seed where it brings one."""

    def for_request(self, number: int, seed: int | None, prompt_tokens: int) -> tuple[random.Random, float]:
        """The request's randomness, and how long its first token takes."""

    def gap_s(self, rng: random.Random, running: int) -> float:
        """How long the next token takes while so many requests are worked on."""


class Timing(Struct, frozen=True):
    """Log-normal medians in milliseconds, and the spread (sigma of the logarithm)."""

    ttft_ms: float
    itl_ms: float
    sigma: float
    seed: int

    def for_request(self, number: int, seed: int | None, prompt_tokens: int = 0) -> tuple[random.Random, float]:
        rng = _randomness(self.seed, number, seed)
        return rng, self.ttft_ms * rng.lognormvariate(0, self.sigma) / 1000

    def gap_s(self, rng: random.Random, running: int = 1) -> float:
        return self.itl_ms * rng.lognormvariate(0, self.sigma) / 1000


class ProfileInvalid(ValueError):
    """A profile is none; the message names the field."""


class Measured(Struct, frozen=True, forbid_unknown_fields=True):
    """A distribution in milliseconds: its values at `LEVELS`, of so many samples. `at` is what it was measured at."""

    at: Positive
    samples: Positive
    ms: Annotated[tuple[Milliseconds, ...], Meta(min_length=len(LEVELS), max_length=len(LEVELS))]

    @classmethod
    def of(cls, at: int, samples: list[float]) -> Measured:
        """From samples, of which there is one at least."""
        ordered = sorted(samples)
        return cls(at, len(ordered), tuple(round(_between(ordered, level * (len(ordered) - 1)), 3) for level in LEVELS))

    def value(self, share: float) -> float:
        """The value below which that share of samples is, in milliseconds."""
        above = min(max(bisect_right(LEVELS, share), 1), len(LEVELS) - 1)
        left, right = LEVELS[above - 1], LEVELS[above]
        return self.ms[above - 1] + (self.ms[above] - self.ms[above - 1]) * (share - left) / (right - left)

    @property
    def mean(self) -> float:
        return sum((b - a) * (self.value(a) + self.value(b)) / 2 for a, b in pairwise(LEVELS))


def _between(ordered: list[float], place: float) -> float:
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


class Profile(Struct, frozen=True, forbid_unknown_fields=True):
    """What was measured: `ttft` by prompt tokens, one request at a time, and `itl` by requests at once.

    Between two points values are interpolated; beyond the outer ones they are theirs.
    """

    version: Literal[1]
    engine: Line
    model: Line
    host: Line
    measured_on: Line
    ttft: Annotated[tuple[Measured, ...], Meta(min_length=1, max_length=MAX_POINTS)]
    itl: Annotated[tuple[Measured, ...], Meta(min_length=1, max_length=MAX_POINTS)]

    def for_request(self, number: int, seed: int | None, prompt_tokens: int) -> tuple[random.Random, float]:
        rng = _randomness(0, number, seed)
        return rng, value_at(self.ttft, prompt_tokens, rng.random()) / 1000

    def gap_s(self, rng: random.Random, running: int) -> float:
        return value_at(self.itl, running, rng.random()) / 1000


def _randomness(of_engine: int, number: int, seed: int | None) -> random.Random:
    return random.Random(f"{of_engine}/{number if seed is None else seed}")  # noqa: S311 - timing, not a secret


def value_at(points: tuple[Measured, ...], at: int, share: float) -> float:
    """The value of that share of samples, in milliseconds, between the two points around `at`."""
    if at <= points[0].at:
        return points[0].value(share)
    for left, right in pairwise(points):
        if at <= right.at:
            weight = (at - left.at) / (right.at - left.at)
            return left.value(share) * (1 - weight) + right.value(share) * weight
    return points[-1].value(share)


def parse_profile(raw: bytes) -> Profile:
    """Raises `ProfileInvalid`."""
    try:
        profile = msgspec.json.decode(raw, type=Profile)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ProfileInvalid(f"It is no engine profile: {error}.") from None
    for name, points in (("ttft", profile.ttft), ("itl", profile.itl)):
        if any(left.at >= right.at for left, right in pairwise(points)):
            raise ProfileInvalid(f"{name}: its points must be in ascending order of `at`.")
        if any(left > right for point in points for left, right in pairwise(point.ms)):
            raise ProfileInvalid(f"{name}: the values of a point must not fall.")
    return profile


def read_profile(path: Path) -> Profile:
    """Raises `ProfileInvalid`."""
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ProfileInvalid(f"It cannot be read: {error.strerror}.") from None
    if len(raw) > MAX_BYTES:
        raise ProfileInvalid(f"It is longer than {MAX_BYTES} bytes.")
    return parse_profile(raw)


def write_profile(profile: Profile) -> bytes:
    """As JSON for people, too."""
    return msgspec.json.format(msgspec.json.encode(profile), indent=1) + b"\n"

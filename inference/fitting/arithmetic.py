"""On how many of an accelerator a model fits, and how fast it could answer at best: arithmetic, and nothing measured.

What is left out is left out in one direction each: layers that a checkpoint keeps at 16 bits and key-value heads that
tensor parallelism repeats make a model larger than this; sharing of prompts in the cache makes it smaller.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

GB = 10**9
NODE = 8
HOURS_PER_MONTH = 730  # 8,760 hours a year in twelve months

# Bits of memory for one weight, with the scales that stand beside a block of them.
BITS_PER_WEIGHT: dict[str, Fraction] = {
    "none": Fraction(16),
    "fp8": 8 + Fraction(32, 128 * 128),  # one 32-bit scale for a block of 128 by 128
    "int4-awq": 4 + Fraction(16 + 4, 128),  # a 16-bit scale and a 4-bit zero for a group of 128
    "nvfp4": 4 + Fraction(8, 16),  # an 8-bit scale for a block of 16
}
# Of an accelerator's memory: what engines leave alone (vLLM's --gpu-memory-utilization is 0.9 unless set), since the
# driver, communication and fragments need it; and what one step's activations and captured graphs take of the rest.
KEPT_FREE = Fraction(10, 100)
WORKING_MEMORY = Fraction(5, 100)
USABLE = 1 - KEPT_FREE - WORKING_MEMORY


@dataclass(frozen=True, slots=True)
class Load:
    """A model and what it is asked to hold: `tokens` of context for each of `concurrency` answers.

    `kv_bytes_per_token` is None where it is not known.
    """

    parameters_total: int
    parameters_active: int
    quantization: str
    kv_bytes_per_token: int | None
    tokens: int
    concurrency: int

    @property
    def weight_bytes(self) -> int:
        return _bytes(self.parameters_total, self.quantization)

    @property
    def active_bytes(self) -> int:
        """What is read from memory for one token."""
        return _bytes(self.parameters_active, self.quantization)

    @property
    def kv_bytes(self) -> int | None:
        known = self.kv_bytes_per_token
        return None if known is None else known * self.tokens * self.concurrency

    @property
    def bytes(self) -> int:
        """Weights, and the KV cache where its size is known."""
        return self.weight_bytes + (self.kv_bytes or 0)


def _bytes(parameters: int, quantization: str) -> int:
    """Raises `KeyError` on a quantization that is not in the table."""
    exact = parameters * BITS_PER_WEIGHT[quantization] / 8
    return -(-exact.numerator // exact.denominator)


@dataclass(frozen=True, slots=True)
class Card:
    """One accelerator: bytes of memory, bytes per second of bandwidth, USD per hour."""

    name: str
    memory: int
    bandwidth: int
    usd_per_hour: Decimal
    fp8_native: bool
    nvfp4_native: bool

    @property
    def usable(self) -> int:
        return int(self.memory * USABLE)

    def is_native(self, quantization: str) -> bool:
        """Whether it computes in the weights' own format; else they are widened to 16 bits as they are read."""
        native = {"none": True, "fp8": self.fp8_native, "nvfp4": self.nvfp4_native}
        return native.get(quantization, False)


@dataclass(frozen=True, slots=True)
class Fit:
    """The fewest of a card that hold a load. `best_tpot_ms` is a bound: one answer, every card reading all the time."""

    card: Card
    count: int
    fits_one_node: bool
    usd_per_month: Decimal
    best_tpot_ms: float
    is_native: bool

    @property
    def tensor_parallel(self) -> int:
        return min(self.count, NODE)

    @property
    def nodes(self) -> int:
        return -(-self.count // NODE)


def fits(load: Load, card: Card, count: int) -> bool:
    return load.bytes <= card.usable * count


def smallest_count(load: Load, card: Card) -> int:
    """1, 2, 4 or 8 cards of one node, or whole nodes: sizes that divide a model's heads and experts evenly."""
    needed = max(-(-load.bytes // card.usable), 1)
    if needed > NODE:
        return -(-needed // NODE) * NODE
    return 1 << (needed - 1).bit_length()


def fit(load: Load, card: Card) -> Fit:
    count = smallest_count(load, card)
    return Fit(
        card=card,
        count=count,
        fits_one_node=fits(load, card, NODE),
        usd_per_month=card.usd_per_hour * count * HOURS_PER_MONTH,
        best_tpot_ms=1000 * load.active_bytes / (card.bandwidth * count),
        is_native=card.is_native(load.quantization),
    )


def fit_all(load: Load, cards: Iterable[Card]) -> list[Fit]:
    """The cheapest first."""
    return sorted((fit(load, card) for card in cards), key=lambda one: (one.usd_per_month, one.count, one.card.name))

"""Metering: what an answer cost, and the end of its reservation."""

from __future__ import annotations

from decimal import Decimal

from gpu_workers.messages import Usage
from inference.admission import Reservation
from inference.leases import Leases
from inference.snapshot import Prices

MILLION = Decimal(1_000_000)


def cost_of(usage: Usage, prices: Prices) -> Decimal:
    """USD, exact. Cached prompt tokens are paid at their own price and not at the input price."""
    fresh = max(usage.prompt_tokens - usage.cached_tokens, 0)
    total = fresh * prices.input + usage.cached_tokens * prices.cached + usage.completion_tokens * prices.output
    return total / MILLION


async def settle(leases: Leases, reservation: Reservation, usage: Usage, prices: Prices) -> Decimal:
    """Replace what was reserved by what was used, and say what that cost."""
    await leases.release(reservation)
    return cost_of(usage, prices)

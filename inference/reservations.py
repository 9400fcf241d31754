"""What a request claims of its limits and budgets, and what it then holds."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from inference.budgets import Budget, Demand, Stage
from inference.events import Room
from inference.limits import Limit

# A place whose owner died is free after this long; living owners renew it. Money that is held never runs out by
# itself: it is compared with the ledger first (inference.reconcile).
LEASE_S = 30
WINDOW_S = 60
RENEW_EVERY_S = 10.0
STATE = "bursar:budgets"
RESERVATIONS = "bursar:reservations"
RESERVED_UNTIL = "bursar:reservations:until"


@dataclass(frozen=True, slots=True)
class Claims:
    """What an exchange falls under and asks for. `at` decides the budgets' periods."""

    limits: tuple[Limit, ...]
    budgets: tuple[Budget, ...]
    demand: Demand
    at: datetime
    priority: str = "interactive"


@dataclass(frozen=True, slots=True)
class Reservation:
    """What an exchange holds until it is settled. `generation` is None where no budget is held."""

    exchange_id: UUID
    claims: Claims
    room: Room
    stage: Stage = Stage.CALM
    generation: int | None = None
    reached: tuple[tuple[Budget, Stage], ...] = ()


@dataclass(frozen=True, slots=True)
class Used:
    """What an exchange used in the end. `cost` in nano-USD; `external` is paid to somebody else by the token."""

    tokens: int = 0
    cost: int = 0
    external: bool = False

    def for_budget(self, budget: Budget) -> int:
        return 0 if budget.scope == "platform" and not self.external else self.cost

"""The reservations that this process holds: renewed, so that long answers keep theirs, and settled once."""

from __future__ import annotations

import asyncio

import structlog
from redis.exceptions import RedisError

from inference.admission import Admission
from inference.budgets import Budget, Stage
from inference.reservations import RENEW_EVERY_S, Reservation, Used

log = structlog.get_logger(__name__)


class Leases:
    def __init__(self, admission: Admission) -> None:
        self._admission = admission
        self._held: dict[object, Reservation] = {}
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._renew(), name="leases")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def hold(self, reservation: Reservation) -> None:
        self._held[reservation.exchange_id] = reservation

    async def settle(self, reservation: Reservation, used: Used | None) -> tuple[tuple[Budget, Stage], ...]:
        """Free the places and settle the money, once: the first call counts. See `Admission.settle`."""
        if self._held.pop(reservation.exchange_id, None) is None:
            return ()
        return await self._admission.settle(reservation, used)

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(RENEW_EVERY_S)
            if not self._held:
                continue
            try:
                await self._admission.renew(list(self._held.values()))
            except (RedisError, OSError) as error:
                log.warning("leases_not_renewed", error=type(error).__name__, held=len(self._held))

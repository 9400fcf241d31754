"""Renewal of the reservations that this process holds, so that long answers keep their place."""

from __future__ import annotations

import asyncio

import structlog
from redis.exceptions import RedisError

from inference.admission import RENEW_EVERY_S, Admission, Reservation

log = structlog.get_logger(__name__)


class Leases:
    def __init__(self, admission: Admission) -> None:
        self._admission = admission
        self._held: set[Reservation] = set()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._renew(), name="leases")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def hold(self, reservation: Reservation) -> None:
        self._held.add(reservation)

    async def release(self, reservation: Reservation) -> None:
        """Free the place, once: settling frees it, and so does an exchange that never came that far."""
        if reservation in self._held:
            self._held.remove(reservation)
            await self._admission.release(reservation)

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(RENEW_EVERY_S)
            try:
                for reservation in list(self._held):
                    await self._admission.renew(reservation)
            except (RedisError, OSError) as error:
                log.warning("leases_not_renewed", error=type(error).__name__, held=len(self._held))

"""Work that is begun before it is known to be wanted, for callers whose requests were wanted so far."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")

# After a refusal a caller's prompts are inspected only once they are admitted: a flood costs no detector's time.
DISTURBED_S = 10.0
MAX_DISTURBED = 10_000


class Beforehand(Generic[T]):
    """`start` it or not: `result` waits for it, once, and `drop` ends it where nobody wants it any more."""

    def __init__(self, work: Callable[[], Awaitable[T]]) -> None:
        self._work = work
        self._task: asyncio.Future[T] | None = None

    def start(self) -> None:
        if self._task is not None:
            return
        self._task = asyncio.ensure_future(self._work())
        # A failure that nobody waits for any more belongs to a request that was refused for something else.
        self._task.add_done_callback(lambda task: task.cancelled() or task.exception())

    async def result(self) -> T:
        """Raises what the work raises."""
        return await (self._work() if self._task is None else self._task)

    def drop(self) -> None:
        if self._task is not None:
            self._task.cancel()


class CalmCallers:
    """Who was not refused lately in this process."""

    def __init__(self) -> None:
        self._disturbed: dict[str, float] = {}

    def is_calm(self, caller: str) -> bool:
        return time.monotonic() - self._disturbed.get(caller, float("-inf")) >= DISTURBED_S

    def disturbed(self, caller: str) -> None:
        if len(self._disturbed) >= MAX_DISTURBED:
            self._disturbed.clear()
        self._disturbed[caller] = time.monotonic()

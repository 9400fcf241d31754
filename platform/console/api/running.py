"""The completions that run in this process, and the sweep that ends those whose key is no longer valid."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from console.accounts.keyring import Keyring
from inference.events import Caller

# With the configuration's own poll this stays well below the two seconds that a revoked key has.
SWEEP_S = 0.5


class RunningCompletions:
    """One timer for all of them: the keyring is in memory, so a sweep costs a look-up each."""

    def __init__(self, keyring: Keyring) -> None:
        self._keyring = keyring
        self._running: dict[asyncio.Future[None], Caller] = {}
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._sweep(), name="running-completions")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    @contextmanager
    def watched(self, caller: Caller) -> Iterator[asyncio.Future[None]]:
        """A future that is done once the caller's key is revoked, expired or its organisation inactive."""
        withdrawn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._running[withdrawn] = caller
        try:
            yield withdrawn
        finally:
            del self._running[withdrawn]

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_S)
            for withdrawn, caller in self._running.items():
                if not withdrawn.done() and not self._is_valid(caller):
                    withdrawn.set_result(None)

    def _is_valid(self, caller: Caller) -> bool:
        return caller.api_key_id is not None and self._keyring.get(caller.api_key_id) is not None

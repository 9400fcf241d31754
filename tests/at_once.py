"""Several database clients that begin at the same moment, as processes would."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TypeVar

from django.db import connection

T = TypeVar("T")
CLIENTS = 4


def at_once(act: Callable[[], T], clients: int = CLIENTS) -> list[T]:
    """What each client's `act` returned; raises what one of them raised. Needs a committed database."""
    together = Barrier(clients)

    def begin() -> T:
        try:
            together.wait()
            return act()
        finally:
            connection.close()

    with ThreadPoolExecutor(clients) as threads:
        return [future.result() for future in [threads.submit(begin) for _ in range(clients)]]

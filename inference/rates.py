"""Rates inside one process; what must hold across processes is counted in Valkey (inference.admission)."""

from __future__ import annotations

import time


class TokenBucket:
    """At most `per_second` at once, refilled steadily."""

    def __init__(self, per_second: int) -> None:
        self._per_second = per_second
        self._left = float(per_second)
        self._at = time.monotonic()

    def take(self) -> bool:
        now = time.monotonic()
        self._left = min(float(self._per_second), self._left + (now - self._at) * self._per_second)
        self._at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True

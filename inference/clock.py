"""How far this host's clock may be from the broker's: money and outcomes are counted by both."""

from __future__ import annotations

import time

# NTP keeps hosts within milliseconds; this far off, one would count money in another month or end what still runs.
MAX_SKEW_S = 60.0


def skew_s(broker_time: tuple[int, int]) -> float:
    """Seconds by which this host is ahead of Valkey, whose TIME is (seconds, microseconds)."""
    seconds, microseconds = broker_time
    return time.time() - (seconds + microseconds / 1_000_000)


def is_off(seconds: float) -> bool:
    return abs(seconds) > MAX_SKEW_S

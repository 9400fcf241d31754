"""Scaling in words for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

BECAUSE = {
    "load": "the load",
    "burn": "its objective burns",
    "alert": "an alert",
    "floor": "its lower bound",
    "most": "its upper bound",
    "money": "what is left of the budget",
    "kept": "nothing: it stays",
}


def sentences(figures: Mapping[str, Any]) -> Iterator[str]:
    """What was known when a step was taken, a line for each thing; figures that are missing are left out."""
    lines = {
        "arrivals_per_s": "answers asked for, a second: {}",
        "service_s": "seconds of one answer: {}",
        "places": "answers at once in one replica: {}",
        "running": "being answered: {}",
        "waiting": "waiting for a place: {}",
        "alive": "replicas that show life: {}",
        "ready": "of them ready: {}",
        "needed": "needed for the load alone: {}",
        "burn_long": "times as fast as allowed that its objective burns, over an hour: {}",
        "burn_short": "over five minutes: {}",
    }
    yield from (line.format(figures[name]) for name, line in lines.items() if name in figures)
    if zones := figures.get("zones"):
        yield f"zones: {', '.join(map(str, zones))}"
    if figures.get("one_zone"):
        yield "not in two zones, as it should be"

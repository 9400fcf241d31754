"""How many replicas a deployment should have: what its load needs, within what availability asks and money allows.

Waiting is predicted by the Erlang C formula (A. K. Erlang, 1917), for answers that come at random and as many places as
the replicas have together; what waits already is worked off on top of that. Up goes at once; down only to the most
that was needed in the whole time before, so that load which comes and goes moves nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

# No more of the places than this may be in use on average: what is predicted above it is worth little.
MOST_USE = 0.8
# Fewer replicas must do with this share of the objective to spare, so that the next answer does not bring one back.
SPARE = 0.5
# At once no more than twice as many, and no fewer than half: a wrong figure does bounded harm.
MOST_GROWTH = 2.0
MOST_DECLINE = 0.5
# The rate at which a month's error budget is gone in two days, as inference.lifecycle.canary takes it.
BURN = 14.4

Bound = Literal["load", "burn", "alert", "floor", "most", "money", "kept"]


@dataclass(frozen=True, slots=True)
class Load:
    """What a deployment has to do. `arrivals` a second; `service_s` that one answer takes a place; `places` of one
    replica; `waiting` answers that nobody works on yet; `burn_long` and `burn_short` are how many times faster than
    allowed answers fail or come late.
    """

    arrivals: float
    service_s: float
    places: int
    waiting: int
    burn_long: float = 0.0
    burn_short: float = 0.0


@dataclass(frozen=True, slots=True)
class Bounds:
    """`affordable` is how many what is left of the budgets pays for to the end of their periods; None: no budget."""

    at_least: int
    at_most: int
    affordable: int | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """`wanted` replicas, what decided, and what the load alone needs."""

    wanted: int
    bound: Bound
    needed: int
    queue_ms: float


def waits_with(replicas: int, load: Load) -> float:
    """Seconds that an answer is expected to wait with so many replicas; infinite where they cannot keep up."""
    places = replicas * load.places
    work = load.arrivals * load.service_s
    if places <= 0 or work >= places:
        return float("inf")
    chance = _chance_to_wait(places, work)
    random = chance * load.service_s / (places - work)
    return random + load.waiting * load.service_s / places


def _chance_to_wait(places: int, work: float) -> float:
    """Erlang C, by the recursion of Erlang B, which overflows nowhere."""
    blocked = 1.0
    for place in range(1, places + 1):
        blocked = work * blocked / (place + work * blocked)
    use = work / places
    return blocked / (1 - use + use * blocked)


def needed(load: Load, objective_s: float, most: int, *, spare: float = 1.0) -> int:
    """The fewest replicas, from one to `most`, with which an answer waits no longer than a share of the objective."""
    low, high = 1, max(most, 1)
    while low < high:
        middle = (low + high) // 2
        if _suffices(middle, load, objective_s * spare):
            high = middle
        else:
            low = middle + 1
    return low


def _suffices(replicas: int, load: Load, objective_s: float) -> bool:
    in_use = load.arrivals * load.service_s <= MOST_USE * replicas * load.places
    return in_use and waits_with(replicas, load) <= objective_s


def decide(
    load: Load,
    bounds: Bounds,
    *,
    now: int,
    objective_s: float,
    before: Sequence[int] = (),
    alerted: bool = False,
) -> Decision:
    """`now` replicas are wanted so far; `before` is what was needed at every look of the time to wait before fewer."""
    most = max(bounds.at_most, bounds.at_least)
    need = needed(load, objective_s, most)
    bound: Bound = "load"
    wanted = need
    if alerted and wanted <= now:
        wanted, bound = now + 1, "alert"
    elif load.burn_long >= BURN and load.burn_short >= BURN and wanted <= now:
        wanted, bound = now + 1, "burn"
    if wanted < now:
        calm = needed(load, objective_s, most, spare=SPARE)
        wanted = min(now, max(calm, *before, 1) if before else now)
        bound = "load" if wanted < now else "kept"
    wanted = _stepwise(now, wanted)
    wanted, bound = _within(wanted, bound, bounds, now)
    return Decision(wanted, bound, need, round(waits_with(max(now, 1), load) * 1000, 1))


def _stepwise(now: int, wanted: int) -> int:
    if wanted > now:
        return min(wanted, max(now + 1, int(now * MOST_GROWTH)))
    return max(wanted, int(now * MOST_DECLINE), 1) if wanted < now else wanted


def _within(wanted: int, bound: Bound, bounds: Bounds, now: int) -> tuple[int, Bound]:
    """Availability goes before money: a budget that is spent refuses requests itself."""
    if wanted > bounds.at_most:
        wanted, bound = bounds.at_most, "most"
    if bounds.affordable is not None and wanted > bounds.affordable:
        wanted, bound = bounds.affordable, "money"
    if wanted < bounds.at_least:
        wanted, bound = bounds.at_least, "floor"
    return wanted, "kept" if wanted == now and bound == "load" else bound

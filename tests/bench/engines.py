"""Simulated deployments as discrete events: slots, a queue, and times by tokens. One slows down, one fails in turns."""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Protocol

from gpu_workers.messages import Heartbeat

HEARTBEAT_S, POLL_S = 1.0, 0.5
FAILS_AFTER_S = 0.05
NOISE = 0.2  # sigma of the log-normal factor on every answer's time


@dataclass(frozen=True, slots=True)
class Request:
    """One line of the trace. `at_s` is its arrival, after scaling."""

    number: int
    at_s: float
    prompt_tokens: int
    answer_tokens: int


@dataclass(frozen=True, slots=True)
class Hardware:
    """Times in milliseconds; `slots` answers are generated at once and others wait."""

    slots: int
    overhead_ms: float
    prompt_token_ms: float
    answer_token_ms: float


def work_ms(request: Request, hardware: Hardware) -> tuple[float, float]:
    """Until the first token, and from there to the end; the same for a request whoever sends it there."""
    noise = Random(request.number).lognormvariate(0.0, NOISE)
    prompt_ms = hardware.overhead_ms + hardware.prompt_token_ms * request.prompt_tokens
    return prompt_ms * noise, hardware.answer_token_ms * (request.answer_tokens - 1) * noise


@dataclass(frozen=True, slots=True)
class Downtime:
    """`is_silent`: the engine's health still looks well while every request fails."""

    from_s: float
    until_s: float
    is_silent: bool


class Listener(Protocol):
    """Whoever sent the requests."""

    def first_token(self, request: Request, at_s: float) -> None: ...

    def finished(self, request: Request, at_s: float) -> None: ...

    def failed(self, request: Request, at_s: float) -> None: ...


class Clock:
    """Events in the order of their time; those of one time in the order in which they were planned."""

    def __init__(self) -> None:
        self._events: list[tuple[float, int, Callable[[float], None]]] = []
        self._numbers = itertools.count()

    def at(self, at_s: float, event: Callable[[float], None]) -> None:
        heapq.heappush(self._events, (at_s, next(self._numbers), event))

    def run(self) -> None:
        while self._events:
            at_s, _, event = heapq.heappop(self._events)
            event(at_s)


@dataclass
class Engine:
    """One deployment with one worker. `slow_from_s` is when everything begins to take `slower` times as long."""

    slug: str
    hardware: Hardware
    clock: Clock
    listener: Listener
    slow_from_s: float = float("inf")
    slower: float = 5.0
    downtimes: tuple[Downtime, ...] = ()
    running: dict[int, Request] = field(default_factory=dict)
    queue: deque[Request] = field(default_factory=deque)

    def __post_init__(self) -> None:
        for downtime in self.downtimes:
            self.clock.at(downtime.from_s, self._go_down)

    def send(self, request: Request, at_s: float) -> None:
        if self._downtime(at_s):
            self.clock.at(at_s + FAILS_AFTER_S, lambda now_s: self.listener.failed(request, now_s))
        else:
            self.queue.append(request)
            self._begin_next(at_s)

    def heartbeat(self, at_s: float) -> Heartbeat:
        down = self._downtime(at_s)
        is_ready = down is None or down.is_silent
        running, waiting, slots = len(self.running), len(self.queue), self.hardware.slots
        return Heartbeat(self.slug, self.slug, "vllm", is_ready, True, running, slots, "", waiting)

    def _downtime(self, at_s: float) -> Downtime | None:
        return next((down for down in self.downtimes if down.from_s <= at_s < down.until_s), None)

    def _go_down(self, at_s: float) -> None:
        lost = [*self.running.values(), *self.queue]
        self.running.clear()
        self.queue.clear()
        for request in lost:
            self.listener.failed(request, at_s)

    def _begin_next(self, at_s: float) -> None:
        while self.queue and len(self.running) < self.hardware.slots:
            request = self.queue.popleft()
            self.running[request.number] = request
            prompt_ms, answer_ms = work_ms(request, self.hardware)
            self.clock.at(self._after(at_s, prompt_ms), self._first_token_of(request))
            self.clock.at(self._after(at_s, prompt_ms + answer_ms), self._end_of(request))

    def _after(self, at_s: float, work_ms: float) -> float:
        """When that much work is done; what is under way when the slowdown comes is slowed for its rest."""
        quick_s = min(max(self.slow_from_s - at_s, 0.0), work_ms / 1000)
        return at_s + quick_s + (work_ms / 1000 - quick_s) * self.slower

    def _first_token_of(self, request: Request) -> Callable[[float], None]:
        def come(at_s: float) -> None:
            if request.number in self.running:
                self.listener.first_token(request, at_s)

        return come

    def _end_of(self, request: Request) -> Callable[[float], None]:
        def end(at_s: float) -> None:
            if self.running.pop(request.number, None):
                self.listener.finished(request, at_s)
                self._begin_next(at_s)

        return end

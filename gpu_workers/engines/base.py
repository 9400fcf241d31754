"""What every engine offers a worker, whatever it is and wherever it runs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol

from msgspec import Struct

from gpu_workers.engines.metrics import EngineLoad
from gpu_workers.messages import FinishReason, GenerateTask, Usage


class Piece(Struct, frozen=True):
    """Some text of the answer, and the usage up to here where the engine says it as it goes."""

    text: str
    usage: Usage | None


class End(Struct, frozen=True):
    """The answer is whole. `usage` is None where the engine does not count."""

    finish_reason: FinishReason
    usage: Usage | None


class EngineRefused(Exception):
    """The engine will not take the request as it is. `code` is one of docs/api.md."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class EngineBroken(Exception):
    """The engine is not there, or stopped before the answer was whole."""


class Engine(Protocol):
    simulated: bool

    async def start(self) -> None: ...

    async def is_ready(self) -> bool:
        """True when a request would be taken now. Never raises."""

    async def load(self) -> EngineLoad:
        """What it says of its own load. Never raises."""

    def stream(self, task: GenerateTask) -> AsyncIterator[Piece | End]:
        """The answer as it is made, closed by one `End`.

        Closing the iterator cancels the generation. Raises `EngineRefused` and `EngineBroken`.
        """

    async def stop(self) -> None: ...

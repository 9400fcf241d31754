"""Two detectors, for short texts and for long ones: a caller's huge prompts do not hold up everybody's questions."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from compliance.pii.findings import Finding
from compliance.pii.inspector import Inspector

# Most questions, and every part of a streamed answer, are shorter.
SHORT = 2_000


class InspectionLanes:
    """An inspector made of two. Each lane fails closed by itself."""

    def __init__(self) -> None:
        self._short = Inspector()
        self._long = Inspector()

    @property
    def ready(self) -> bool:
        return self._short.ready and self._long.ready

    def start(self) -> None:
        self._short.start()
        self._long.start()

    async def stop(self) -> None:
        await asyncio.gather(self._short.stop(), self._long.stop())

    async def find(self, text: str) -> list[Finding]:
        """The findings in `text`, in order and without overlaps. Raises `InspectionUnavailable`."""
        lane = self._short if len(text) <= SHORT else self._long
        return await lane.find(text)

    async def find_all(self, texts: Sequence[str]) -> list[list[Finding]]:
        return list(await asyncio.gather(*(self.find(text) for text in texts)))

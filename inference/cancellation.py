"""How an exchange is ended from outside, whatever it is doing."""

from __future__ import annotations

from inference.generation import Generation


class Cancellation:
    """The caller's way to end an exchange from outside: usable before, while and after there is a generation."""

    def __init__(self) -> None:
        self._generation: Generation | None = None
        self.asked = False

    def cancel(self) -> None:
        self.asked = True
        if self._generation is not None:
            self._generation.cancel()

    def bind(self, generation: Generation) -> None:
        self._generation = generation
        if self.asked:
            generation.cancel()

"""What can serve which model, as immutable objects: one version of the configuration (inference.snapshot loads it)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING
from uuid import UUID

if TYPE_CHECKING:  # rules are about these types, and import them
    from inference.routing.rules import RuleSet

# Engines that cannot be told how their answer begins, and make it anew.
BEGIN_ANEW = frozenset({"openai", "tensorrt"})


@dataclass(frozen=True, slots=True)
class Prices:
    """USD per million tokens."""

    input: Decimal
    cached: Decimal
    output: Decimal


@dataclass(frozen=True, slots=True)
class Candidate:
    """A deployment that can serve a model, with what its model version says. `zone` is empty where it is not known.

    `external` deployments belong to somebody else, who is paid by the token; the platform's own are paid by the hour.
    Where one does not go on with answers (`continues`), its engine cannot be told how an answer begins already.
    """

    deployment_id: UUID
    deployment: str
    queue: str
    model: str
    version: str
    context_length: int
    prices: Prices
    simulated: bool
    zone: str = ""
    external: bool = False
    continues: bool = True


@dataclass(frozen=True, slots=True)
class Catalog:
    """`models` maps the name that callers use to its candidates; the first name is the default.

    `rules` is the active rule set; without one the default rule holds.
    """

    version: int = 0
    models: dict[str, tuple[Candidate, ...]] = field(default_factory=dict)
    rules: RuleSet | None = None

    def candidates(self) -> Iterator[Candidate]:
        for of_model in self.models.values():
            yield from of_model

    def find_deployment(self, slug: str) -> Candidate | None:
        return next((candidate for candidate in self.candidates() if candidate.deployment == slug), None)

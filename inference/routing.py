"""Routing: which deployment answers. A pure function of the request, the snapshot and the workers' state."""

from __future__ import annotations

from dataclasses import dataclass

from inference.errors import Refusal
from inference.events import Ask
from inference.fleet import FleetState
from inference.snapshot import Candidate, Catalog


@dataclass(frozen=True, slots=True)
class Decision:
    """Where the exchange goes and why, under which version of the configuration."""

    candidate: Candidate
    reason: str
    configuration: int


def decide(ask: Ask, catalog: Catalog, fleet: FleetState) -> Decision:
    """The first candidate of the model with a ready worker. Raises `Refusal`."""
    candidates = find_candidates(ask.model, catalog)
    if not fleet.broker:
        raise Refusal("overloaded", "The message broker cannot be reached.", retry_after_s=2)
    for candidate in candidates:
        ready = fleet.ready(candidate.deployment)
        if ready:
            reason = f"only rule: first deployment of {candidate.model} with a ready worker ({len(ready)} ready)"
            return Decision(candidate, reason, catalog.version)
    raise Refusal("overloaded", "No worker is ready for this model.", retry_after_s=5)


def find_candidates(model: str | None, catalog: Catalog) -> tuple[Candidate, ...]:
    """The deployments of `model`, or of the default. Raises `Refusal` for a model that is not served."""
    if model is None:
        for candidates in catalog.models.values():
            return candidates
        raise Refusal("model_not_found", "No model is served yet.", param="model")
    if model not in catalog.models:
        raise Refusal("model_not_found", "No such model, or it is not served.", param="model")
    return catalog.models[model]

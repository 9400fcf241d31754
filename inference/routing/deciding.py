"""The decision: match a rule, look at its candidates, choose one, and say why."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from msgspec import structs

from gpu_workers.messages import Sampling
from inference.catalog import Candidate, Catalog
from inference.errors import Refusal
from inference.events import DEADLINE_S, Ask
from inference.fleet import FleetState
from inference.routing.candidates import AT_CAPACITY, ELSEWHERE, TOO_LATE, Assessed, Assessor
from inference.routing.explanation import CandidateTrace, Explanation, RuleTrace
from inference.routing.facts import RequestFacts, facts_of
from inference.routing.live import LiveState
from inference.routing.replicas import replica_for
from inference.routing.rules import DEFAULT_RULE, Clamps, Rule, failing_condition, resolve_alias
from inference.routing.strategies import Choice, choose

RETRY_AFTER_S = 5
# A wait is a guess: nobody is told to stay away for longer on its account.
MAX_RETRY_AFTER_S = 60


@dataclass(frozen=True, slots=True)
class Decision:
    """Where the exchange goes and why, under which version of the configuration.

    `worker` is the replica that it is for, None for any. `fallbacks` are other usable deployments in the order in which
    they may be tried, `mirror` one that gets a copy, `deadline_s` and `clamps` the rule's bounds. `prompt_tokens` and
    `queue_ms` (the wait before the engine begins) are what was expected, for the measurement.
    """

    candidate: Candidate
    reason: str
    configuration: int
    explanation: Explanation
    worker: str | None = None
    fallbacks: tuple[Candidate, ...] = ()
    mirror: Candidate | None = None
    deadline_s: float | None = None
    clamps: Clamps | None = None
    prompt_tokens: int = 0
    queue_ms: float = 0.0

    def clamped(self, sampling: Sampling) -> Sampling:
        return self.clamps.apply(sampling) if self.clamps else sampling


@dataclass(frozen=True, slots=True)
class Outcome:
    """A decision, or the refusal that stands in its place; the explanation is there in both cases."""

    explanation: Explanation
    decision: Decision | None = None
    refusal: Refusal | None = None


def decide(
    ask: Ask,
    catalog: Catalog,
    fleet: FleetState,
    *,
    facts: RequestFacts | None = None,
    live: LiveState | None = None,
    at_s: float | None = None,
) -> Decision:
    """Where this request goes. Raises `Refusal`.

    `facts` says more of the request than it says itself, `live` is what this process has measured, and `at_s` the
    time on its clock (monotonic seconds). Nothing of all this is changed.
    """
    outcome = weigh(facts or facts_of(ask), catalog, fleet, live or LiveState(), _now_s(at_s))
    if outcome.decision is None:
        raise outcome.refusal or Refusal(
            "overloaded", "No worker is ready for this model.", retry_after_s=RETRY_AFTER_S
        )
    return outcome.decision


def _broker_gone() -> Refusal:
    return Refusal("overloaded", "The message broker cannot be reached.", retry_after_s=2)


def _overloaded(assessed: list[Assessed], deadline_s: float) -> Refusal:
    """Said at once, and when it is worth asking again: as soon as the first of them is expected to have room."""
    if assessed and all(one.filter == ELSEWHERE for one in assessed):
        message = "No deployment of this model lies where the organisation's requests must stay."
        return Refusal("model_not_found", message, param="model")
    full = [one.queue_ms / 1000 for one in assessed if one.filter == AT_CAPACITY]
    late = [one.queue_ms / 1000 - deadline_s for one in assessed if one.filter == TOO_LATE]
    if not full and not late:
        return Refusal("overloaded", "No worker is ready for this model.", retry_after_s=RETRY_AFTER_S)
    message = "Every worker for this model is busy."
    if late and not full:
        message = f"No worker is expected to begin within the {deadline_s:g} s that the request has."
    retry_after_s = min(max(1, math.ceil(min(full + late))), MAX_RETRY_AFTER_S)
    return Refusal("overloaded", message, retry_after_s=retry_after_s)


def _now_s(at_s: float | None) -> float:
    return time.monotonic() if at_s is None else at_s


def find_candidates(model: str | None, catalog: Catalog) -> tuple[Candidate, ...]:
    """The deployments of `model` or of what it is an alias of, or of the default model.

    Raises `Refusal` for a model that is not served.
    """
    if model is None:
        for candidates in catalog.models.values():
            return candidates
        raise Refusal("model_not_found", "No model is served yet.", param="model")
    found = catalog.models.get(_resolve(model, catalog))
    if found is None:
        raise Refusal("model_not_found", "No such model, or it is not served.", param="model")
    return found


def reachable_by_rules(catalog: Catalog) -> Iterator[Candidate]:
    """Every served deployment that some rule could send a request to, whatever it asked for."""
    for rule in catalog.rules.rules if catalog.rules else ():
        route = rule.route
        for slug in (*(one.deployment for one in route.candidates), *route.fallbacks):
            if found := catalog.find_deployment(slug):
                yield found


def _resolve(model: str, catalog: Catalog) -> str:
    # A model's own name stands before an alias of that name.
    return model if model in catalog.models or not catalog.rules else resolve_alias(model, catalog.rules.aliases)


def weigh(facts: RequestFacts, catalog: Catalog, fleet: FleetState, live: LiveState, at_s: float) -> Outcome:
    """The decision with its explanation, whether or not there is one. Raises `Refusal` for an unknown model."""
    of_model = find_candidates(facts.model, catalog)
    model = of_model[0].model
    rule, traces = _match(facts, catalog, model)
    route = rule.route
    assessor = Assessor(facts, fleet, live, at_s, min(route.deadline_s or DEADLINE_S, DEADLINE_S))
    candidates, unserved = _candidates(rule, of_model, catalog)
    assessed = [assessor.assess(candidate, weight) for candidate, weight in candidates]
    chain = [assessor.assess(found) for slug in route.fallbacks if (found := catalog.find_deployment(slug))]
    # Seeded by the exchange: asked again, it goes to the same place.
    rng = Random(facts.exchange_id.int)  # noqa: S311 - chance, not secrecy
    candidates_shown = (*_traces(assessed), *unserved, *_traces(chain, is_fallback=True))
    explanation = _begun(rule, facts, catalog, model, traces, candidates_shown)
    if not fleet.broker:
        return Outcome(explanation, refusal=_broker_gone())
    choice = _choose(rule, assessed, chain, facts, rng)
    if choice is None:
        return Outcome(explanation, refusal=_overloaded([*assessed, *chain], assessor.deadline_s))
    others = _others(choice, [*assessed, *chain])
    mirror = _mirror(rule, choice, facts, catalog, rng)
    replica = replica_for(facts.conversation, choice.assessed.candidate.deployment, fleet)
    explanation = _completed(explanation, choice, replica, tuple(one.deployment for one in others), mirror)
    return Outcome(explanation, _decision(choice, rule, catalog, facts, explanation, others, mirror))


def _match(facts: RequestFacts, catalog: Catalog, model: str) -> tuple[Rule, tuple[RuleTrace, ...]]:
    """The first rule that the request meets, and why those before it were passed over."""
    names = frozenset({model, facts.model or model})
    traces = []
    for rule in catalog.rules.rules if catalog.rules else ():
        failed = failing_condition(rule.conditions, facts, names)
        traces.append(RuleTrace(rule.name, failed))
        if failed is None:
            return rule, tuple(traces)
    return DEFAULT_RULE, tuple(traces)


def _candidates(
    rule: Rule, of_model: tuple[Candidate, ...], catalog: Catalog
) -> tuple[list[tuple[Candidate, float]], list[CandidateTrace]]:
    """The rule's candidates that are served, with their weights, and traces of those that are not."""
    if not rule.route.candidates:
        return [(candidate, 1.0) for candidate in of_model], []
    served, unserved = [], []
    for one in rule.route.candidates:
        candidate = catalog.find_deployment(one.deployment)
        if candidate is None:
            unserved.append(CandidateTrace(one.deployment, weight=one.weight, filter="not served"))
        else:
            served.append((candidate, one.weight))
    return served, unserved


def _choose(
    rule: Rule, assessed: list[Assessed], chain: list[Assessed], facts: RequestFacts, rng: Random
) -> Choice | None:
    usable = [one for one in assessed if one.filter is None]
    if usable:
        return choose(rule.route.strategy, usable, facts, rng)
    for number, one in enumerate(chain, start=1):
        if one.filter is None:
            return Choice(one, f"no candidate can take it: fallback {number}")
    return None


def _others(choice: Choice, assessed: list[Assessed]) -> tuple[Candidate, ...]:
    """Where else it may go, each once, in the order in which they may be tried; who is ready is seen then."""
    allowed = {one.candidate.deployment: one.candidate for one in assessed if one.may_take_later}
    allowed.pop(choice.assessed.candidate.deployment)
    return tuple(allowed.values())


def _mirror(rule: Rule, choice: Choice, facts: RequestFacts, catalog: Catalog, rng: Random) -> Candidate | None:
    """Where a copy goes, if this one is copied: never where the request itself must not go."""
    mirror = rule.route.mirror
    if mirror is None or rng.random() >= mirror.share or mirror.deployment == choice.assessed.candidate.deployment:
        return None
    found = catalog.find_deployment(mirror.deployment)
    stays = found is not None and facts.residency in (None, found.zone)
    return found if stays else None


def _decision(
    choice: Choice,
    rule: Rule,
    catalog: Catalog,
    facts: RequestFacts,
    explanation: Explanation,
    fallbacks: tuple[Candidate, ...],
    mirror: Candidate | None,
) -> Decision:
    return Decision(
        candidate=choice.assessed.candidate,
        reason=str(explanation),
        configuration=catalog.version,
        explanation=explanation,
        worker=explanation.replica,
        fallbacks=fallbacks,
        mirror=mirror,
        deadline_s=rule.route.deadline_s,
        clamps=rule.route.clamps,
        prompt_tokens=facts.prompt_tokens,
        queue_ms=choice.assessed.queue_ms,
    )


def _begun(
    rule: Rule,
    facts: RequestFacts,
    catalog: Catalog,
    model: str,
    rules: tuple[RuleTrace, ...],
    candidates: tuple[CandidateTrace, ...],
) -> Explanation:
    """What is known before anything is chosen."""
    return Explanation(
        rule_set=catalog.rules.version if catalog.rules else None,
        rule=rule.name,
        model=model,
        strategy=rule.route.strategy,
        rules=rules,
        candidates=candidates,
        alias=facts.model if facts.model not in (None, model) else None,
        deadline_s=rule.route.deadline_s,
        clamped=_clamped(rule.route.clamps),
    )


def _completed(
    explanation: Explanation,
    choice: Choice,
    replica: str | None,
    fallbacks: tuple[str, ...],
    mirror: Candidate | None,
) -> Explanation:
    return structs.replace(
        explanation,
        chosen=choice.assessed.candidate.deployment,
        replica=replica,
        why=choice.why,
        explored=choice.explored,
        fallbacks=fallbacks,
        mirror=mirror.deployment if mirror else None,
    )


def _traces(assessed: list[Assessed], *, is_fallback: bool = False) -> tuple[CandidateTrace, ...]:
    return tuple(one.trace(is_fallback=is_fallback) for one in assessed)


def _clamped(clamps: Clamps | None) -> tuple[str, ...]:
    """The parameters that the rule bounds, not what was asked for."""
    if clamps is None:
        return ()
    bounds = {
        "max_tokens": clamps.max_tokens,
        "min_temperature": clamps.min_temperature,
        "max_temperature": clamps.max_temperature,
    }
    return tuple(name for name, bound in bounds.items() if bound is not None)

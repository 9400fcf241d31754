"""Whether a rule set may be activated: every problem, with the rule and the field that it is in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import isfinite

from inference.routing.language import LANGUAGES
from inference.routing.rules import BUDGET_STATES, DAYS, VALUES, Clamps, Conditions, Rule, RuleSet, resolve_alias

ALIASES = "aliases"


@dataclass(frozen=True, slots=True)
class Problem:
    """`rule` is empty for what belongs to the rule set as a whole."""

    rule: str
    field: str
    message: str

    def __str__(self) -> str:
        return f"{self.rule or 'rule set'}, {self.field}: {self.message}"


@dataclass(frozen=True, slots=True)
class KnownDeployment:
    model: str
    is_retired: bool = False


@dataclass(frozen=True, slots=True)
class Known:
    """What rules may name. `models` are those with a version that is not retired, `retired_models` those without."""

    models: frozenset[str] = frozenset()
    retired_models: frozenset[str] = frozenset()
    deployments: Mapping[str, KnownDeployment] = field(default_factory=dict)


def validate(rules: RuleSet, known: Known) -> list[Problem]:
    """Every problem of a rule set, in the order of its rules; none means that it may be activated."""
    problems = [*_aliases(rules.aliases, known)]
    names = Counter(rule.name for rule in rules.rules)
    for number, rule in enumerate(rules.rules):
        if not rule.name.strip():
            problems.append(Problem(f"rule {number + 1}", "name", "A rule needs a name."))
        elif names[rule.name] > 1:
            problems.append(Problem(rule.name, "name", "Another rule has this name."))
        problems += _conditions(rule, rules, known)
        problems += _route(rule, known)
        problems += _unreachable(rule, rules.rules[:number], rules.aliases)
    return problems


def _aliases(aliases: Mapping[str, str], known: Known) -> Iterator[Problem]:
    for alias, target in aliases.items():
        model = resolve_alias(alias, aliases)
        if alias in known.models:
            yield Problem("", ALIASES, f"{alias} is the name of a model.")
        elif model in aliases:
            yield Problem("", ALIASES, f"{alias} leads back to itself: {' → '.join(_chain(alias, aliases))}.")
        elif problem := _unknown_model(model, known):
            yield Problem("", ALIASES, f"{alias} stands for {target}: {problem}")


def _chain(alias: str, aliases: Mapping[str, str]) -> list[str]:
    chain = [alias]
    while chain[-1] in aliases and chain[-1] not in chain[:-1]:
        chain.append(aliases[chain[-1]])
    return chain


def _unknown_model(model: str, known: Known) -> str | None:
    if model in known.models:
        return None
    return f"every version of {model} is retired." if model in known.retired_models else f"there is no model {model}."


def _conditions(rule: Rule, rules: RuleSet, known: Known) -> Iterator[Problem]:
    conditions = rule.conditions
    for name in (*VALUES, "models", "findings"):
        if (wanted := getattr(conditions, name)) is not None and not wanted:
            yield Problem(rule.name, name, "An empty list matches nothing: leave it out to allow everything.")
    for model in sorted(conditions.models or ()):
        if problem := _unknown_model(resolve_alias(model, rules.aliases), known):
            yield Problem(rule.name, "models", problem)
    for state in sorted((conditions.budget_states or frozenset()) - set(BUDGET_STATES)):
        yield Problem(rule.name, "budget_states", f"There is no state {state}; there are {', '.join(BUDGET_STATES)}.")
    for language in sorted((conditions.languages or frozenset()) - LANGUAGES - {""}):
        yield Problem(rule.name, "languages", f"{language} is never told; these are: {', '.join(sorted(LANGUAGES))}.")
    yield from _contradictions(rule.name, conditions)


def _contradictions(name: str, conditions: Conditions) -> Iterator[Problem]:
    least, most = conditions.min_prompt_tokens, conditions.max_prompt_tokens
    if most is not None and most < 0:
        yield Problem(name, "max_prompt_tokens", "No prompt has fewer than 0 tokens: the rule matches nothing.")
    elif least is not None and most is not None and least > most:
        yield Problem(name, "min_prompt_tokens", f"More than max_prompt_tokens ({most}): the rule matches nothing.")
    if conditions.findings and conditions.findings <= (conditions.without_findings or frozenset()):
        yield Problem(name, "without_findings", "Excludes everything that findings asks for: the rule matches nothing.")
    window = conditions.window
    if window is None:
        return
    for hour_field, hour in (("from_hour", window.from_hour), ("until_hour", window.until_hour)):
        if not 0 <= hour <= 24:
            yield Problem(name, f"window.{hour_field}", "Hours go from 0 to 24.")
    if window.weekdays is not None and not window.weekdays <= set(DAYS):
        yield Problem(name, "window.weekdays", "Weekdays go from 0 (Monday) to 6 (Sunday).")
    if not window.slots():
        yield Problem(name, "window", "There is no hour in it: the rule matches nothing.")


def _route(rule: Rule, known: Known) -> Iterator[Problem]:
    route = rule.route
    named = [one.deployment for one in route.candidates]
    for slug in named:
        yield from _deployment(rule.name, "candidates", slug, known)
    for slug, count in Counter(named).items():
        if count > 1:
            yield Problem(rule.name, "candidates", f"{slug} is named {count} times: give it one weight.")
    yield from _weights(rule)
    yield from _fallbacks(rule, named, known)
    if route.mirror is not None:
        yield from _deployment(rule.name, "mirror.deployment", route.mirror.deployment, known)
        if not 0 < route.mirror.share <= 1:
            yield Problem(rule.name, "mirror.share", "A share is more than 0 and at most 1.")
    if route.deadline_s is not None and not (isfinite(route.deadline_s) and route.deadline_s > 0):
        yield Problem(rule.name, "deadline_s", "A deadline is more than 0 seconds.")
    if route.clamps is not None:
        yield from _clamps(rule.name, route.clamps)


def _deployment(rule: str, name: str, slug: str, known: Known) -> Iterator[Problem]:
    found = known.deployments.get(slug)
    if found is None:
        yield Problem(rule, name, f"There is no deployment {slug}.")
    elif found.is_retired:
        yield Problem(rule, name, f"{slug} runs a retired version of {found.model}.")


def _weights(rule: Rule) -> Iterator[Problem]:
    candidates = rule.route.candidates
    wrong = [one for one in candidates if not isfinite(one.weight) or one.weight < 0]
    for one in wrong:
        yield Problem(rule.name, "candidates", f"The weight of {one.deployment} is not a number from 0 up.")
    if candidates and not wrong and not any(one.weight for one in candidates):
        yield Problem(rule.name, "candidates", "Every weight is 0: nothing can be chosen.")


def _fallbacks(rule: Rule, candidates: list[str], known: Known) -> Iterator[Problem]:
    """A chain that comes back to where it was tried already would go round in circles."""
    tried = set(candidates)
    for slug in rule.route.fallbacks:
        yield from _deployment(rule.name, "fallbacks", slug, known)
        if slug in tried:
            yield Problem(rule.name, "fallbacks", f"The chain comes back to {slug}, which was tried before.")
        tried.add(slug)


def _clamps(rule: str, clamps: Clamps) -> Iterator[Problem]:
    if clamps.max_tokens is not None and clamps.max_tokens < 1:
        yield Problem(rule, "clamps.max_tokens", "An answer has at least 1 token.")
    least, most = clamps.min_temperature, clamps.max_temperature
    for name, bound in (("min_temperature", least), ("max_temperature", most)):
        if bound is not None and not 0 <= bound <= 2:
            yield Problem(rule, f"clamps.{name}", "A temperature lies between 0 and 2.")
    if least is not None and most is not None and least > most:
        yield Problem(rule, "clamps.min_temperature", "More than max_temperature: no temperature lies between.")


def _unreachable(rule: Rule, earlier: tuple[Rule, ...], aliases: Mapping[str, str]) -> Iterator[Problem]:
    for before in earlier:
        if covers(before.conditions, rule.conditions, aliases):
            yield Problem(rule.name, "conditions", f"Never reached: {before.name} matches everything that it does.")
            return


def covers(wide: Conditions, narrow: Conditions, aliases: Mapping[str, str]) -> bool:
    """Whether every request that meets `narrow` meets `wide` too, as far as single conditions show it."""
    for name in (*VALUES, "findings"):
        allowed, wanted = getattr(wide, name), getattr(narrow, name)
        if allowed is not None and (wanted is None or not wanted <= allowed):
            return False
    if wide.without_findings and not wide.without_findings <= (narrow.without_findings or frozenset()):
        return False
    return _covers_models(wide, narrow, aliases) and _covers_tokens(wide, narrow) and _covers_window(wide, narrow)


def _covers_models(wide: Conditions, narrow: Conditions, aliases: Mapping[str, str]) -> bool:
    if wide.models is None:
        return True
    if narrow.models is None:
        return False
    return all(name in wide.models or resolve_alias(name, aliases) in wide.models for name in narrow.models)


def _covers_tokens(wide: Conditions, narrow: Conditions) -> bool:
    least, most = narrow.min_prompt_tokens or 0, narrow.max_prompt_tokens
    if (wide.min_prompt_tokens or 0) > least:
        return False
    return wide.max_prompt_tokens is None or (most is not None and most <= wide.max_prompt_tokens)


def _covers_window(wide: Conditions, narrow: Conditions) -> bool:
    if wide.window is None:
        return True
    everything = frozenset((day, hour) for day in DAYS for hour in range(24))
    return (narrow.window.slots() if narrow.window else everything) <= wide.window.slots()

"""An explanation in words: lines for a terminal, cells for a page."""

from __future__ import annotations

from collections.abc import Iterator

from inference.routing.explanation import CandidateTrace, Explanation


def lines_of(explanation: Explanation) -> Iterator[str]:
    """For a terminal: rules in their order, candidates with filter or score, and the reason."""
    yield _line("model", explanation.model + (f" (asked for as {explanation.alias})" if explanation.alias else ""))
    version = explanation.rule_set
    yield _line("rule set", "none is active" if version is None else f"version {version}")
    for number, (name, verdict) in enumerate(verdicts(explanation)):
        yield _line("" if number else "rules", f"{name}: {verdict}")
    yield _line("strategy", explanation.strategy)
    for number, trace in enumerate(explanation.candidates):
        yield _line("" if number else "candidates", f"{trace.deployment}: {standing(trace, explanation)}")
        if trace.ttft_ms is not None:
            yield _line("", f"  {score(trace)}")
    yield _line("chosen", f"{explanation.chosen}, {explanation.why}" if explanation.chosen else "nothing")
    yield from (_line(name, text) for name, text in extras(explanation))


def verdicts(explanation: Explanation) -> Iterator[tuple[str, str]]:
    """Each rule that was looked at, and whether it fired."""
    for trace in explanation.rules:
        yield trace.name, "fires" if trace.failed is None else f"not met: {trace.failed}"
    if explanation.rule not in {trace.name for trace in explanation.rules if trace.failed is None}:
        yield explanation.rule, "fires, since no other does"


def standing(trace: CandidateTrace, explanation: Explanation) -> str:
    if trace.filter is not None:
        return f"excluded, {trace.filter}"
    fallback = "fallback, " if trace.is_fallback else ""
    if trace.deployment == explanation.chosen:
        return f"{fallback}chosen"
    return f"{fallback}{'meets the objective' if trace.meets_objective else 'would miss the objective'}"


def score(trace: CandidateTrace) -> str:
    """What was predicted, nine in ten being faster than the second figure."""
    return (
        f"TTFT {trace.ttft_ms or 0:.0f} to {trace.ttft_high_ms or 0:.0f} ms,"
        f" E2E {trace.e2e_ms or 0:.0f} to {trace.e2e_high_ms or 0:.0f} ms,"
        f" of that {trace.queue_ms or 0:.0f} ms waiting;"
        f" {trace.cost_usd} USD; {trace.in_flight} of {trace.capacity} under way; {trace.samples:g} fresh measurements"
    )


def extras(explanation: Explanation) -> Iterator[tuple[str, str]]:
    if explanation.replica:
        yield "replica", f"{explanation.replica}, where the conversation stays"
    if explanation.fallbacks:
        yield "then", ", ".join(explanation.fallbacks)
    if explanation.mirror:
        yield "mirror", explanation.mirror
    if explanation.deadline_s is not None:
        yield "deadline", f"{explanation.deadline_s:g} s"
    if explanation.clamped:
        yield "clamped", ", ".join(explanation.clamped)


def _line(label: str, text: str) -> str:
    return f"{label:<12}{text}"

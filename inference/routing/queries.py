"""Reads about rule sets: what rules may name, and which problems a version has."""

from __future__ import annotations

import msgspec

from inference.models import Deployment, Lifecycle, ModelVersion
from inference.routing.models import RoutingRuleSet, RuleSetState
from inference.routing.rules import RuleSet
from inference.routing.validation import Known, KnownDeployment, Problem, validate


def known_names() -> Known:
    versions = list(ModelVersion.objects.values_list("name", "lifecycle"))
    models = {name for name, lifecycle in versions if lifecycle != Lifecycle.RETIRED}
    rows = Deployment.objects.values_list("slug", "model_version__name", "model_version__lifecycle")
    return Known(
        models=frozenset(models),
        retired_models=frozenset(name for name, _ in versions) - models,
        deployments={slug: KnownDeployment(model, state == Lifecycle.RETIRED) for slug, model, state in rows},
    )


def problems_of(rule_set: RoutingRuleSet) -> list[Problem]:
    """What stands against activating this version now; the catalog may have changed since it was written."""
    try:
        rules: RuleSet = rule_set.as_rule_set()
    except msgspec.ValidationError as error:
        return [Problem("", "rules", str(error))]
    return validate(rules, known_names())


def active_rule_set() -> RoutingRuleSet | None:
    return RoutingRuleSet.objects.filter(state=RuleSetState.ACTIVE).first()

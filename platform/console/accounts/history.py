"""The history of configuration: which changes are kept, without their secrets, and who is named for them.

auditlog ships its own way to name the actor; that one connects a signal for each request and does not nest.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from auditlog.models import LogEntry
from auditlog.registry import auditlog
from django.contrib.auth.models import AnonymousUser
from django.db.models.signals import pre_save

from console.accounts.models import APIKey, Member, Organisation, Team, User
from inference.budget_models import Budget, Limit
from inference.evaluation.models import EvaluationPrompt, EvaluationSet
from inference.fitting.models import Accelerator
from inference.lifecycle.canary_policy import CanaryPolicy
from inference.lifecycle.models import LifecycleStep
from inference.models import Deployment, ModelVersion
from inference.routing.models import RoutingRule, RoutingRuleSet
from inference.scaling.models import ScalingPolicy

_actor: ContextVar[User | AnonymousUser | None] = ContextVar("actor", default=None)


@contextmanager
def acting(user: User | AnonymousUser | None) -> Iterator[None]:
    """Changes made inside are this user's. A lazy user is looked up when the first change is kept."""
    token = _actor.set(user)
    try:
        yield
    finally:
        _actor.reset(token)


def keep() -> None:
    """Register what is kept; called once, when the apps are ready."""
    auditlog.register(Organisation, exclude_fields=["created_at"])
    auditlog.register(User, exclude_fields=["password", "last_login", "date_joined"])
    auditlog.register(Member, exclude_fields=["created_at"])
    auditlog.register(Team, exclude_fields=["created_at"])
    auditlog.register(Limit)
    auditlog.register(Budget, exclude_fields=["created_at"])
    auditlog.register(APIKey, exclude_fields=["digest", "created_at"])
    auditlog.register(ModelVersion, exclude_fields=["created_at"])
    auditlog.register(Deployment, exclude_fields=["created_at"])
    auditlog.register(Accelerator)
    auditlog.register(ScalingPolicy, exclude_fields=["applied", "looks", "failures", "retry_at"])
    auditlog.register(LifecycleStep)
    auditlog.register(CanaryPolicy)
    auditlog.register(EvaluationSet, exclude_fields=["created_at"])
    auditlog.register(EvaluationPrompt, exclude_fields=["prompt", "check_of_answer"])
    auditlog.register(RoutingRuleSet, exclude_fields=["created_at"])
    auditlog.register(RoutingRule)
    pre_save.connect(_name_actor, sender=LogEntry, dispatch_uid="console.accounts.history")


def _name_actor(instance: LogEntry, **_: Any) -> None:
    actor = _actor.get()
    if instance.actor_id is None and actor is not None and actor.is_authenticated:
        instance.actor = actor

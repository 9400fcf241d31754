"""Versions of the routing rules. A version is edited as a draft and never after it was proposed."""

from __future__ import annotations

import json
from typing import Any, TypeVar

import msgspec
from django.core.exceptions import ValidationError
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from gpu_workers.identifiers import uuid7
from inference.routing.rules import Conditions, Route, Rule, RuleSet

Part = TypeVar("Part")


class RuleSetState(models.TextChoices):
    DRAFT = "draft", "Draft"
    PROPOSED = "proposed", "Proposed"
    ACTIVE = "active", "Active"
    SUPERSEDED = "superseded", "Superseded"


class RoutingRuleSet(models.Model):
    """One version of all rules. At most one is active; without one, any live deployment of a model answers."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    version = models.PositiveIntegerField(unique=True, editable=False)
    state = models.CharField(max_length=10, choices=RuleSetState.choices, default=RuleSetState.DRAFT, editable=False)
    note = models.CharField(max_length=200, blank=True, help_text="What this version is for.")
    aliases = models.JSONField(
        default=dict, blank=True, help_text='Names that callers may use, each with its model: {"fast": "small-model"}.'
    )
    proposed_by = models.ForeignKey(
        "accounts.User", on_delete=models.SET_NULL, null=True, editable=False, related_name="+"
    )
    activated_by = models.ForeignKey(
        "accounts.User", on_delete=models.SET_NULL, null=True, editable=False, related_name="+"
    )
    reverts_to = models.ForeignKey(
        "self", on_delete=models.PROTECT, null=True, editable=False, related_name="+", verbose_name="goes back to"
    )
    created_at = models.DateTimeField("created", db_default=Now(), editable=False)
    proposed_at = models.DateTimeField("proposed", null=True, editable=False)
    effective_from = models.DateTimeField("in force from", null=True, editable=False)
    effective_until = models.DateTimeField("in force until", null=True, editable=False)

    class Meta:
        app_label = "inference"
        ordering = ["-version"]
        verbose_name = "routing rule set"
        constraints = [
            models.UniqueConstraint(fields=["state"], condition=Q(state="active"), name="routing_one_active_rule_set")
        ]

    def __str__(self) -> str:
        return f"Routing rules, version {self.version}"

    def clean(self) -> None:
        self.aliases = self.aliases or {}
        try:
            msgspec.convert(self.aliases, dict[str, str])
        except msgspec.ValidationError as error:
            raise ValidationError({"aliases": str(error)}) from None

    def as_rule_set(self) -> RuleSet:
        """Raises `msgspec.ValidationError` for rules that were written past this class."""
        rules = tuple(rule.as_rule() for rule in self.rules.all())
        return RuleSet(self.version, rules, msgspec.convert(self.aliases, dict[str, str]))


class RoutingRule(models.Model):
    """One rule: the first in order whose conditions a request meets decides where it goes."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    rule_set = models.ForeignKey(RoutingRuleSet, on_delete=models.CASCADE, related_name="rules")
    position = models.PositiveSmallIntegerField(default=0, db_index=True)
    name = models.CharField(max_length=80)
    conditions = models.JSONField(
        default=dict,
        blank=True,
        help_text='What a request must be; empty: every request. {"priorities": ["batch"], "min_prompt_tokens": 2000}',
    )
    route = models.JSONField(
        default=dict,
        blank=True,
        help_text="Where it goes; empty: any live deployment of its model, chosen adaptively."
        ' {"candidates": [{"deployment": "small", "weight": 1}], "strategy": "weighted", "fallbacks": ["large"]}',
    )

    class Meta:
        app_label = "inference"
        ordering = ["position", "id"]
        verbose_name = "routing rule"
        constraints = [models.UniqueConstraint(fields=["rule_set", "name"], name="routing_rule_named_once")]

    def __str__(self) -> str:
        return self.name

    def clean(self) -> None:
        # A field that was left empty in the console asks nothing and says nothing.
        self.conditions, self.route = self.conditions or {}, self.route or {}
        faults = {}
        for name, kind in (("conditions", Conditions), ("route", Route)):
            try:
                _parse(getattr(self, name), kind)
            except ValueError as error:
                faults[name] = str(error)
        if faults:
            raise ValidationError(faults)

    def as_rule(self) -> Rule:
        """Raises `msgspec.ValidationError`."""
        return Rule(self.name, msgspec.convert(self.conditions, Conditions), msgspec.convert(self.route, Route))


def _parse(value: Any, kind: type[Part]) -> Part:
    """Raises `ValueError` for what the database or the rules cannot hold."""
    json.dumps(value, allow_nan=False)
    return msgspec.convert(value, kind)

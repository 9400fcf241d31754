"""Who scales a deployment, between which bounds, and what was done."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator, RegexValidator
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now

from gpu_workers.identifiers import uuid7
from inference.catalog_validation import MAX_USD_PER_HOUR

MOST_REPLICAS = 1000
KUBERNETES_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\Z")
SAGEMAKER_NAME = re.compile(r"[A-Za-z0-9](-*[A-Za-z0-9]){0,62}\Z")


class Driver(models.TextChoices):
    LOCAL = "local", "Processes on its hosts"
    KUBERNETES = "kubernetes", "Kubernetes"
    SAGEMAKER = "sagemaker", "SageMaker"


class ScalingPolicy(models.Model):
    """How many replicas a deployment gets, by whom, between which bounds.

    `applied` is what the driver was told last, None where that is not known; `looks` are what was needed lately, with
    Unix seconds; `failures` in a row, and `retry_at` when the driver is asked again.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    deployment = models.OneToOneField("inference.Deployment", on_delete=models.CASCADE, related_name="scaling_policy")
    is_enabled = models.BooleanField("scales by itself", default=False)
    driver = models.CharField(max_length=10, choices=Driver.choices)
    namespace = models.CharField("Kubernetes namespace", max_length=63, blank=True)
    name = models.CharField(
        "name there",
        max_length=63,
        blank=True,
        help_text="The Kubernetes Deployment, or the inference component on SageMaker.",
    )
    region = models.CharField(
        "AWS region",
        max_length=30,
        blank=True,
        validators=[RegexValidator(r"^[a-z]{2}(-[a-z]+)+-\d\Z", "A region's name, such as eu-central-1.")],
    )
    at_least = models.PositiveSmallIntegerField(
        default=1, validators=[MinValueValidator(1), MaxValueValidator(MOST_REPLICAS)], help_text="Replicas."
    )
    at_most = models.PositiveSmallIntegerField(
        default=4, validators=[MinValueValidator(1), MaxValueValidator(MOST_REPLICAS)], help_text="Replicas."
    )
    across_zones = models.BooleanField(
        "in two zones", default=False, help_text="Never fewer than two, and it is said when all are in one zone."
    )
    queue_ms = models.PositiveIntegerField(
        "waiting (ms)",
        default=500,
        validators=[MinValueValidator(10), MaxValueValidator(600_000)],
        help_text="An answer should wait no longer for its place.",
    )
    good_percent = models.DecimalField(
        "good answers (%)",
        max_digits=5,
        decimal_places=3,
        default=Decimal(99),
        validators=[MinValueValidator(Decimal(50)), MaxValueValidator(Decimal("99.999"))],
        help_text="Failing or waiting too long 14.4 times as often as this allows adds a replica.",
    )
    down_after_s = models.PositiveIntegerField(
        "fewer after (s)",
        default=600,
        validators=[MinValueValidator(60), MaxValueValidator(86_400)],
        help_text="Only when so many were not needed in the whole time before.",
    )
    hourly_most = models.DecimalField(
        "at most (USD/h)",
        max_digits=12,
        decimal_places=4,
        null=True,
        blank=True,
        validators=[MinValueValidator(Decimal(0)), MaxValueValidator(MAX_USD_PER_HOUR)],
        help_text="For all its replicas. The platform's budgets set a ceiling, too.",
    )
    applied = models.PositiveSmallIntegerField(null=True, editable=False)
    looks = models.JSONField(default=list, editable=False)
    failures = models.PositiveIntegerField(default=0, editable=False)
    retry_at = models.DateTimeField(null=True, editable=False)

    class Meta:
        app_label = "inference"
        verbose_name = "scaling policy"
        verbose_name_plural = "scaling policies"
        constraints = [
            models.CheckConstraint(
                condition=Q(at_least__gte=1, at_most__gte=F("at_least")),
                name="scaling_bounds",
                violation_error_message="At most is not below at least.",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.deployment}: {self.floor} to {self.at_most}"

    @property
    def floor(self) -> int:
        return max(self.at_least, 2) if self.across_zones else self.at_least

    def clean(self) -> None:
        errors: dict[str, Any] = {}
        if self.driver == Driver.KUBERNETES:
            for field in ("namespace", "name"):
                if not KUBERNETES_NAME.match(getattr(self, field)):
                    errors[field] = "Small letters, digits and hyphens, as Kubernetes has names."
        if self.driver == Driver.SAGEMAKER:
            if not SAGEMAKER_NAME.match(self.name):
                errors["name"] = "The inference component's name: letters, digits and hyphens."
            if not self.region:
                errors["region"] = "SageMaker needs a region."
        if self.across_zones and self.at_most < 2:
            errors["at_most"] = "Two zones need two replicas."
        if errors:
            raise ValidationError(errors)


class Trigger(models.TextChoices):
    LOOK = "look", "Looked at"
    ALERT = "alert", "Alert"
    PERSON = "person", "Set by hand"


class ScalingStep(models.Model):
    """One change of a deployment's replicas, or a driver that refused it. Kept as it is."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    deployment = models.ForeignKey("inference.Deployment", on_delete=models.CASCADE, related_name="+")
    at = models.DateTimeField(db_default=Now())
    trigger = models.CharField(max_length=6, choices=Trigger.choices)
    before = models.PositiveSmallIntegerField()
    after = models.PositiveSmallIntegerField()
    bound = models.CharField("because", max_length=8)
    figures = models.JSONField(default=dict)
    error = models.CharField(max_length=120, blank=True)

    class Meta:
        app_label = "inference"
        ordering = ["-at"]
        verbose_name = "scaling step"
        indexes = [models.Index(fields=["-at"], name="scaling_step_at")]

    def __str__(self) -> str:
        return f"{self.deployment}: {self.before} → {self.after}"

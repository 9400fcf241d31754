"""Steps in the life of a model version: who proposed each, who approved it, and from when it holds."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from gpu_workers.identifiers import uuid7
from inference.models import Lifecycle, ModelVersion


class StepKind(models.TextChoices):
    PROMOTE = "promote", "Promotion"
    REVERT = "revert", "Reversal"
    RETIRE = "retire", "Retirement"


class StepState(models.TextChoices):
    PROPOSED = "proposed", "Proposed"
    APPROVED = "approved", "Approved"
    IN_FORCE = "in_force", "In force"
    REVERTED = "reverted", "Reverted"
    WITHDRAWN = "withdrawn", "Withdrawn"


OPEN = (StepState.PROPOSED, StepState.APPROVED)


class LifecycleStep(models.Model):
    """One change of a version's lifecycle. An approved step takes effect at its time; a version has one open step."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    model_version = models.ForeignKey(ModelVersion, on_delete=models.PROTECT, related_name="steps")
    kind = models.CharField(max_length=8, choices=StepKind.choices, default=StepKind.PROMOTE)
    from_state = models.CharField("from", max_length=12, choices=Lifecycle.choices)
    to_state = models.CharField("to", max_length=12, choices=Lifecycle.choices)
    state = models.CharField(max_length=10, choices=StepState.choices, default=StepState.PROPOSED)
    proposed_by = models.ForeignKey("accounts.User", on_delete=models.SET_NULL, null=True, related_name="+")
    proposed_at = models.DateTimeField("proposed", db_default=Now())
    approved_by = models.ForeignKey("accounts.User", on_delete=models.SET_NULL, null=True, related_name="+")
    approved_at = models.DateTimeField("approved", null=True)
    effective_from = models.DateTimeField(
        "in force from", null=True, help_text="As it was asked for, or as it came to be. Empty: with the approval."
    )
    figures = models.JSONField(null=True, editable=False)
    reverts = models.ForeignKey("self", on_delete=models.PROTECT, null=True, related_name="+")

    class Meta:
        app_label = "inference"
        ordering = ["-id"]
        verbose_name = "lifecycle step"
        constraints = [
            models.UniqueConstraint(
                fields=["model_version"], condition=Q(state__in=OPEN), name="lifecycle_one_open_step"
            ),
            models.CheckConstraint(
                condition=~Q(state="approved") | Q(effective_from__isnull=False), name="lifecycle_approved_has_time"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.get_from_state_display()} to {self.get_to_state_display().lower()}"

    @property
    def why(self) -> str:
        """What the platform took a canary back for; empty for what people did."""
        if not self.figures:
            return ""
        told = "{short_bad} of {short_of} bad in 5 minutes, {bad} of {of} in an hour; live {live_bad} of {live_of}"
        return f"taken back by itself: {told.format(**self.figures)}"

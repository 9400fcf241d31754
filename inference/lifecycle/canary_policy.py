"""What a canary must keep to, or be taken back."""

from __future__ import annotations

from decimal import Decimal

from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import Q

from gpu_workers.identifiers import uuid7
from inference.models import ModelVersion

# At 14.4 times what is allowed, 95 % is taken back at 72 % bad answers; below 93.06 % not even all of them would do.
LOWEST_PERCENT, HIGHEST_PERCENT = Decimal(95), Decimal("99.99")


class CanaryPolicy(models.Model):
    """The objective of one version while it is a canary. A version without one has these defaults."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    model_version = models.OneToOneField(ModelVersion, on_delete=models.CASCADE, related_name="canary_policy")
    is_enabled = models.BooleanField(
        "take back by itself", default=True, help_text="Else it is watched by people alone."
    )
    good_percent = models.DecimalField(
        "good answers (%)",
        max_digits=4,
        decimal_places=2,
        default=Decimal(99),
        validators=[MinValueValidator(LOWEST_PERCENT), MaxValueValidator(HIGHEST_PERCENT)],
        help_text="It is taken back when it fails 14.4 times as often as this allows, and twice as often as live.",
    )
    ttft_ms = models.PositiveIntegerField(
        "TTFT (ms)",
        default=1_000,
        validators=[MinValueValidator(1), MaxValueValidator(120_000)],
        help_text="A good answer's first token comes within this.",
    )
    at_least = models.PositiveIntegerField(
        "answers at least",
        default=20,
        validators=[MinValueValidator(5), MaxValueValidator(100_000)],
        help_text="Fewer in an hour decide nothing.",
    )

    class Meta:
        app_label = "inference"
        verbose_name = "canary objective"
        constraints = [
            models.CheckConstraint(
                condition=Q(good_percent__gte=LOWEST_PERCENT, good_percent__lte=HIGHEST_PERCENT),
                name="canary_good_percent",
            ),
            models.CheckConstraint(condition=Q(ttft_ms__gte=1, at_least__gte=5), name="canary_bounds"),
        ]

    def __str__(self) -> str:
        return f"{self.good_percent} % good, TTFT {self.ttft_ms} ms"

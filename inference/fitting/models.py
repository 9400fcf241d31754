"""The accelerators that a fit is checked against, with what an hour of each is assumed to cost."""

from __future__ import annotations

from decimal import Decimal

from django.core.validators import MaxValueValidator, MinValueValidator, URLValidator
from django.db import models
from django.db.models import Q

from gpu_workers.identifiers import uuid7
from inference.catalog_validation import MAX_USD_PER_HOUR
from inference.fitting.arithmetic import GB, Card


class Accelerator(models.Model):
    """Figures of a data sheet, and a price that somebody set on a day."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    name = models.CharField(max_length=40, unique=True)
    memory_gb = models.PositiveIntegerField(
        "memory (GB)", validators=[MinValueValidator(1), MaxValueValidator(100_000)], help_text="Of one, in 10⁹ bytes."
    )
    bandwidth_gb_s = models.PositiveIntegerField(
        "bandwidth (GB/s)",
        validators=[MinValueValidator(1), MaxValueValidator(10_000_000)],
        help_text="Of its memory, in 10⁹ bytes per second.",
    )
    fp8_native = models.BooleanField("FP8 native", default=False, help_text="Else FP8 is for weights only.")
    nvfp4_native = models.BooleanField("NVFP4 native", default=False, help_text="Else NVFP4 is for weights only.")
    source = models.CharField(
        max_length=300, validators=[URLValidator(schemes=["https"])], help_text="Where the figures are published."
    )
    usd_per_hour = models.DecimalField(
        "price (USD/h)",
        max_digits=12,
        decimal_places=4,
        validators=[MinValueValidator(Decimal(0)), MaxValueValidator(MAX_USD_PER_HOUR)],
        help_text="Of one, on demand. An assumption: set what you pay.",
    )
    priced_on = models.DateField("price of", help_text="The day that the price was set.")

    class Meta:
        ordering = ["memory_gb", "bandwidth_gb_s", "name"]
        constraints = [
            models.CheckConstraint(condition=Q(memory_gb__gte=1, bandwidth_gb_s__gte=1), name="accelerator_figures"),
            models.CheckConstraint(
                condition=Q(usd_per_hour__gte=0, usd_per_hour__lte=MAX_USD_PER_HOUR),
                name="accelerator_price",
                violation_error_message="A price is not negative, and not above 100,000 USD per hour.",
            ),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def card(self) -> Card:
        return Card(
            name=self.name,
            memory=self.memory_gb * GB,
            bandwidth=self.bandwidth_gb_s * GB,
            usd_per_hour=self.usd_per_hour,
            fp8_native=self.fp8_native,
            nvfp4_native=self.nvfp4_native,
        )

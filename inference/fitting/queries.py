"""What a model version needs, and on what it fits: for its page and the command."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date

from django.db.models import Max, Min

from inference.fitting.arithmetic import Fit, Load, fit_all
from inference.fitting.models import Accelerator
from inference.models import ModelVersion

BILLION = 10**9


class NotKnown(ValueError):
    """The version does not say enough; the message names the field."""


@dataclass(frozen=True, slots=True)
class Report:
    """`fits` is ordered by cost. The prices were set between `priced_from` and `priced_to`."""

    load: Load
    active_is_known: bool
    fits: list[Fit]
    priced_from: date | None
    priced_to: date | None


def planned_concurrency(version: ModelVersion) -> int:
    """Answers at once of its largest replica; 1 where no deployment says."""
    found = version.deployments.aggregate(most=Max("concurrency"))["most"]
    return int(found or 1)


def load_of(version: ModelVersion, *, tokens: int | None = None, concurrency: int | None = None) -> Load:
    """Without `tokens`, its whole context; without `concurrency`, what is planned. Raises `NotKnown`."""
    total = version.parameters_total
    if total is None:
        raise NotKnown("Its parameters are not known: fill in “parameters (B)”.")
    active = version.parameters_active or total
    return Load(
        parameters_total=int(total * BILLION),
        parameters_active=int(active * BILLION),
        quantization=version.quantization,
        kv_bytes_per_token=version.kv_bytes_per_token,
        tokens=version.context_length if tokens is None else tokens,
        concurrency=planned_concurrency(version) if concurrency is None else concurrency,
    )


def check_fit(version: ModelVersion, *, tokens: int | None = None, concurrency: int | None = None) -> Report:
    """Against every accelerator of the table. Raises `NotKnown`."""
    load = load_of(version, tokens=tokens, concurrency=concurrency)
    dates = Accelerator.objects.aggregate(first=Min("priced_on"), last=Max("priced_on"))
    return Report(
        load=load,
        active_is_known=version.parameters_active is not None,
        fits=fit_all(load, (row.card for row in Accelerator.objects.all())),
        priced_from=dates["first"],
        priced_to=dates["last"],
    )

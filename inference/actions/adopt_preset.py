"""Put a preset into the catalog: a draft version and its deployment, switched off, for somebody to look at; and the
platform's cap."""

from __future__ import annotations

from django.db import transaction

from inference.budget_models import Budget
from inference.models import Deployment, ModelVersion
from inference.presets import Preset


@transaction.atomic
def adopt_preset(preset: Preset) -> ModelVersion:
    """The version. What is there already stays as it is: the version, its deployment, the platform's budget."""
    named = {name: preset.version[name] for name in ("name", "version")}
    version = ModelVersion.objects.filter(**named).first()
    if version is None:
        version = ModelVersion(**preset.version)
        version.full_clean()
        version.save()
    if not Deployment.objects.filter(slug=preset.deployment["slug"]).exists():
        deployment = Deployment(model_version=version, is_enabled=False, **preset.deployment)
        deployment.full_clean()
        deployment.save()
    period, amount = preset.cap
    Budget.objects.get_or_create(organisation=None, team=None, api_key=None, period=period, defaults={"amount": amount})
    return version

"""Offer the model of this installation: one model version, one deployment, and no other of the installer's."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from django.db import transaction

from inference.models import Deployment, Lifecycle, ModelVersion

VERSION = "demo"  # marks what the installer offers; everything else in the catalog is left alone
CONTEXT_LENGTH = 4096
PRICES = {"input_price": Decimal("0.05"), "cached_price": Decimal("0.01"), "output_price": Decimal("0.10")}


@dataclass(frozen=True, slots=True)
class Offer:
    """`model` is the name that callers use; `engine` is one of `EngineKind`."""

    model: str
    deployment: str
    engine: str


@transaction.atomic
def offer_model(offer: Offer) -> Deployment:
    """The deployment, made where it was missing. Raises ValidationError for a name that the catalog cannot hold."""
    version = _version(offer.model)
    deployment = Deployment.objects.filter(slug=offer.deployment).first() or Deployment(slug=offer.deployment)
    wanted = (version.pk, offer.engine, True)
    if (deployment.model_version_id, deployment.engine, deployment.is_enabled) != wanted:
        deployment.model_version, deployment.engine, deployment.is_enabled = version, offer.engine, True
        deployment.full_clean()
        deployment.save()
    others = Deployment.objects.filter(model_version__version=VERSION, is_enabled=True).exclude(pk=deployment.pk)
    for other in others:
        other.is_enabled = False
        other.save(update_fields=["is_enabled"])
    return deployment


def _version(name: str) -> ModelVersion:
    """The model version; one that exists keeps the prices and the state that somebody gave it."""
    found = ModelVersion.objects.filter(name=name, version=VERSION).first()
    if found is not None:
        return found
    version = ModelVersion(
        name=name, version=VERSION, context_length=CONTEXT_LENGTH, lifecycle=Lifecycle.LIVE, **PRICES
    )
    version.full_clean()
    version.save()
    return version

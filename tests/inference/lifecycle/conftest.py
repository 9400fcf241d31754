"""A draft version, and two administrators of the operator."""

from __future__ import annotations

import pytest

from console.accounts.models import Organisation, User
from inference.models import Deployment, ModelVersion
from tests.console import people


@pytest.fixture
def organisation() -> Organisation:
    return people.organisation("Operator", requires_evaluation=False)


@pytest.fixture
def one(organisation: Organisation) -> User:
    return people.superuser(organisation)


@pytest.fixture
def other(organisation: Organisation) -> User:
    return people.superuser(organisation)


@pytest.fixture
def version() -> ModelVersion:
    made = ModelVersion.objects.create(name="new", version="1", context_length=4096)
    Deployment.objects.create(slug="new-1", model_version=made, engine="simulated")
    return made

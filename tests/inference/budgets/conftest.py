"""The town that every test of the budgets begins with."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from inference.models import Budget
from tests.inference.budgets.town import Town
from tests.services import Services


@pytest.fixture
def town(services: Services, on_committed_database: str) -> Iterator[Town]:
    yield Town(services, on_committed_database)
    Budget.objects.all().delete()

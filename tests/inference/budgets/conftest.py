"""The town that every test of the budgets begins with, in a database of its own: a ledger cannot be emptied."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pytest_django import DjangoDbBlocker

from inference.models import Budget
from tests.inference.budgets.town import Town
from tests.inference.conftest import django_on, make_database
from tests.services import Services


@pytest.fixture(scope="session")
def ledger_database(services: Services, django_db_blocker: DjangoDbBlocker) -> str:
    return make_database("ledger", services, django_db_blocker)


@pytest.fixture
def town(services: Services, ledger_database: str, django_db_blocker: DjangoDbBlocker) -> Iterator[Town]:
    with django_on("ledger", django_db_blocker):
        yield Town(services, ledger_database)
        Budget.objects.all().delete()

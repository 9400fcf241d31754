"""Engine-hours are booked once a slot for each living replica, and the platform's budget has them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal

import pytest
import redis
from pytest_django import DjangoDbBlocker

from gpu_workers.messages import WORKERS_KEY, Heartbeat, encode, worker_key
from inference.budget_models import Budget, Transfer
from inference.engine_hours import book_engine_hours
from inference.models import Deployment
from tests.inference.budgets.bank import Bank
from tests.inference.budgets.town import CENT, Town, admitted
from tests.inference.conftest import django_on, make_database
from tests.services import Services


@pytest.fixture(scope="module")
def hours_database(services: Services, django_db_blocker: DjangoDbBlocker) -> str:
    """Of its own: engine-hours are on every platform budget, and a ledger cannot be emptied."""
    return make_database("hours", services, django_db_blocker)


@pytest.fixture
def town(services: Services, hours_database: str, django_db_blocker: DjangoDbBlocker) -> Iterator[Town]:
    with django_on("hours", django_db_blocker):
        yield Town(services, hours_database)
        Budget.objects.all().delete()


def alive(valkey: redis.Redis, worker: str, deployment: str) -> None:
    beat = Heartbeat(worker, deployment, "vllm", False, False, 0, 1, "seal")
    valkey.set(worker_key(worker), encode(beat), ex=60)
    valkey.sadd(WORKERS_KEY, worker)


def test_each_living_replica_is_booked_once_a_slot(town: Town, settings) -> None:
    settings.VALKEY_URL = town.valkey_url
    town.platform_budget("1.00")
    Deployment.objects.filter(pk=town.deployment.pk).update(hourly_price=Decimal("6"))
    before = set(Transfer.objects.filter(kind="engine_hours").values_list("id", flat=True))
    now = datetime.now(UTC)

    async def count(one: Bank) -> None:
        assert len(await admitted([one], 1)) == 1

    town.run(count, external=True)  # the budget is counted before there are any hours
    with redis.Redis.from_url(town.valkey_url) as valkey:
        assert book_engine_hours(now) == 0  # nobody shows life
        for number in range(2):
            alive(valkey, f"worker-{number}", town.deployment.slug)
        alive(valkey, "stranger", "somewhere-else")
        valkey.set(worker_key("broken"), b"no heartbeat")
        valkey.sadd(WORKERS_KEY, "broken")
        assert [book_engine_hours(now) for _ in range(3)] == [1, 0, 0]

    booked = Transfer.objects.filter(kind="engine_hours").exclude(id__in=before).get()
    assert booked.amount == Decimal("1.00")  # two replicas at 6 USD for five minutes
    assert booked.organisation is None

    async def refused(one: Bank) -> None:
        assert await admitted([one], 5, usd=CENT) == []

    town.run(refused, external=True)
    Deployment.objects.filter(pk=town.deployment.pk).update(hourly_price=0)


def test_what_is_paid_by_the_token_has_no_hours(town: Town, settings) -> None:
    settings.VALKEY_URL = town.valkey_url
    with redis.Redis.from_url(town.valkey_url) as valkey:
        alive(valkey, "worker", town.deployment.slug)
    assert book_engine_hours(datetime.now(UTC)) == 0

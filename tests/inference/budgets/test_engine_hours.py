"""Engine-hours are booked once a slot for each living replica, and the platform's budget has them."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import redis

from gpu_workers.messages import WORKERS_KEY, Heartbeat, encode, worker_key
from inference.budget_models import Transfer
from inference.engine_hours import book_engine_hours
from inference.models import Deployment
from tests.inference.budgets.bank import Bank
from tests.inference.budgets.town import CENT, Town, admitted


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

"""From heartbeats, queues and the ledger to a number at the driver: once, within bounds, and again when it failed."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
import redis
from django.core.exceptions import ValidationError
from django.test import Client

from compliance.audit.models import Entry
from console.accounts.models import Role
from gpu_workers.connecting import connect
from gpu_workers.local_replicas import read_wanted
from gpu_workers.settings import seal_key
from inference.budget_models import Budget, Transfer
from inference.models import Deployment
from inference.places.sagemaker import PlaceError
from inference.scaling import loop
from inference.scaling.loop import scale_all
from inference.scaling.models import ScalingPolicy, ScalingStep
from tests.console import people
from tests.inference.lifecycle.test_canary import answers
from tests.inference.scaling.conftest import policy_for, show

pytestmark = pytest.mark.django_db
NOW = datetime.now(UTC)
MINUTE = timedelta(minutes=1)


def wanted(policy: ScalingPolicy) -> int:
    return Deployment.objects.get(pk=policy.deployment_id).desired_replicas


async def told(url: str) -> int | None:
    client = connect(url)
    try:
        return await read_wanted(client, seal_key(), "scaled")
    finally:
        await client.aclose()


def test_what_waits_in_every_queue_is_worked_off_by_more_replicas(
    policy: ScalingPolicy, valkey: redis.Redis, settings: Any
) -> None:
    show(valkey, "w-1", running=10, waiting=3)
    for queue, count in (("gpu.scaled", 20), ("gpu.scaled\x06\x163", 10), ("gpu.scaled@w-1", 4), ("gpu.other", 500)):
        valkey.rpush(queue, *range(count))
    assert scale_all(NOW) == 1
    step = ScalingStep.objects.get()
    assert (step.before, step.after, step.trigger) == (1, 2, "look")
    assert step.figures["waiting"] == 37
    assert wanted(policy) == 2
    assert scale_all(NOW + MINUTE) == 1
    assert wanted(policy) == 4  # at most twice as many at once
    assert asyncio.run(told(settings.VALKEY_URL)) == 4
    kept = Entry.objects.filter(facts__about="replicas").values_list("facts__to", flat=True)
    assert sorted(kept) == [2, 4]


def test_fewer_only_when_so_many_were_not_needed_for_the_whole_time(policy: ScalingPolicy, valkey: redis.Redis) -> None:
    Deployment.objects.filter(pk=policy.deployment_id).update(desired_replicas=4)
    show(valkey, "w-1")
    for minute in range(10):
        assert scale_all(NOW + minute * MINUTE) == 0
    valkey.rpush("gpu.scaled", *range(300))
    scale_all(NOW + 10 * MINUTE)
    assert wanted(policy) == 8
    valkey.delete("gpu.scaled")
    for minute in range(11, 20):
        scale_all(NOW + minute * MINUTE)
    assert wanted(policy) == 8
    for minute in range(20, 24):
        scale_all(NOW + minute * MINUTE)
    assert wanted(policy) == 1


def test_what_fails_for_an_hour_and_now_adds_one(policy: ScalingPolicy, valkey: redis.Redis) -> None:
    show(valkey, "w-1")
    version, acme = policy.deployment.model_version, people.organisation()
    answers(version, acme, 30, status="failed", error_code="engine_failed", ttft_ms=None, ago=2 * MINUTE)
    scale_all(NOW)
    assert ScalingStep.objects.get().bound == "burn"
    assert wanted(policy) == 2


def test_answers_that_wait_too_long_burn_too(policy: ScalingPolicy, valkey: redis.Redis) -> None:
    show(valkey, "w-1")
    answers(policy.deployment.model_version, people.organisation(), 30, queued_ms=501.0, ago=2 * MINUTE)
    scale_all(NOW)
    assert wanted(policy) == 2


def test_money_sets_the_ceiling_and_availability_the_floor(policy: ScalingPolicy, valkey: redis.Redis) -> None:
    Deployment.objects.filter(pk=policy.deployment_id).update(hourly_price=Decimal(10))
    now = datetime(2026, 3, 31, 23, 0, tzinfo=UTC)  # an hour before the budget renews
    Budget.objects.create(amount=Decimal(100))
    Transfer.objects.create(
        kind="engine_hours", deployment=policy.deployment, model="scaled", amount=Decimal(65), at=now - MINUTE
    )
    show(valkey, "w-1")
    valkey.rpush("gpu.scaled", *range(400))
    for minute in range(4):
        scale_all(now + minute * MINUTE / 60)
    assert wanted(policy) == 3  # 35 USD are left, at 10 USD an hour each
    assert ScalingStep.objects.first().bound == "money"  # type: ignore[union-attr]
    Transfer.objects.create(
        kind="engine_hours", deployment=policy.deployment, model="scaled", amount=Decimal(60), at=now - MINUTE
    )
    policy.across_zones = True
    policy.save()
    scale_all(now + MINUTE)
    assert wanted(policy) == 2
    assert ScalingStep.objects.first().figures["one_zone"]  # type: ignore[union-attr]


def test_a_driver_that_fails_is_asked_again_later_and_holds_up_nobody(
    policy: ScalingPolicy, valkey: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = policy_for(people.deployment("other", model="other"), at_least=3)
    asked: list[tuple[str, int]] = []

    def refuse(of: ScalingPolicy, replicas: int) -> None:
        asked.append((of.deployment.slug, replicas))
        if of.deployment.slug == "scaled" and len(asked) < 6:
            raise PlaceError("Kubernetes answered 403 Forbidden")

    monkeypatch.setattr(loop, "set_replicas", refuse)
    for seconds in (0, 15, 29, 31, 60, 95):
        scale_all(NOW + timedelta(seconds=seconds))
    assert asked.count(("other", 3)) == 1
    assert asked.count(("scaled", 1)) == 3  # at once, after 30 s, and 60 s later
    policy.refresh_from_db()
    assert (policy.failures, policy.applied) == (3, None)
    error = ScalingStep.objects.filter(deployment=policy.deployment).first()
    assert error is not None
    assert error.error == "Kubernetes answered 403 Forbidden"
    for seconds in (300, 900):
        scale_all(NOW + timedelta(seconds=seconds))
    policy.refresh_from_db()
    assert (policy.failures, policy.applied) == (0, 1)
    assert wanted(other) == 3


@pytest.mark.usefixtures("valkey")
def test_without_the_broker_nothing_is_changed(policy: ScalingPolicy, settings: Any) -> None:
    settings.VALKEY_URL = "redis://127.0.0.1:1/0"
    assert scale_all(NOW) == 0
    assert not ScalingStep.objects.exists()


def test_one_that_is_switched_off_is_left_alone(policy: ScalingPolicy, valkey: redis.Redis) -> None:
    ScalingPolicy.objects.update(is_enabled=False)
    valkey.rpush("gpu.scaled", *range(300))
    assert scale_all(NOW) == 0


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"driver": "kubernetes", "namespace": "Bad Name", "name": "x"}, "namespace"),
        ({"driver": "kubernetes", "namespace": "x", "name": "../../y"}, "name"),
        ({"driver": "sagemaker", "name": "x", "region": "moon"}, "region"),
        ({"driver": "sagemaker", "name": "x"}, "region"),
        ({"at_least": 5, "at_most": 4}, "__all__"),
        ({"at_most": 1, "across_zones": True}, "at_most"),
        ({"queue_ms": 1}, "queue_ms"),
        ({"driver": "elsewhere"}, "driver"),
    ],
)
def test_a_policy_that_cannot_work_is_refused_by_its_field(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(ValidationError) as refused:
        policy_for(people.deployment("scaled", model="scaled"), **fields)
    assert named in refused.value.message_dict


def test_the_operator_sets_it_and_nobody_else_sees_it(policy: ScalingPolicy, valkey: redis.Redis) -> None:
    show(valkey, "w-1", running=10)
    valkey.rpush("gpu.scaled", *range(40))
    scale_all(NOW)
    acme = people.organisation("Acme")
    client = Client()
    client.force_login(people.superuser(acme))
    page = client.get(f"/admin/inference/scalingstep/{ScalingStep.objects.get().pk}/change/").content.decode()
    assert "waiting for a place: 40" in page
    url = f"/admin/inference/scalingpolicy/{policy.pk}/change/"
    assert "2 wanted" in client.get(url).content.decode()
    client.force_login(people.member(acme, Role.ADMINISTRATOR))
    assert client.get(url).status_code == 403
    assert client.get("/admin/inference/scalingstep/").status_code == 403
    assert client.post(url, {"at_most": "900"}).status_code == 403

"""Several schedulers look at one deployment at once, on committed rows: a step is taken by one of them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
import redis

from inference.models import Deployment
from inference.scaling.loop import scale_all
from inference.scaling.models import ScalingStep
from tests.at_once import at_once
from tests.console import people
from tests.inference.scaling.conftest import policy_for

NOW = datetime.now(UTC)


@pytest.mark.usefixtures("on_committed_database")
def test_however_many_look_a_step_is_taken_once(valkey: redis.Redis) -> None:
    policy = policy_for(people.deployment("scaled", model="scaled-at-once"))
    valkey.rpush("gpu.scaled", *range(300))
    try:
        assert sum(at_once(lambda: scale_all(NOW))) == 1
        assert ScalingStep.objects.filter(deployment=policy.deployment).count() == 1
        assert Deployment.objects.get(slug="scaled").desired_replicas == 2
    finally:  # others share the database
        policy.delete()
        Deployment.objects.filter(slug="scaled").update(is_enabled=False)

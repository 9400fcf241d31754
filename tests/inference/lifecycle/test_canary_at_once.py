"""Several processes look at one canary at once, on committed rows: it is taken back by one of them."""

from __future__ import annotations

import pytest

from inference.lifecycle.canary import watch_canaries
from inference.lifecycle.models import LifecycleStep
from inference.models import Deployment, ModelVersion
from tests.at_once import at_once
from tests.console import people
from tests.inference.lifecycle.test_canary import BROKEN, MINUTE, NOW, answers
from tests.inference.lifecycle.test_steps import promote


@pytest.mark.usefixtures("on_committed_database")
def test_it_is_taken_back_once_by_however_many_look() -> None:
    organisation = people.organisation(requires_evaluation=False)
    canary = ModelVersion.objects.create(name="at-once", version="1", context_length=4096)
    Deployment.objects.create(slug="at-once", model_version=canary, engine="simulated")
    promote(canary, people.superuser(organisation), people.superuser(organisation), "canary", NOW - 10 * MINUTE)
    answers(canary, organisation, 20, **BROKEN)

    assert sorted(at_once(lambda: watch_canaries(NOW))) == [0, 0, 0, 1]
    assert LifecycleStep.objects.filter(model_version=canary, kind="revert").count() == 1
    # Others share the database: it is left as it was found.
    canary.steps.exclude(reverts=None).delete()
    canary.steps.all().delete()
    Deployment.objects.filter(model_version=canary).update(is_enabled=False)

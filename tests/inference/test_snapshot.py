"""The configuration in memory follows every change of the database, whoever makes it and however."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import psycopg
import pytest
from django.db import connection
from psycopg_pool import AsyncConnectionPool

from inference.exchange_models import Exchange
from inference.lifecycle.models import LifecycleStep
from inference.lifecycle.queries import served_deployments
from inference.models import Deployment, Lifecycle, ModelVersion
from inference.routing.models import RoutingRule, RoutingRuleSet
from inference.snapshot import Catalog, ConfigurationWatcher, Pool, load_catalog
from tests.console import people


class Web:
    """What a web process keeps of the configuration."""

    def __init__(self, url: str) -> None:
        self._loop = asyncio.Runner()
        self.catalog = Catalog()
        self.reloads = 0
        self.fails = False
        self.at: datetime | None = None
        self.watcher, self._pool = self._loop.run(self._open(url))

    async def _open(self, url: str) -> tuple[ConfigurationWatcher, Pool]:
        pool: Pool = AsyncConnectionPool(url, min_size=1, open=False, kwargs={"autocommit": True})
        await pool.open()
        return ConfigurationWatcher(pool, [self._reload]), pool

    async def _reload(self, pool: Pool, version: int) -> None:
        self.reloads += 1
        if self.fails:
            raise psycopg.OperationalError("gone")
        self.catalog = await load_catalog(pool, version, self.at)

    def refresh(self, at: datetime | None = None) -> Catalog:
        self.at = at
        self._loop.run(self.watcher.refresh(at))
        return self.catalog

    def close(self) -> None:
        self._loop.run(self._pool.close())
        self._loop.close()


@pytest.fixture
def web(on_committed_database: str) -> Iterator[Web]:
    Exchange.objects.all().delete()
    Deployment.objects.exclude(slug="simulated-local").delete()
    people.deployment()
    LifecycleStep.objects.all().delete()
    ModelVersion.objects.update(lifecycle=Lifecycle.LIVE, embargo_until=None, retires_at=None)
    web = Web(on_committed_database)
    web.refresh()
    yield web
    RoutingRuleSet.objects.all().delete()
    web.close()


def sql(statement: str) -> Callable[[], Any]:
    def run() -> None:
        with connection.cursor() as cursor:
            cursor.execute(statement)

    return run


def bulk_create() -> None:
    version = ModelVersion.objects.get(name="simulated")
    Deployment.objects.bulk_create([Deployment(slug="another", model_version=version, engine="vllm")])


def bulk_update() -> None:
    version = ModelVersion.objects.get(name="simulated")
    version.output_price = Decimal("7.5") if version.output_price != Decimal("7.5") else Decimal("2.5")
    ModelVersion.objects.bulk_update([version], ["output_price"])


CHANGES = {
    "bulk_create": bulk_create,
    "bulk_update": bulk_update,
    "update": lambda: ModelVersion.objects.filter(name="simulated").update(lifecycle=Lifecycle.RETIRED),
    "delete": lambda: Deployment.objects.filter(slug="simulated-local")._raw_delete("default"),
    "raw UPDATE": sql("UPDATE inference_deployment SET is_enabled = NOT is_enabled"),
    "raw UPDATE of a price": sql("UPDATE inference_modelversion SET input_price = input_price + 1"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_a_change_that_no_signal_sees_reaches_the_snapshot(web: Web, change: Callable[[], Any]) -> None:
    before, reloads = web.refresh(), web.reloads
    change()
    after = web.refresh()

    assert after.version > before.version
    assert after.models != before.models
    assert web.reloads == reloads + 1
    assert web.refresh() is after  # and nothing is loaded again without a change
    Deployment.objects.update(is_enabled=True)


@pytest.mark.parametrize(
    ("engine", "external", "continues"),
    [("vllm", False, True), ("sagemaker", False, True), ("tensorrt", False, False), ("openai", True, False)],
)
def test_who_is_paid_by_the_token_and_who_makes_answers_anew_follows_from_the_engine(
    web: Web, engine: str, external: bool, continues: bool
) -> None:
    people.deployment(f"on-{engine}", engine=engine)
    found = web.refresh().find_deployment(f"on-{engine}")
    assert found is not None
    assert (found.external, found.continues) == (external, continues)


def test_keys_and_limits_move_the_version_too(web: Web) -> None:
    of = people.organisation(f"limits-{web.watcher.version}")
    versions = [web.refresh().version]
    row, _ = people.api_key(of)
    versions.append(web.refresh().version)
    type(row).objects.filter(pk=row.pk).update(name="renamed")
    versions.append(web.refresh().version)
    people.member(of, username=f"member-{web.watcher.version}")
    versions.append(web.refresh().version)
    assert versions == sorted(set(versions))


def test_a_reload_that_fails_keeps_the_old_objects_and_is_tried_again(web: Web) -> None:
    before = web.refresh()
    CHANGES["raw UPDATE of a price"]()
    web.fails = True
    with pytest.raises(psycopg.OperationalError):
        web.refresh()
    assert web.catalog is before
    web.fails = False
    assert web.refresh().version > before.version


def test_only_enabled_deployments_of_served_versions_are_candidates(web: Web) -> None:
    version = people.deployment("extra", model="other").model_version
    assert set(web.refresh().models) == {"simulated", "other"}
    for lifecycle in Lifecycle:
        ModelVersion.objects.filter(pk=version.pk).update(lifecycle=lifecycle)
        served = lifecycle in (Lifecycle.LIVE, Lifecycle.CANARY)
        assert ("other" in web.refresh().models) is served
    ModelVersion.objects.filter(pk=version.pk).update(lifecycle=Lifecycle.LIVE)
    Deployment.objects.filter(slug="extra").update(is_enabled=False)
    assert "other" not in web.refresh().models


NOON = datetime(2027, 3, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)


def extra() -> ModelVersion:
    return people.deployment("extra", model="other").model_version


def is_served(web: Web, at: datetime) -> bool:
    """By the snapshot, which lists and pages must agree with."""
    served = "other" in web.refresh(at).models
    assert served is served_deployments(at).filter(slug="extra").exists()
    return served


def test_an_approved_step_holds_from_its_time_on_whether_or_not_anything_applies_it(web: Web) -> None:
    version = extra()
    ModelVersion.objects.filter(pk=version.pk).update(lifecycle=Lifecycle.VALIDATED)
    step = LifecycleStep(model_version=version, from_state="validated", to_state="canary", effective_from=NOON)
    for state, expected in (("proposed", False), ("approved", True), ("withdrawn", False)):
        step.state = state
        step.save()
        assert not is_served(web, NOON - SECOND)
        assert is_served(web, NOON) is expected


def test_time_alone_moves_the_snapshot_and_only_when_something_changes(web: Web) -> None:
    ModelVersion.objects.filter(pk=extra().pk).update(embargo_until=NOON, retires_at=NOON + 2 * SECOND)
    web.refresh(NOON - SECOND)
    reloads = web.reloads
    served = [is_served(web, NOON + SECOND * seconds) for seconds in (-1, -0.001, 0, 1, 1.999, 2, 3)]
    assert served == [False, False, True, True, True, False, False]
    assert web.reloads == reloads + 2


def test_a_draining_deployment_is_sent_nothing_new(web: Web) -> None:
    extra()
    assert is_served(web, NOON)
    Deployment.objects.filter(slug="extra").update(is_draining=True)
    assert not is_served(web, NOON)


def test_a_candidate_has_its_deployments_zone(web: Web) -> None:
    extra()
    Deployment.objects.filter(slug="extra").update(zone="eu-central-1")
    assert [one.zone for one in web.refresh().models["other"]] == ["eu-central-1"]


def rule_set(state: str = "active") -> RoutingRuleSet:
    made = RoutingRuleSet.objects.create(version=RoutingRuleSet.objects.count() + 1, state=state, aliases={"fast": "m"})
    RoutingRule.objects.create(rule_set=made, name="second", position=2)
    RoutingRule.objects.create(rule_set=made, name="first", position=1, conditions={"priorities": ["batch"]})
    return made


def test_the_active_rule_set_is_loaded_in_order_and_no_other_is(web: Web) -> None:
    rule_set("draft")
    assert web.refresh().rules is None
    made = rule_set()
    rules = web.refresh().rules
    assert rules == made.as_rule_set()
    assert [rule.name for rule in rules.rules] == ["first", "second"]

    made.rules.filter(name="first")._raw_delete("default")
    assert [rule.name for rule in web.refresh().rules.rules] == ["second"]


def test_an_active_rule_set_that_nobody_understands_keeps_the_old_one(web: Web) -> None:
    before = rule_set() and web.refresh()
    sql('UPDATE inference_routingrule SET conditions = \'{"colour": ["red"]}\'')()
    with pytest.raises(psycopg.DataError):
        web.refresh()
    assert web.catalog is before

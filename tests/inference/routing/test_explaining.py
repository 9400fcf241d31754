"""`route_explain` and its page: where a request would go, where an exchange went, and why."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from django.core.management import CommandError, call_command
from redis import Redis

from compliance.audit.models import Entry
from gpu_workers import settings as worker_settings
from gpu_workers.identifiers import uuid7
from gpu_workers.messages import WORKERS_KEY, Heartbeat, encode, worker_key
from gpu_workers.sealing import fingerprint
from inference.models import RoutingRule, RoutingRuleSet
from inference.routing.deciding import weigh
from inference.routing.live import LiveState, share
from tests.console import people
from tests.inference.routing.scenes import catalog, facts, fleet
from tests.services import Services

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def worker(services: Services) -> Iterator[None]:
    """A deployment with a worker that has just shown life."""
    people.deployment()
    seal = fingerprint(worker_settings.seal_key())
    beat = Heartbeat("explained-1", "simulated-local", "simulated", True, True, 2, 8, seal)
    with Redis.from_url(services.valkey.url()) as valkey:
        valkey.set(worker_key(beat.worker), encode(beat), px=60_000)
        valkey.sadd(WORKERS_KEY, beat.worker)
        yield
        valkey.delete(worker_key(beat.worker))
        valkey.srem(WORKERS_KEY, beat.worker)


def explain(capsys: pytest.CaptureFixture[str], **options: Any) -> str:
    call_command("route_explain", **options)
    return capsys.readouterr().out


def in_force(**conditions: Any) -> None:
    rule_set = RoutingRuleSet.objects.create(version=4, state="active", aliases={"fast": "simulated"})
    RoutingRule.objects.create(rule_set=rule_set, name="nightly", position=1, conditions=conditions)
    route = {"candidates": [{"deployment": "simulated-local"}, {"deployment": "gone"}], "deadline_s": 9}
    RoutingRule.objects.create(rule_set=rule_set, name="rest", position=2, route=route)


def test_it_says_which_rule_fired_every_candidate_and_why(capsys: pytest.CaptureFixture[str]) -> None:
    in_force(priorities=["batch"])
    said = explain(capsys, model="fast", prompt_tokens="300")
    for line in (
        "model       simulated (asked for as fast)",
        "rule set    version 4",
        "nightly: not met: priorities",
        "rest: fires",
        "simulated-local: chosen",
        "2 of 8 under way",
        "gone: excluded, not served",
        "chosen      simulated-local, the cheapest that meets the objective",
        "deadline    9 s",
    ):
        assert line in said, (line, said)
    assert "nightly: fires" in explain(capsys, priority="batch")


def test_a_rule_s_language_is_that_of_the_request_described(capsys: pytest.CaptureFixture[str]) -> None:
    in_force(languages=["de"])
    german = explain(capsys, language="de")
    assert "language    de" in german
    assert "nightly: fires" in german
    unknown = explain(capsys)
    assert "language    unknown" in unknown
    assert "nightly: not met: languages" in unknown


def test_without_a_rule_set_it_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    said = explain(capsys)
    assert "none is active" in said
    assert "default: fires, since no other does" in said
    assert "simulated-local: chosen" in said


def test_what_would_be_refused_is_explained_too(capsys: pytest.CaptureFixture[str], services: Services) -> None:
    with Redis.from_url(services.valkey.url()) as valkey:
        valkey.delete(worker_key("explained-1"))
    said = explain(capsys)
    assert "simulated-local: excluded, no ready worker" in said
    assert "refused     overloaded" in said


def test_an_exchange_shows_what_was_recorded_then(capsys: pytest.CaptureFixture[str]) -> None:
    of = people.organisation()
    route = weigh(facts(), catalog(), fleet(), LiveState(), 0.0).explanation
    exchange = uuid7()
    entry = {"organisation_id": of.pk, "exchange_id": exchange, "kind": "intent", "payload": b"sealed"}
    Entry.objects.create(**entry, facts={"route": route.as_facts()})
    said = explain(capsys, exchange=str(exchange))
    assert "chosen      a, first in order" in said
    assert "b: meets the objective" in said


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model": "nothing"}, "model_not_found"),
        ({"prompt_tokens": "-1"}, "--prompt-tokens"),
        ({"prompt_tokens": "many"}, "--prompt-tokens"),
        ({"at": "yesterday"}, "--at"),
        ({"language": "german"}, "--language"),
        ({"exchange": "no-id"}, "--exchange"),
        ({"exchange": str(UUID(int=7))}, "No explanation is recorded"),
    ],
)
def test_what_cannot_be_explained_is_said_by_option(options: dict[str, str], message: str) -> None:
    with pytest.raises(CommandError, match=message):
        call_command("route_explain", **options)


def test_a_serving_process_explains_with_what_it_has_measured(capsys: pytest.CaptureFixture[str]) -> None:
    live = LiveState()
    share(live)
    try:
        for number in range(5):
            live.begin(UUID(int=number), "simulated-local", 10, 0.0, 0.0)
            live.failed(UUID(int=number), 1e12)
        assert "excluded, circuit breaker open" in explain(capsys)
    finally:
        share(LiveState())

"""Exchanges whose process died get one outcome, unknown, and those that somebody serves are left alone."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest
import redis
from django.db import connection

from compliance.audit.entries import OutcomePayload, insert_entry
from compliance.audit.models import Entry, EntryKind
from compliance.audit.writer import GroupWriter, RecordConflict, Statement
from console.accounts.models import Organisation
from gpu_workers.identifiers import uuid7
from gpu_workers.messages import owner_key
from inference.exchange_models import Exchange, ExchangeStatus
from inference.reconcile import reconcile_exchanges
from tests.at_once import at_once
from tests.console import people
from tests.services import Services

DEAD = "web-that-died"


@pytest.fixture
def organisation(on_committed_database: str) -> Organisation:
    Exchange.objects.all().delete()
    return people.organisation(f"o{uuid4().hex[:8]}")


@pytest.fixture
def living(services: Services) -> Iterator[str]:
    """The owner of a process that shows life."""
    owner = f"web-{uuid4().hex[:8]}"
    with redis.Redis.from_url(services.valkey.url()) as valkey:
        valkey.set(owner_key(owner), b"1", ex=60)
        yield owner
        valkey.delete(owner_key(owner))


def opened(
    of: Organisation, owner: str = DEAD, *, ago_s: float = 60, deadline_in_s: float = 60, status: str = "open"
) -> UUID:
    now = datetime.now(UTC)
    return Exchange.objects.create(
        organisation=of,
        request_id="r",
        channel="http",
        model="m",
        deployment=people.deployment(),
        status=status,
        owner=owner,
        configuration=1,
        opened_at=now - timedelta(seconds=ago_s),
        deadline_at=now + timedelta(seconds=deadline_in_s),
    ).pk


def outcomes(exchange: UUID) -> list[str]:
    return [entry.facts["status"] for entry in Entry.objects.filter(exchange_id=exchange, kind=EntryKind.OUTCOME)]


def status(exchange: UUID) -> str:
    return Exchange.objects.get(pk=exchange).status


def test_an_exchange_whose_owner_died_gets_an_unknown_outcome_once(organisation: Organisation) -> None:
    lost = opened(organisation)

    assert reconcile_exchanges() == 1
    assert reconcile_exchanges() == 0

    assert status(lost) == ExchangeStatus.UNKNOWN
    assert outcomes(lost) == ["unknown"]
    assert Exchange.objects.get(pk=lost).error_code == "outcome_unknown"


def test_an_exchange_that_is_served_or_may_be_is_left_alone(organisation: Organisation, living: str) -> None:
    served = opened(organisation, living)
    just_past_its_deadline = opened(organisation, living, deadline_in_s=-20)
    young = opened(organisation, ago_s=2)
    ended = opened(organisation, status="finished")

    assert reconcile_exchanges() == 0

    assert [status(one) for one in (served, just_past_its_deadline, young)] == ["open"] * 3
    assert status(ended) == "finished"
    assert [outcomes(one) for one in (served, young, ended)] == [[], [], []]


def test_an_exchange_long_past_its_deadline_is_closed_even_if_its_owner_lives(
    organisation: Organisation, living: str
) -> None:
    forgotten = opened(organisation, living, ago_s=600, deadline_in_s=-31)
    assert reconcile_exchanges() == 1
    assert outcomes(forgotten) == ["unknown"]


def test_reconcilers_that_run_at_once_write_one_outcome_each(organisation: Organisation) -> None:
    lost = [opened(organisation) for _ in range(40)]
    assert sum(at_once(reconcile_exchanges)) == 40
    assert [outcomes(one) for one in lost] == [["unknown"]] * 40


def test_an_owner_that_was_not_dead_after_all_and_a_reconciler_agree_on_one_outcome(
    organisation: Organisation, on_committed_database: str
) -> None:
    lost = [opened(organisation) for _ in range(40)]

    def finish(exchange: UUID) -> list[Statement]:
        entry = insert_entry(
            uuid7(),
            organisation_id=organisation.pk,
            exchange_id=exchange,
            kind=EntryKind.OUTCOME,
            facts={"status": "finished"},
            payload=OutcomePayload("fine"),
        )
        return [Statement("UPDATE inference_exchange SET status = 'finished' WHERE id = %s", (exchange,)), entry]

    async def owner_comes_back() -> list[object]:
        writer = GroupWriter(on_committed_database)
        writer.start()
        results = []
        for exchange in reversed(lost):  # the reconciler begins with the newest
            results += await asyncio.gather(writer.submit(finish(exchange)), return_exceptions=True)
        await writer.stop()
        return list(reversed(results))

    def reconcile() -> int:
        try:
            return reconcile_exchanges()
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as thread:
        closing = thread.submit(reconcile)
        results = asyncio.run(owner_comes_back())
        closed = closing.result()

    finished = [exchange for exchange, result in zip(lost, results, strict=True) if result is None]
    assert closed == len(lost) - len(finished)
    for exchange, result in zip(lost, results, strict=True):
        expected = "finished" if result is None else "unknown"
        assert result is None or isinstance(result, RecordConflict)
        assert outcomes(exchange) == [expected]
        assert status(exchange) == expected


@pytest.mark.parametrize("ahead_s", [-7200, 7200])
def test_a_host_whose_clock_has_jumped_ends_nothing(
    organisation: Organisation, living: str, monkeypatch: pytest.MonkeyPatch, ahead_s: float
) -> None:
    served, dead = opened(organisation, living), opened(organisation)
    true_time = time.time
    monkeypatch.setattr("inference.clock.time.time", lambda: true_time() + ahead_s)
    assert reconcile_exchanges() == 0
    monkeypatch.undo()
    assert reconcile_exchanges() == 1
    assert Exchange.objects.get(id=served).status == "open"
    assert Exchange.objects.get(id=dead).status == "unknown"

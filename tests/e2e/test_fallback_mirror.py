"""Another deployment takes over, and another gets copies: with real Celery workers of two deployments."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from gpu_workers.identifiers import uuid7
from tests.client import ChatClient, text_of
from tests.services import running_services
from tests.stack import DEPLOYMENT, Stack, running_stack, wait_for

SECOND = "second"
QUESTION = "why is the sky blue"


class Rows:
    """The stack's database, read and changed past the product."""

    def __init__(self, stack: Stack) -> None:
        self._url = stack.environment["BURSAR_DATABASE_URL"]

    def all(self, sql: str, *values: object) -> list[Any]:
        with psycopg.connect(self._url, autocommit=True) as connection:
            cursor = connection.execute(sql, values)  # type: ignore[call-overload]
            return list(cursor.fetchall()) if cursor.description else []

    def add_deployment(self, slug: str) -> None:
        self.all(
            "INSERT INTO inference_deployment (id, slug, model_version_id, engine, is_enabled)"
            " SELECT gen_random_uuid(), %s, model_version_id, engine, true FROM inference_deployment LIMIT 1",
            slug,
        )

    def replace_rules(self, *statements: tuple[str, list[object]]) -> None:
        """All at once: a process that read the rule set without its rule would go by no rule at all."""
        with psycopg.connect(self._url) as connection:
            connection.execute("DELETE FROM inference_routingrule")
            connection.execute("DELETE FROM inference_routingruleset")
            for sql, values in statements:
                connection.execute(sql, values)  # type: ignore[call-overload]

    @contextmanager
    def route(self, route: dict[str, Any]) -> Iterator[None]:
        """This route for every request while inside."""
        rule_set, alias = uuid7(), uuid7().hex
        model = self.all("SELECT name FROM inference_modelversion WHERE lifecycle = 'live'")[0][0]
        insert_set = (
            "INSERT INTO inference_routingruleset (id, version, state, note, aliases) VALUES (%s, 1, 'active', '', %s)"
        )
        insert_rule = (
            "INSERT INTO inference_routingrule (id, rule_set_id, position, name, conditions, route)"
            " VALUES (%s, %s, 0, 'all', '{}', %s)"
        )
        self.replace_rules(
            (insert_set, [rule_set, json.dumps({alias: model})]),
            (insert_rule, [uuid7(), rule_set, json.dumps(route)]),
        )
        self.alias = alias
        try:
            yield
        finally:
            self.replace_rules()

    def attempts(self, exchange: str) -> list[tuple[int, str, str]]:
        """Number, deployment and status of each attempt."""
        sql = (
            "SELECT a.number, d.slug, a.status FROM inference_attempt a"
            " JOIN inference_deployment d ON d.id = a.deployment_id WHERE a.exchange_id = %s ORDER BY a.number"
        )
        return [tuple(row) for row in self.all(sql, exchange)]


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Servers and processes of its own: this file kills workers. The first token takes long enough to do so."""
    with (
        running_services() as services,
        running_stack(services, tmp_path_factory.mktemp("fallback"), SIMULATED_TTFT_MS="2000") as running,
    ):
        Rows(running).add_deployment(SECOND)
        running.start_worker("second", SECOND)
        yield running


@pytest.fixture
async def client(stack: Stack) -> AsyncIterator[ChatClient]:
    async with ChatClient.open(stack.url, {"Authorization": f"Bearer {stack.api_key}"}) as client:
        yield client


async def started(client: ChatClient, rows: Rows, **fields: Any) -> dict[str, Any]:
    """Ask until the rule is known: its alias is, then. The answer's first event."""
    for _ in range(100):
        await client.ask(QUESTION, model=rows.alias, **fields)
        event = await client.until("answer.started", "error")
        if event["type"] == "answer.started":
            return event
        assert event["error"]["code"] in ("model_not_found", "overloaded")
        await asyncio.sleep(0.1)
    raise AssertionError("no answer began")


async def test_another_deployment_answers_when_the_worker_dies_before_the_first_token(
    stack: Stack, client: ChatClient
) -> None:
    rows = Rows(stack)
    with rows.route({"candidates": [{"deployment": SECOND}]}):  # both are known and ready
        await started(client, rows, parameters={"max_tokens": 1})
        await client.to_the_end()
    with rows.route({"candidates": [{"deployment": DEPLOYMENT}], "fallbacks": [SECOND]}):
        first = await started(client, rows, parameters={"max_tokens": 8})
        stack.kill("worker")
        rest = await client.to_the_end()
        stack.start("worker")

    assert rest[-1]["type"] == "answer.finished"
    assert rest[-1]["usage"]["completion_tokens"] == 8
    assert [event["seq"] for event in [first, *rest]] == list(range(len(rest) + 1))
    assert rows.attempts(first["exchange"]) == [(1, DEPLOYMENT, "lost"), (2, SECOND, "finished")]
    billed = rows.all(
        "SELECT d.slug, t.completion_tokens FROM inference_transfer t"
        " JOIN inference_deployment d ON d.id = t.deployment_id WHERE t.exchange_id = %s",
        first["exchange"],
    )
    assert [tuple(row) for row in billed] == [(SECOND, 8)]


async def test_a_fallback_answers_at_once_where_no_candidate_has_a_worker(stack: Stack, client: ChatClient) -> None:
    rows = Rows(stack)
    await asyncio.to_thread(stack.wait_ready)
    stack.stop("worker")
    with rows.route({"candidates": [{"deployment": DEPLOYMENT}], "fallbacks": [SECOND]}):
        first = await started(client, rows, parameters={"max_tokens": 4})
        last = (await client.to_the_end())[-1]
        stack.start("worker")

    assert last["type"] == "answer.finished"
    assert rows.attempts(first["exchange"]) == [(1, SECOND, "finished")]
    facts = rows.all("SELECT facts FROM audit_entry WHERE exchange_id = %s AND kind = 'intent'", first["exchange"])
    assert facts[0][0]["route"]["chosen"] == SECOND
    assert "fallback 1" in facts[0][0]["route"]["why"]


async def test_a_mirror_gets_a_copy_that_changes_nothing_and_costs_nobody(stack: Stack, client: ChatClient) -> None:
    rows = Rows(stack)
    await asyncio.to_thread(stack.wait_ready)
    route = {"candidates": [{"deployment": DEPLOYMENT}], "mirror": {"deployment": SECOND, "share": 1.0}}
    with rows.route(route):
        first = await started(client, rows, parameters={"max_tokens": 6})
        events = await client.to_the_end()

        def copied() -> bool:
            return len(rows.attempts(first["exchange"])) == 2

        # The copy begins when the answer has ended.
        assert rows.attempts(first["exchange"]) == [(1, DEPLOYMENT, "finished")]
        await asyncio.to_thread(wait_for, copied, "the copy has ended")

    assert rows.attempts(first["exchange"]) == [(1, DEPLOYMENT, "finished"), (100, SECOND, "finished")]
    assert text_of(events).startswith("[simulated] this answer")
    transfers = rows.all("SELECT count(*) FROM inference_transfer WHERE exchange_id = %s", first["exchange"])
    assert transfers[0][0] == 1
    entries = rows.all("SELECT kind FROM audit_entry WHERE exchange_id = %s ORDER BY kind", first["exchange"])
    assert [row[0] for row in entries] == ["intent", "outcome"]

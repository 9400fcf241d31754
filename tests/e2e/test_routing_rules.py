"""Rules in force, through every layer: web processes take them up, requests follow them, and the record says so."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from gpu_workers.identifiers import uuid7
from tests.client import ChatClient
from tests.stack import Stack

RULES: list[dict[str, Any]] = [
    {"name": "never", "conditions": {"priorities": ["batch"]}, "route": {}},
    {"name": "tagged", "conditions": {"tags": ["summary"]}, "route": {"clamps": {"max_tokens": 3}}},
    {"name": "personal", "conditions": {"findings": ["CREDIT_CARD"]}, "route": {"clamps": {"max_tokens": 2}}},
    {"name": "rest", "conditions": {"models": ["quick"]}, "route": {"clamps": {"max_tokens": 4}}},
]


@pytest.fixture
def in_force(live_stack: Stack) -> Iterator[None]:
    """The rules, written past the product: the database's trigger tells every process."""
    rule_set = uuid7()
    with psycopg.connect(live_stack.environment["BURSAR_DATABASE_URL"], autocommit=True) as connection:
        model = connection.execute("SELECT name FROM inference_modelversion WHERE lifecycle = 'live'").fetchone()
        assert model is not None
        with connection.transaction():
            connection.execute(
                "INSERT INTO inference_routingruleset (id, version, state, note, aliases)"
                " VALUES (%s, 1, 'active', '', %s)",
                [rule_set, json.dumps({"quick": model[0]})],
            )
            for position, rule in enumerate(RULES):
                conditions, route = json.dumps(rule["conditions"]), json.dumps(rule["route"])
                connection.execute(
                    "INSERT INTO inference_routingrule (id, rule_set_id, position, name, conditions, route)"
                    " VALUES (%s, %s, %s, %s, %s, %s)",
                    [uuid7(), rule_set, position, rule["name"], conditions, route],
                )
        yield
        connection.execute("DELETE FROM inference_routingrule")
        connection.execute("DELETE FROM inference_routingruleset")


def route_of(stack: Stack, exchange: str) -> dict[str, Any]:
    with psycopg.connect(stack.environment["BURSAR_DATABASE_URL"]) as connection:
        sql = "SELECT facts -> 'route' FROM audit_entry WHERE exchange_id = %s AND kind = 'intent'"
        row = connection.execute(sql, [exchange]).fetchone()
    assert row is not None
    return dict(row[0])


async def answer_when_known(client: ChatClient, text: str, **fields: Any) -> list[dict[str, Any]]:
    """Processes take the rules up within a second; until then nobody knows the alias."""
    for _ in range(50):
        events = await client.answer(text, **fields)
        if events[-1]["type"] != "error" or events[-1]["error"]["code"] != "model_not_found":
            return events
        await asyncio.sleep(0.1)
    raise AssertionError("the alias never became known")


@pytest.mark.usefixtures("in_force")
async def test_rules_in_force_hold_in_every_process_and_are_in_the_record(live_stack: Stack, connect: Any) -> None:
    for web in range(2):
        client = await connect(web=web)
        events = await answer_when_known(client, "why is the sky blue", model="quick")
        assert events[-1]["usage"]["completion_tokens"] == 4
        route = route_of(live_stack, events[0]["exchange"])
        assert (route["rule_set"], route["rule"], route["alias"]) == (1, "rest", "quick")
        assert [rule.get("failed") for rule in route["rules"]] == ["priorities", "tags", "findings", None]

        events = await client.answer("my card is 4111 1111 1111 1111", model="quick")
        assert events[-1]["usage"]["completion_tokens"] == 2
        route = route_of(live_stack, events[0]["exchange"])
        assert route["rule"] == "personal"
        assert "4111" not in json.dumps(route)

        events = await client.answer("why is the sky blue", model="quick", tag="summary")
        assert events[-1]["usage"]["completion_tokens"] == 3
        route = route_of(live_stack, events[0]["exchange"])
        assert route["rule"] == "tagged"


def move(stack: Stack, *, residency: str, zone: str) -> None:
    with psycopg.connect(stack.environment["BURSAR_DATABASE_URL"]) as connection:
        connection.execute("UPDATE accounts_organisation SET residency = %s", [residency])
        connection.execute("UPDATE inference_deployment SET zone = %s", [zone])


@pytest.fixture
def places(live_stack: Stack) -> Iterator[None]:
    yield
    move(live_stack, residency="", zone="")


async def until(client: ChatClient, *, ends_with: str) -> dict[str, Any]:
    """The last event of an answer, once it is of this type."""
    for _ in range(50):
        events = await client.answer("why is the sky blue", parameters={"max_tokens": 2})
        if events[-1]["type"] == ends_with:
            return events[-1]
        await asyncio.sleep(0.1)
    raise AssertionError(f"no answer ended with {ends_with}")


@pytest.mark.usefixtures("places")
async def test_an_organisation_is_served_in_its_residency_alone(live_stack: Stack, connect: Any) -> None:
    clients = [await connect(web=web) for web in range(2)]
    move(live_stack, residency="eu", zone="us")
    for client in clients:
        assert (await until(client, ends_with="error"))["error"]["code"] == "model_not_found"
    move(live_stack, residency="eu", zone="eu")
    for client in clients:
        await until(client, ends_with="answer.finished")
    move(live_stack, residency="", zone="us")
    for client in clients:
        await until(client, ends_with="answer.finished")

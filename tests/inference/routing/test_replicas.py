"""Conversations stay with one replica while it has room, and few move when replicas come and go."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid5

import pytest

from gpu_workers.messages import Heartbeat
from inference.fleet import FleetState
from inference.routing.deciding import weigh
from inference.routing.live import LiveState
from inference.routing.replicas import replica_for
from tests.inference.routing.scenes import catalog, facts

CONVERSATIONS = [uuid5(UUID(int=0), str(number)) for number in range(400)]


def replica(name: str, **more: Any) -> Heartbeat:
    usual: dict[str, Any] = {"engine_ready": True, "running": 0, "capacity": 10}
    fields = usual | more
    return Heartbeat(worker=name, deployment="a", engine="vllm", simulated=False, seal="", **fields)


def fleet(*beats: Heartbeat) -> FleetState:
    return FleetState(True, {beat.worker: beat for beat in beats})


def where(state: FleetState) -> dict[UUID, str | None]:
    return {conversation: replica_for(conversation, "a", state) for conversation in CONVERSATIONS}


def test_a_conversation_stays_and_conversations_are_spread() -> None:
    four = fleet(*(replica(name) for name in "wxyz"))
    places = where(four)
    assert places == where(four)
    assert all(60 < list(places.values()).count(name) < 140 for name in "wxyz")


def test_only_those_of_a_replica_that_leaves_move() -> None:
    before, after = where(fleet(*(replica(name) for name in "wxyz"))), where(fleet(*(replica(name) for name in "wxy")))
    assert {after[one] for one, name in before.items() if name == "z"} == {"w", "x", "y"}
    assert all(after[one] == name for one, name in before.items() if name != "z")


@pytest.mark.parametrize("strain", [{"running": 8}, {"waiting": 1}, {"kv_use": 0.96}])
def test_an_overloaded_replica_keeps_nobody(strain: dict[str, Any]) -> None:
    calm = where(fleet(replica("w"), replica("x")))
    strained = where(fleet(replica("w", **strain), replica("x")))
    assert {strained[one] for one, name in calm.items() if name == "w"} == {None}
    assert {strained[one] for one, name in calm.items() if name == "x"} == {"x"}


def test_nothing_is_chosen_where_there_is_one_or_where_nothing_is_known_of_before() -> None:
    assert replica_for(CONVERSATIONS[0], "a", fleet(replica("w"))) is None
    assert replica_for(None, "a", fleet(replica("w"), replica("x"))) is None
    assert replica_for(CONVERSATIONS[0], "a", fleet(replica("w"), replica("x", engine_ready=False))) is None


def test_the_decision_names_the_replica_and_says_so() -> None:
    asked = facts(conversation=CONVERSATIONS[0])
    decision = weigh(asked, catalog(slugs=("a",)), fleet(replica("w"), replica("x")), LiveState(), 0.0).decision
    assert decision is not None
    assert decision.worker in ("w", "x")
    assert decision.explanation.replica == decision.worker
    assert f"stays with {decision.worker}" in decision.reason

"""On the request's way what is held covers where the request goes, and is free at once where nothing can be billed."""

from __future__ import annotations

import asyncio
from decimal import Decimal
from typing import Any
from unittest.mock import AsyncMock, MagicMock
from uuid import UUID, uuid4

from compliance.audit.writer import RecordUnavailable
from gpu_workers.identifiers import uuid7
from gpu_workers.messages import ChatMessage, Sampling
from inference.beforehand import CalmCallers
from inference.budgets import demand_of
from inference.catalog import Catalog
from inference.events import Ask, Caller, Limits, Room
from inference.leases import Leases
from inference.pipeline import Cancellation, Pipeline
from inference.refusals import RefusalRecorder
from inference.reservations import Claims, Reservation
from inference.routing.live import LiveState
from tests.inference.routing.scenes import beat, candidate, fleet

ASK = Ask(uuid7(), "r", "http", "m", (ChatMessage("user", "Hello"),), Sampling(10))


def catalog(price: int) -> Catalog:
    return Catalog(price, {"m": (candidate("a", price=Decimal(price)),)})


class Desk:
    """A pipeline whose admission holds whatever is claimed, and whose record refuses every intent."""

    def __init__(self) -> None:
        self.admission, self.dispatcher, self.inspector = MagicMock(), MagicMock(), MagicMock()
        self.admission.admit = AsyncMock(side_effect=self.admit)
        self.admission.settle = AsyncMock(return_value=())
        self.dispatcher.publish, self.dispatcher.cancel = AsyncMock(), AsyncMock()
        self.dispatcher.fleet.current.return_value = fleet(beat("a"))
        self.inspector.find_all = AsyncMock(return_value=[[]])
        writer = MagicMock()
        writer.submit.side_effect = self.refused
        self.pipeline = Pipeline(
            owner="web",
            admission=self.admission,
            leases=Leases(self.admission),
            inspector=self.inspector,
            dispatcher=self.dispatcher,
            writer=writer,
            refusals=RefusalRecorder(writer),
            crossings=MagicMock(),
            mirrors=MagicMock(),
            live=LiveState(),
        )
        self.pipeline.catalog = catalog(1)
        self.claims: Claims | None = None

    async def admit(self, exchange: UUID, claims: Claims) -> Reservation:
        self.claims = claims
        return Reservation(exchange, claims, Room(), generation=1)

    def refused(self, _: Any) -> asyncio.Future[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        future.set_exception(RecordUnavailable("gone"))
        future.exception()
        return future

    async def serve(self) -> None:
        caller = Caller(uuid4(), None, uuid4(), Limits("API key", 10, 10))
        async for _ in self.pipeline.serve(ASK, caller, Cancellation()):
            pass


async def test_what_an_exchange_held_is_free_at_once_where_its_intent_could_not_be_recorded() -> None:
    desk = Desk()
    await desk.serve()

    _, used = desk.admission.settle.call_args.args
    assert used is not None
    assert used.cost == 0


async def test_a_request_goes_where_its_money_was_held_for_though_the_prices_change_meanwhile() -> None:
    desk = Desk()

    async def prices_change(texts: list[str]) -> list[list[Any]]:
        desk.pipeline.catalog = catalog(9)
        return [[] for _ in texts]

    desk.inspector.find_all.side_effect = prices_change
    desk.pipeline._calm = MagicMock(CalmCallers, is_calm=lambda caller: False)
    await desk.serve()

    chosen = desk.dispatcher.publish.call_args.args[0]
    assert desk.claims is not None
    assert demand_of(ASK, [chosen]).cost <= desk.claims.demand.cost

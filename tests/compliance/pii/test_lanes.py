"""Long texts have a detector of their own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from compliance.pii.lanes import SHORT, InspectionLanes


@pytest.fixture
async def lanes() -> AsyncIterator[InspectionLanes]:
    both = InspectionLanes()
    both.start()
    async with asyncio.timeout(60):
        while not both.ready:
            await asyncio.sleep(0.05)
    yield both
    await both.stop()


async def test_a_long_text_does_not_hold_up_a_short_one(lanes: InspectionLanes) -> None:
    long = asyncio.create_task(lanes.find("1234567890 " * SHORT))
    await asyncio.sleep(0.2)

    (finding,) = await lanes.find("I am Jane Doe.")

    assert finding.entity == "PERSON"
    assert not long.done()
    long.cancel()


async def test_texts_of_both_kinds_get_their_own_findings(lanes: InspectionLanes) -> None:
    found = await lanes.find_all(["mail jane@example.com", "nothing " * SHORT, "card 4111 1111 1111 1111"])
    assert [[finding.entity for finding in findings] for findings in found] == [["EMAIL_ADDRESS"], [], ["CREDIT_CARD"]]

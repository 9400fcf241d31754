"""The detector as a process: it may die, hang or be asked for nonsense, and nothing passes for inspected."""

from __future__ import annotations

import asyncio
import random
import signal
import subprocess
import sys
from collections.abc import AsyncIterator

import psutil
import pytest
import pytest_asyncio

from compliance.pii.findings import Finding, InspectionUnavailable
from compliance.pii.inspector import ROOT, Inspector

pytestmark = pytest.mark.asyncio(loop_scope="module")
NAMED = "I am Jane Doe."
FOUND = [("PERSON", "Jane Doe")]
PATIENCE_S = 60.0


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def inspector() -> AsyncIterator[Inspector]:
    """Tests that break its detector wait until it is back."""
    inspector = Inspector(silence_timeout_s=2.0)
    inspector.start()
    await ready(inspector)
    yield inspector
    await inspector.stop()


async def ready(inspector: Inspector) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not inspector.ready:
            await asyncio.sleep(0.02)


def detector_of(inspector: Inspector) -> psutil.Process:
    assert inspector._process is not None
    return psutil.Process(inspector._process.pid)


def said(text: str, findings: list[Finding]) -> list[tuple[str, str]]:
    return [(finding.entity, text[finding.start : finding.end]) for finding in findings]


async def test_texts_that_are_inspected_at_once_get_their_own_findings(inspector: Inspector) -> None:
    rng = random.Random(5)
    texts = [f"{'so ' * rng.randrange(40)}write to user{n}@mail.com or to {n} others" for n in range(200)]

    found = await inspector.find_all(texts)

    assert [said(text, findings) for text, findings in zip(texts, found, strict=True)] == [
        [("EMAIL_ADDRESS", f"user{n}@mail.com")] for n in range(200)
    ]


async def test_who_stops_waiting_takes_no_answer_from_others(inspector: Inspector) -> None:
    given_up = [asyncio.create_task(inspector.find(f"I am Peter Smith {n}.")) for n in range(20)]
    await asyncio.sleep(0)
    kept = [asyncio.create_task(inspector.find(NAMED)) for _ in range(20)]
    for task in given_up:
        task.cancel()
    await asyncio.gather(*given_up, return_exceptions=True)

    assert [said(NAMED, await task) for task in kept] == [FOUND] * 20
    assert inspector._waiting == {}


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "\x00",
        f"\x00{NAMED}\x00",
        "\U0001f600" * 50,
        "\ufffe\uffff",
        "\u202eJane\u0301 ",
        "\r\n" * 500,
        "1-" * 2000,
    ],
)
async def test_odd_texts_do_not_break_what_comes_after_them(inspector: Inspector, text: str) -> None:
    await inspector.find(text)
    assert said(NAMED, await inspector.find(NAMED)) == FOUND


async def test_a_text_that_is_none_is_refused_and_does_not_break_what_comes_after_it(inspector: Inspector) -> None:
    with pytest.raises(InspectionUnavailable):
        await inspector.find("Jane \ud800 Doe")
    assert said(NAMED, await inspector.find(NAMED)) == FOUND
    assert inspector._waiting == {}


async def test_a_long_text_is_inspected_whole_and_keeps_nobody_else_waiting_for_its_end(inspector: Inspector) -> None:
    sentence = "The quick brown fox jumped over a lazy dog, and 4111 1111 1111 1111 was paid. "
    long = sentence * (32_000 // len(sentence))
    detector = detector_of(inspector)

    at_work = asyncio.create_task(inspector.find(long))
    await asyncio.sleep(0)
    assert said(NAMED, await inspector.find(NAMED)) == FOUND
    assert not at_work.done()
    found = said(long, await at_work)

    assert found.count(("CREDIT_CARD", "4111 1111 1111 1111")) == long.count("4111 1111 1111 1111")
    assert detector_of(inspector) == detector  # its work did not pass for a hang


async def test_kill_9_of_the_detector_fails_closed_and_it_comes_back(inspector: Inspector) -> None:
    asked = [asyncio.create_task(inspector.find("The quick brown fox of Jane Doe. " * 60)) for _ in range(20)]
    await asyncio.sleep(0.05)
    detector_of(inspector).kill()
    answers = await asyncio.gather(*asked, return_exceptions=True)

    assert any(isinstance(answer, InspectionUnavailable) for answer in answers)
    assert all(isinstance(answer, InspectionUnavailable) or len(answer) > 20 for answer in answers)
    with pytest.raises(InspectionUnavailable):
        await inspector.find(NAMED)
    await ready(inspector)
    assert said(NAMED, await inspector.find(NAMED)) == FOUND


async def test_a_detector_that_hangs_is_ended_and_another_takes_its_place(inspector: Inspector) -> None:
    hung = detector_of(inspector)
    hung.suspend()
    answers = await asyncio.gather(*(inspector.find(NAMED) for _ in range(5)), return_exceptions=True)

    assert [type(answer) for answer in answers] == [InspectionUnavailable] * 5
    await ready(inspector)
    assert not hung.is_running()
    assert said(NAMED, await inspector.find(NAMED)) == FOUND


async def test_the_detector_is_given_no_key_and_no_address(inspector: Inspector) -> None:
    assert [name for name in detector_of(inspector).environ() if name.startswith("BURSAR_")] == []


async def test_the_detector_ends_when_its_process_is_killed() -> None:
    code = """
import asyncio
from compliance.pii.inspector import Inspector
from gpu_workers.logging import configure_logging
configure_logging()  # to standard error
async def main():
    inspector = Inspector()
    inspector.start()
    while not inspector.ready:
        await asyncio.sleep(0.02)
    print(inspector._process.pid, flush=True)
    while True:
        await inspector.find("Jane Doe, " * 100)
asyncio.run(main())
"""
    parent = await asyncio.create_subprocess_exec(sys.executable, "-c", code, cwd=ROOT, stdout=subprocess.PIPE)
    assert parent.stdout is not None
    detector = psutil.Process(int(await parent.stdout.readline()))

    parent.send_signal(signal.SIGKILL)
    await parent.wait()

    await asyncio.to_thread(detector.wait, PATIENCE_S)
    assert not detector.is_running()

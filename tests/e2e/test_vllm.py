"""The whole way with the real engine: vLLM, started and supervised by the platform, serving SmolLM2."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import psutil
import psycopg
import pytest

from console.local import engine_environment, model
from console.local.engine_choice import Wish, engine_settings
from console.local.ports import free_port
from gpu_workers.engine_state import ActiveEngine
from gpu_workers.engines.base import End, EngineRefused, Piece
from gpu_workers.engines.openai import OpenAIEngine
from gpu_workers.messages import ChatMessage, Sampling
from tests.client import ChatClient, Event, text_of
from tests.gpu_workers.tasks import task
from tests.services import running_services
from tests.stack import ROOT, Stack, running_stack, wait_for

pytestmark = pytest.mark.engine
QUESTION = "What is the capital of France?"
LONG = "Write a very long story about the sea, with many chapters."
EXACT: dict[str, Any] = {"max_tokens": 24, "temperature": 0}
# It loads and compiles for about 40 s on two idle cores. A bound on hanging.
READY_TIMEOUT_S = 240.0
AT_ONCE = 8


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """The product with vLLM, on servers of its own."""
    if not engine_environment.is_complete():
        pytest.skip("vLLM is not installed in .venv-engine: make test installs it")
    if not model.is_prepared(ROOT / "var"):
        pytest.skip("the model is not prepared in var/models: make test prepares it")
    settings = engine_settings(
        Wish("vllm"), free_port(), "engine-key", engine_environment.PYTHON, model.directory(ROOT / "var")
    )
    with running_services() as services:
        directory = tmp_path_factory.mktemp("vllm")
        with running_stack(services, directory, ready_timeout_s=READY_TIMEOUT_S, **settings) as running:
            yield running


def socket(stack: Stack) -> Any:
    return ChatClient.open(stack.url, {"Authorization": f"Bearer {stack.api_key}"}, ping_interval=None)


async def answer(stack: Stack, text: str = QUESTION, **parameters: Any) -> list[Event]:
    async with socket(stack) as client:
        return await client.answer(text, parameters=parameters)


async def ask_the_engine(stack: Stack, **parameters: Any) -> Any:
    """The same question, put to the engine itself."""
    body = {"model": stack.environment["BURSAR_ENGINE_MODEL"], "messages": [{"role": "user", "content": QUESTION}]}
    headers = {"Authorization": f"Bearer {stack.environment['BURSAR_ENGINE_API_KEY']}"}
    async with httpx.AsyncClient(base_url=stack.engine_url, headers=headers, timeout=60) as http:
        return (await http.post("/v1/chat/completions", json=body | parameters)).json()


async def engine_is_free(stack: Stack) -> None:
    await asyncio.to_thread(wait_for, lambda: stack.running_at_engine() == 0, "the engine's slot is free")


async def test_a_question_is_answered_by_the_model_with_the_engines_own_count(stack: Stack) -> None:
    events = await answer(stack, **EXACT)
    itself = await ask_the_engine(stack, **EXACT)

    assert events[0]["simulated"] is False
    assert text_of(events) == itself["choices"][0]["message"]["content"]
    assert "Paris" in text_of(events)
    usage = events[-1]["usage"]
    for counted in ("prompt_tokens", "completion_tokens", "total_tokens"):
        assert usage[counted] == itself["usage"][counted]
    assert events[-1]["finish_reason"] == itself["choices"][0]["finish_reason"]


async def test_a_seed_gives_the_same_text_twice_and_another_gives_another(stack: Stack) -> None:
    first, again, other = [
        text_of(await answer(stack, LONG, max_tokens=24, temperature=1, seed=seed)) for seed in (7, 7, 8)
    ]
    assert first == again
    assert first != other


async def test_an_answer_stops_where_it_is_told_to(stack: Stack) -> None:
    events = await answer(stack, stop=["Paris"], **EXACT)
    assert "Paris" not in text_of(events)
    assert events[-1]["finish_reason"] == "stop"


async def leave_by_cancel(client: ChatClient, ask: str) -> None:
    await client.send({"type": "chat.cancel", "id": ask})
    finished = await client.until("answer.finished")
    assert finished["finish_reason"] == "cancelled"
    assert 0 < finished["usage"]["completion_tokens"] < 512
    assert finished["usage"]["prompt_tokens"] > 0


async def leave_by_closing(client: ChatClient, ask: str) -> None:
    await client.socket.close()


async def leave_by_breaking(client: ChatClient, ask: str) -> None:
    client.socket.transport.abort()


@pytest.mark.parametrize("leave", [leave_by_cancel, leave_by_closing, leave_by_breaking])
async def test_who_leaves_frees_the_engine_before_the_answer_is_whole(stack: Stack, leave: Callable[..., Any]) -> None:
    async with socket(stack) as client:
        ask = await client.ask(LONG, parameters={"max_tokens": 512, "temperature": 1}, linger_ms=0)
        started = await client.until("answer.started")
        await client.until("answer.delta")
        assert stack.running_at_engine() == 1
        await leave(client, ask)
        await engine_is_free(stack)

    def outcome() -> str:
        with psycopg.connect(stack.environment["BURSAR_DATABASE_URL"]) as connection:
            sql = "SELECT status FROM inference_exchange WHERE id = %s"
            row = connection.execute(sql, [started["exchange"]]).fetchone()
        return str(row[0]) if row else ""

    await asyncio.to_thread(wait_for, lambda: outcome() == "cancelled", "its outcome is recorded")


async def test_a_prompt_that_only_the_engine_knows_to_be_too_long_is_refused_by_our_code(stack: Stack) -> None:
    refused = (await answer(stack, "word " * 6_000))[-1]
    assert refused["error"]["code"] == "context_length_exceeded"
    assert refused["error"]["param"] == "messages"
    assert refused["exchange"]  # it had begun: the platform's own bound had let it through


async def test_the_engine_takes_priorities_salts_and_formats(stack: Stack) -> None:
    environment = stack.environment
    engine = OpenAIEngine(
        ActiveEngine(environment["BURSAR_ENGINE_URL"]),
        environment["BURSAR_ENGINE_MODEL"],
        environment["BURSAR_ENGINE_API_KEY"],
        vllm=True,
        simulated=False,
    )
    await engine.start()
    try:
        assert await engine.is_ready()
        question = (ChatMessage("user", QUESTION),)
        for priority in (-5, 0, 5):
            asked = task(messages=question, priority=priority, sampling=Sampling(max_tokens=4, temperature=0.0))
            *pieces, end = [item async for item in engine.stream(asked)]
            assert isinstance(end, End)
            assert end.usage is not None
            assert end.usage.completion_tokens == 4
            # Usage comes with each piece, so that an answer that is cut is billed for what was made.
            assert all(isinstance(piece, Piece) and piece.usage for piece in pieces)
        with pytest.raises(EngineRefused):
            wrong = task(messages=question, sampling=Sampling(max_tokens=4, temperature=-1.0))
            [item async for item in engine.stream(wrong)]
    finally:
        await engine.stop()


async def answers_while_the_engine_is_ended(stack: Stack, how: signal.Signals) -> list[list[Event]]:
    """Eight answers at once, each of which has begun when the active engine gets the signal."""
    speaking: set[str] = set()
    answers: dict[str, list[Event]] = {}
    exact = {"max_tokens": 192, "temperature": 0}
    async with socket(stack) as client, socket(stack) as other:
        asking = [client] * 4 + [other] * 4
        for number, one in enumerate(asking):
            await one.ask(f"Tell me a long story about the number {number}.", parameters=exact)

        async def listen(one: ChatClient) -> None:
            one.patience_s, ended = READY_TIMEOUT_S, 0
            while ended < 4:
                event = await one.receive()
                assert event["type"] != "error", event
                answers.setdefault(event["exchange"], []).append(event)
                ended += event["type"] == "answer.finished"
                if event["type"] == "answer.delta":
                    speaking.add(event["exchange"])

        listening = [asyncio.create_task(listen(one)) for one in (client, other)]
        await asyncio.to_thread(wait_for, lambda: len(speaking) == AT_ONCE, "all of them have begun")
        active_engine(stack).send_signal(how)
        await asyncio.gather(*listening)
    return list(answers.values())


def active_engine(stack: Stack) -> psutil.Process:
    port = stack.active_engine_url().rpartition(":")[2]
    family = psutil.Process(stack.processes["engine"].pid).children()
    return next(engine for engine in family if port in engine.cmdline())


def check_they_are_whole(stack: Stack, answers: list[list[Event]]) -> None:
    with psycopg.connect(stack.environment["BURSAR_DATABASE_URL"]) as connection:
        for events in answers:
            assert [event["seq"] for event in events] == list(range(len(events)))
            usage, text = events[-1]["usage"], text_of(events)
            assert usage["completion_tokens"] <= 192
            assert len(text) > 2 * usage["completion_tokens"]
            sql = "SELECT number, status FROM inference_attempt WHERE exchange_id = %s ORDER BY number"
            attempts = connection.execute(sql, [events[-1]["exchange"]]).fetchall()
            assert attempts[-1][1] == "finished"
            sql = "SELECT prompt_tokens, completion_tokens FROM inference_transfer WHERE exchange_id = %s"
            booked = connection.execute(sql, [events[-1]["exchange"]]).fetchall()
            assert booked == [(usage["prompt_tokens"], usage["completion_tokens"])]
    moved = [events for events in answers if attempts_of(stack, events) > 1]
    assert moved  # the engine was ended while they were told


def attempts_of(stack: Stack, events: list[Event]) -> int:
    with psycopg.connect(stack.environment["BURSAR_DATABASE_URL"]) as connection:
        sql = "SELECT count(*) FROM inference_attempt WHERE exchange_id = %s"
        row = connection.execute(sql, [events[-1]["exchange"]]).fetchone()
    return int(row[0]) if row else 0


async def test_eight_answers_wait_for_the_only_engine_to_start_anew_and_go_on(stack: Stack) -> None:
    answers = await answers_while_the_engine_is_ended(stack, signal.SIGKILL)
    check_they_are_whole(stack, answers)


async def test_kill_9_of_the_supervisor_leaves_no_process_of_the_engine(stack: Stack) -> None:
    family = psutil.Process(stack.processes["engine"].pid).children(recursive=True)
    assert len(family) > 1  # the server and what computes for it
    stack.kill("engine")
    await asyncio.to_thread(
        wait_for, lambda: not any(one.is_running() for one in family), "no process of the engine is left"
    )


@pytest.fixture(scope="module")
def standing_by(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Another product with two engines of vLLM, after the first one's is gone: two cores carry no third."""
    if "engine" in stack.processes:
        stack.stop("engine")
    settings = engine_settings(
        Wish("vllm"), free_port(), "engine-key", engine_environment.PYTHON, model.directory(ROOT / "var")
    )
    settings |= {"BURSAR_ENGINE_SHADOW": "1", "BURSAR_ENGINE_SILENT_S": "4"}
    with running_services() as services:
        directory = tmp_path_factory.mktemp("standby")
        with running_stack(services, directory, ready_timeout_s=2 * READY_TIMEOUT_S, **settings) as running:
            yield running


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
async def test_eight_answers_go_on_with_the_engine_that_stood_by(standing_by: Stack, how: signal.Signals) -> None:
    stack = standing_by

    def both_ready() -> bool:
        return stack.log("engine").read_text().count("engine_ready") >= (2 if how is signal.SIGKILL else 3)

    await asyncio.to_thread(wait_for, both_ready, "an engine stands by", 2 * READY_TIMEOUT_S)
    before = stack.active_engine_url()
    answers = await answers_while_the_engine_is_ended(stack, how)
    check_they_are_whole(stack, answers)
    assert stack.active_engine_url() not in ("", before)

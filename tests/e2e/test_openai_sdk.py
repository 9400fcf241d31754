"""The unmodified OpenAI SDK against the HTTP API."""

from __future__ import annotations

import asyncio

import httpx
import openai
import pytest

from tests.stack import MODEL, Stack

QUESTION = [{"role": "user", "content": "why is the sky blue?"}]
TWELVE = "[simulated] this answer was not written by a model. it has the"


@pytest.fixture
def client(live_stack: Stack) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{live_stack.url}/v1", api_key=live_stack.api_key, max_retries=0)


def test_a_plain_completion_has_text_usage_and_a_receipt(client: openai.OpenAI) -> None:
    completion = client.chat.completions.create(model=MODEL, messages=QUESTION, max_tokens=12)

    (choice,) = completion.choices
    assert choice.message.role == "assistant"
    assert choice.message.content == TWELVE
    assert choice.finish_reason == "length"
    assert completion.usage.completion_tokens == 12
    assert completion.usage.total_tokens == completion.usage.prompt_tokens + 12
    assert completion.model_extra["bursar"]["receipt"]
    assert completion.model_extra["bursar"]["simulated"] is True


def test_a_streamed_completion_ends_with_usage_where_it_was_asked_for(client: openai.OpenAI) -> None:
    stream = client.chat.completions.create(
        model=MODEL, messages=QUESTION, max_tokens=12, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)

    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == TWELVE
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "length"
    assert chunks[-1].usage.completion_tokens == 12
    assert len({chunk.id for chunk in chunks}) == 1


def test_a_stream_without_that_option_has_no_usage(client: openai.OpenAI) -> None:
    stream = client.chat.completions.create(model=MODEL, messages=QUESTION, max_tokens=4, stream=True)
    assert all(chunk.choices and chunk.usage is None for chunk in stream)


async def test_the_async_client_streams_many_at_once(live_stack: Stack) -> None:
    client = openai.AsyncOpenAI(base_url=f"{live_stack.url}/v1", api_key=live_stack.api_key, max_retries=0)

    async def ask() -> str:
        stream = await client.chat.completions.create(model=MODEL, messages=QUESTION, max_tokens=12, stream=True)
        return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

    assert set(await asyncio.gather(*(ask() for _ in range(16)))) == {TWELVE}


def test_every_parameter_that_is_served_is_accepted(client: openai.OpenAI) -> None:
    completion = client.chat.completions.create(
        model=MODEL,
        messages=[
            {"role": "developer", "content": "be brief"},
            {"role": "user", "content": [{"type": "text", "text": "hi"}]},
        ],
        max_completion_tokens=3,
        temperature=0.2,
        top_p=0.9,
        stop=["\n\n"],
        seed=5,
        n=1,
        user="somebody",
        response_format={"type": "json_object"},
    )
    assert completion.usage.completion_tokens == 3


def test_models_are_listed_and_found_by_name(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == [MODEL]
    assert client.models.retrieve(MODEL).owned_by == "bursar"
    with pytest.raises(openai.NotFoundError) as caught:
        client.models.retrieve("gpt-17")
    assert caught.value.code == "model_not_found"


def test_errors_are_the_sdks_own(client: openai.OpenAI, live_stack: Stack) -> None:
    with pytest.raises(openai.NotFoundError) as missing:
        client.chat.completions.create(model="gpt-17", messages=QUESTION)
    assert missing.value.param == "model"
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(model=MODEL, messages=QUESTION, tools=[])
    assert refused.value.code == "unsupported"
    stranger = openai.OpenAI(base_url=f"{live_stack.url}/v1", api_key=f"bsk_{'x' * 43}", max_retries=0)
    with pytest.raises(openai.AuthenticationError):
        stranger.models.list()


def test_a_request_id_is_taken_and_given_back(live_stack: Stack) -> None:
    headers = {"Authorization": f"Bearer {live_stack.api_key}", "x-request-id": "mine-17"}
    body = {"model": MODEL, "messages": QUESTION, "max_tokens": 2}
    url = f"{live_stack.url}/v1/chat/completions"
    assert httpx.post(url, headers=headers, json=body).headers["x-request-id"] == "mine-17"
    assert httpx.post(url, headers=headers | {"x-request-id": "a b\n"[:3]}, json=body).headers["x-request-id"] != "a b"
    worker_log = live_stack.log("worker").read_text()
    assert '"request_id": "mine-17"' in worker_log

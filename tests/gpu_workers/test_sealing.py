"""Seals: what was sealed for a place opens there and nowhere else. Messages survive the way there and back."""

from __future__ import annotations

import traceback
from uuid import UUID, uuid4

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_workers.messages import (
    ChatMessage,
    Claimed,
    Delta,
    Done,
    Failed,
    Frame,
    GenerateTask,
    Heartbeat,
    Sampling,
    Usage,
    decode_frame,
    decode_heartbeat,
    decode_task,
    encode,
)
from gpu_workers.sealing import SealBroken, Sealer, fingerprint, frame_place, task_place

KEY = b"k" * 32
EXCHANGE = uuid4()
SECRET = b"the patient is Jane Doe"
texts = st.text(st.characters(codec="utf-8"))
counts = st.integers(0, 2**31)
usages = st.builds(Usage, counts, counts, counts, st.booleans())
frames = st.one_of(
    st.builds(Claimed, texts),
    st.builds(Delta, texts),
    st.builds(Done, st.sampled_from(["stop", "length", "cancelled"]), usages),
    st.builds(Failed, texts, texts, st.none() | usages),
)
samplings = st.builds(
    Sampling,
    max_tokens=counts,
    temperature=st.none() | st.floats(0, 2),
    top_p=st.none() | st.floats(0, 1),
    stop=st.lists(texts, max_size=4).map(tuple),
    seed=st.none() | st.integers(-(2**63), 2**63 - 1),
    response_format=st.none() | st.dictionaries(texts, texts | st.integers(-5, 5) | st.lists(texts), max_size=3),
)
tasks = st.builds(
    GenerateTask,
    exchange=st.uuids(),
    attempt=st.integers(1, 9),
    request_id=texts,
    reply_to=texts,
    owner=texts,
    deadline=st.floats(0, 4e9),
    priority=st.integers(-5, 5),
    cache_salt=texts,
    messages=st.lists(st.builds(ChatMessage, st.sampled_from(["system", "user", "assistant"]), texts)).map(tuple),
    sampling=samplings,
)


@given(frames)
def test_a_frame_comes_out_as_it_went_in(frame: Frame) -> None:
    assert decode_frame(encode(frame)) == frame


@given(tasks)
def test_a_task_comes_out_as_it_went_in(task: GenerateTask) -> None:
    assert decode_task(encode(task)) == task


def test_a_heartbeat_comes_out_as_it_went_in() -> None:
    beat = Heartbeat("w", "d", "vllm", True, False, 3, 256, fingerprint(KEY))
    assert decode_heartbeat(encode(beat)) == beat


@given(st.binary(max_size=200))
def test_noise_is_refused_and_breaks_nothing(noise: bytes) -> None:
    for decode in (decode_frame, decode_task, decode_heartbeat):
        with pytest.raises(msgspec.MsgspecError):
            decode(noise)
    with pytest.raises(SealBroken):
        Sealer(KEY, EXCHANGE).open(noise, place=task_place(1))


@given(st.binary(max_size=2_000), texts)
def test_what_was_sealed_for_a_place_opens_there(data: bytes, place: str) -> None:
    assert Sealer(KEY, EXCHANGE).open(Sealer(KEY, EXCHANGE).seal(data, place=place), place=place) == data


@pytest.mark.parametrize(
    ("key", "exchange", "place"),
    [
        (b"o" * 32, EXCHANGE, frame_place(1, 7)),
        (KEY, UUID(int=5), frame_place(1, 7)),
        (KEY, EXCHANGE, frame_place(1, 8)),
        (KEY, EXCHANGE, frame_place(2, 7)),
        (KEY, EXCHANGE, task_place(1)),
    ],
)
def test_it_opens_under_no_other_key_for_no_other_exchange_and_in_no_other_place(
    key: bytes, exchange: UUID, place: str
) -> None:
    sealed = Sealer(KEY, EXCHANGE).seal(SECRET, place=frame_place(1, 7))
    with pytest.raises(SealBroken) as caught:
        Sealer(key, exchange).open(sealed, place=place)
    said = "".join(traceback.format_exception(caught.value))
    assert "Jane" not in said
    assert SECRET.hex() not in said


def test_a_flipped_bit_or_a_missing_byte_does_not_open() -> None:
    sealer = Sealer(KEY, EXCHANGE)
    sealed = sealer.seal(SECRET, place="p")
    broken = [
        bytes(b ^ (1 << bit) if at == i else b for i, b in enumerate(sealed))
        for at in range(len(sealed))
        for bit in (0, 7)
    ]
    for wrong in [*broken, *(sealed[:length] for length in range(len(sealed)))]:
        with pytest.raises(SealBroken):
            sealer.open(wrong, place="p")


@pytest.mark.parametrize("length", [0, 16, 31, 64])
def test_a_seal_key_of_another_length_is_refused(length: int) -> None:
    with pytest.raises(ValueError):
        Sealer(b"k" * length, EXCHANGE)


def test_a_fingerprint_tells_keys_apart_and_is_none_of_their_bytes() -> None:
    keys = [bytes([n]) * 32 for n in range(200)]
    assert len({fingerprint(key) for key in keys}) == len(keys)
    assert fingerprint(KEY) == fingerprint(bytes(KEY))
    assert len(fingerprint(KEY)) == 16
    assert all(fingerprint(key)[:4] not in key.hex() for key in keys)

"""Sealed values open in their own place under their own key, and say nothing when they do not."""

from __future__ import annotations

import traceback
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compliance.crypto import record_key
from compliance.crypto.record_key import PayloadBroken, RecordKey

KEY = RecordKey(b"k" * 32)
SECRET = b"the patient is Jane Doe"
HERE = {"organisation_id": UUID(int=1), "table": "audit_entry", "column": "payload", "row": UUID(int=2)}
ELSEWHERE = [
    HERE | {"organisation_id": UUID(int=9)},
    HERE | {"table": "chat_conversation"},
    HERE | {"column": "facts"},
    HERE | {"row": UUID(int=9)},
]


@given(st.binary(max_size=4_000), st.uuids(), st.uuids(), st.text(min_size=1), st.text(min_size=1))
def test_what_was_sealed_for_a_place_opens_there(data: bytes, org: UUID, row: UUID, table: str, column: str) -> None:
    place = {"organisation_id": org, "table": table, "column": column, "row": row}
    sealed = KEY.seal(data, **place)
    assert KEY.open(sealed, **place) == data
    assert KEY.open(memoryview(sealed), **place) == data
    assert len(data) < 8 or data not in sealed


@pytest.mark.parametrize("place", ELSEWHERE)
def test_a_payload_that_was_moved_does_not_open(place: dict[str, object]) -> None:
    with pytest.raises(PayloadBroken):
        KEY.open(KEY.seal(SECRET, **HERE), **place)


def test_a_payload_with_any_bit_flipped_does_not_open() -> None:
    sealed = KEY.seal(SECRET, **HERE)
    for position in range(len(sealed) * 8):
        broken = bytearray(sealed)
        broken[position // 8] ^= 1 << position % 8
        with pytest.raises(PayloadBroken):
            KEY.open(bytes(broken), **HERE)


def test_a_payload_that_was_cut_does_not_open() -> None:
    sealed = KEY.seal(SECRET, **HERE)
    for length in range(len(sealed)):
        with pytest.raises(PayloadBroken):
            KEY.open(sealed[:length], **HERE)


def test_another_key_does_not_open_it_and_nothing_that_is_raised_holds_content_or_key() -> None:
    other = RecordKey(b"o" * 32)
    with pytest.raises(PayloadBroken) as caught:
        other.open(KEY.seal(SECRET, **HERE), **HERE)

    said = "".join(traceback.format_exception(caught.value))
    for secret in ("Jane", SECRET.hex(), "k" * 16, "o" * 16, (b"o" * 32).hex()):
        assert secret not in said
    assert other.id != KEY.id


def test_the_same_text_is_never_sealed_the_same_twice() -> None:
    assert len({KEY.seal(SECRET, **HERE) for _ in range(100)}) == 100


@pytest.mark.parametrize("length", [0, 16, 31, 33])
def test_a_key_of_another_length_is_refused(length: int) -> None:
    with pytest.raises(ValueError):
        RecordKey(b"k" * length)


@pytest.mark.parametrize("value", ["", "zz" * 32, "ab" * 16])
def test_a_malformed_setting_is_named_and_not_shown(settings: object, value: str) -> None:
    settings.RECORD_KEY = value  # type: ignore[attr-defined]
    record_key.current.cache_clear()
    try:
        with pytest.raises(ValueError, match="BURSAR_RECORD_KEY") as caught:
            record_key.current()
        assert not value or value not in "".join(traceback.format_exception(caught.value))
    finally:
        record_key.current.cache_clear()


def test_texts_are_sealed_under_the_key_of_the_settings() -> None:
    place = HERE | {"row": uuid4()}
    sealed = record_key.seal_text("naïve 🙂", **place)
    assert record_key.open_text(sealed, **place) == "naïve 🙂"
    with pytest.raises(PayloadBroken):
        KEY.open(sealed, **place)

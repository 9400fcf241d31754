"""The worker token: whole or refused, and never repeated."""

from __future__ import annotations

import hashlib
from base64 import urlsafe_b64decode, urlsafe_b64encode

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from gpu_workers.enrolment import PREFIX, Enrolment, TokenRefused, read_token, write_token

KEYS = st.binary(min_size=32, max_size=32)
NAMES = st.from_regex(r"[A-Za-z0-9_-]{1,60}", fullmatch=True)
TOKEN = write_token(Enrolment(bytes(range(32)), "eu-h200-llama"))


@given(KEYS, NAMES)
def test_what_is_written_is_read(key: bytes, name: str) -> None:
    token = write_token(Enrolment(key, name))
    assert read_token(f" {token}\n") == Enrolment(key, name)
    assert key.hex() not in repr(read_token(token))


@given(st.integers(0, len(TOKEN) - 1), st.characters(codec="ascii"))
def test_one_changed_character_is_refused(place: int, other: str) -> None:
    changed = TOKEN[:place] + other + TOKEN[place + 1 :]
    # The last character of base64 has bits that say nothing.
    assume(changed.strip() != TOKEN and _decoded(changed) != _decoded(TOKEN))
    with pytest.raises(TokenRefused):
        read_token(changed)


@given(st.text(max_size=300) | st.text(max_size=300).map(lambda text: PREFIX + text))
def test_anything_else_is_refused_in_one_line_that_repeats_nothing(text: str) -> None:
    with pytest.raises(TokenRefused) as refused:
        read_token(text)
    assert "\n" not in str(refused.value)
    assert len(text) < 12 or text not in str(refused.value)


@pytest.mark.parametrize("cut", [1, 2, 3, 8, 40])
def test_a_token_that_was_cut_is_refused(cut: int) -> None:
    with pytest.raises(TokenRefused, match="not complete"):
        read_token(TOKEN[:-cut])


def test_another_format_is_named() -> None:
    body = bytes([2]) + bytes(32) + b"name"
    token = PREFIX + urlsafe_b64encode(body + hashlib.sha256(body).digest()[:8]).decode().rstrip("=")
    with pytest.raises(TokenRefused, match="another format"):
        read_token(token)


@pytest.mark.parametrize(("key", "name"), [(bytes(31), "a"), (bytes(32), ""), (bytes(32), "a b"), (bytes(32), "ä")])
def test_what_could_not_be_read_is_not_written(key: bytes, name: str) -> None:
    with pytest.raises(ValueError):
        write_token(Enrolment(key, name))


def _decoded(token: str) -> bytes:
    encoded = token.strip().removeprefix(PREFIX)
    try:
        return urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4))
    except ValueError:
        return b""

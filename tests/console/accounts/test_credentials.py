"""API keys as text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.accounts import credentials

KEY = "bsk_" + "Aa0-_" * 8 + "xyz"


def test_a_key_carries_256_random_bits() -> None:
    keys = {credentials.new_key() for _ in range(100)}
    assert len(keys) == 100
    assert all(credentials.is_key(key) and len(key) == 47 for key in keys)


def test_the_digest_is_the_keys_sha_256() -> None:
    assert credentials.digest("abc").hex() == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


def test_the_prefix_is_too_short_to_be_a_key() -> None:
    assert credentials.prefix(KEY) == KEY[:12]
    assert not credentials.is_key(credentials.prefix(KEY))


@pytest.mark.parametrize("header", [f"Bearer {KEY}", f"bearer {KEY}", f"BEARER   {KEY} "])
def test_it_reads_a_key_from_a_bearer_header(header: str) -> None:
    assert credentials.bearer_key(header) == KEY


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        KEY,
        f"Basic {KEY}",
        f"Bearer{KEY}",
        f"Bearer {KEY}x",
        f"Bearer {KEY[:-1]}",
        f"Bearer {KEY}\n",
        f"Bearer {KEY} {KEY}",
        f"Bearer sk_{KEY[4:]}x",
        f"Bearer {KEY[:-1]}é",
        f"Bearer {KEY[:-1]}\x00",
        "Bearer " + "bsk_" + "a" * 1_000_000,
    ],
)
def test_it_refuses_what_has_not_the_shape_of_a_key(header: str | None) -> None:
    assert credentials.bearer_key(header) is None


@given(st.text())
def test_no_header_makes_it_fail(header: str) -> None:
    key = credentials.bearer_key(header)
    assert key is None or credentials.is_key(key)

"""What detection reads, and that each character of it is traced back to where it stands."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compliance.pii.normal import normalise


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("plain", "plain"),
        ("４１１１", "4111"),
        ("41\u200b11\u2060", "4111"),
        ("\u202ejane\u202c", "jane"),
        ("٤١١١ १२", "4111 12"),
        ("a\u2011b\u2014c", "a-b-c"),
        ("a\u00a0b\u3000c", "a b c"),
        ("jаnе@ехаmple", "jane@example"),  # a, e, e, x, a are Cyrillic
        ("Иван Чехов", "Иван Чехов"),
        ("4l11 1O11", "4111 1011"),
        ("four one one one, one one", "411111"),
        ("one or two of them", "one or two of them"),
        ("ﬁne", "fine"),
        ("𝟜𝟙𝟙𝟙", "4111"),
    ],
)
def test_it_is_read_as_people_see_it(text: str, read: str) -> None:
    assert normalise(text).text == read


def test_what_is_found_is_masked_where_it_stands() -> None:
    text = "card ４\u200b１１ four one two three four five!"
    normal = normalise(text)
    assert normal.text == "card 411 412345!"
    assert text[slice(*normal.back(5, 8))] == "４\u200b１１"
    assert text[slice(*normal.back(9, 15))] == "four one two three four five"


@given(st.text(st.sampled_from("a1O-\u200bé👍🏽\u0301４аone two ﬁ\u00a0\n"), max_size=60) | st.text(max_size=60))
def test_every_place_traces_back_into_the_text_in_order(text: str) -> None:
    normal = normalise(text)
    places = [normal.back(at, at + 1) for at in range(len(normal.text))]
    assert all(0 <= start < end <= len(text) for start, end in places)
    assert places == sorted(places)
    if text.isascii() and len(normal.text) == len(text):
        assert places == [(at, at + 1) for at in range(len(text))]

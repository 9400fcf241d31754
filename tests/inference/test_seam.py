"""Seams: wherever an answer is cut, the user reads what was said once."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference.seam import AnswersDiffer, Seam

TEXT = st.text(alphabet="ab \n\t.é𐍈", max_size=40)


def pieces(text: str, cuts: list[int]) -> list[str]:
    at = sorted({cut % (len(text) + 1) for cut in cuts} | {0, len(text)})
    return [text[start:end] for start, end in itertools.pairwise(at)]


@given(TEXT, TEXT, st.lists(st.integers(0, 100)))
def test_an_answer_that_is_continued_reads_as_if_it_had_never_been_cut(said: str, rest: str, cuts: list[int]) -> None:
    seam = Seam(said, repeats=False)
    assert said.startswith(seam.told)
    # What an engine says that goes on exactly after what it was told.
    generated = said[len(seam.told) :] + rest

    assert said + "".join(seam.join(piece) for piece in pieces(generated, cuts)) == said + rest
    seam.end()


@given(TEXT, TEXT, st.lists(st.integers(0, 100)))
def test_an_answer_that_is_made_anew_reads_as_if_it_had_never_been_cut(said: str, rest: str, cuts: list[int]) -> None:
    seam = Seam(said, repeats=True)
    assert seam.told == ""

    assert said + "".join(seam.join(piece) for piece in pieces(said + rest, cuts)) == said + rest
    seam.end()


@given(TEXT, TEXT)
def test_no_word_is_lost_where_an_engine_leaves_out_the_space(said: str, rest: str) -> None:
    seam = Seam(said, repeats=False)
    joined = seam.join(rest)
    assert rest.endswith(joined)
    assert rest[: len(rest) - len(joined)].strip() == ""


@pytest.mark.parametrize("again", ["the sea is", "the s", ""])
def test_another_answer_is_not_passed_off_as_the_same(again: str) -> None:
    seam = Seam("the sky is", repeats=True)
    with pytest.raises(AnswersDiffer):
        seam.join(again)
        seam.end()

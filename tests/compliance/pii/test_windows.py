"""Long texts are inspected in windows: every finding is found once, wherever the windows are cut."""

from __future__ import annotations

import re
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from compliance.pii.findings import Finding, mask
from compliance.pii.windows import OVERLAP, WINDOW, merged, moved, windows

CARD = re.compile(r"\b\d{4}(?: \d{4}){3}\b")


def find(text: str) -> list[Finding]:
    return [Finding(found.start(), found.end(), "CREDIT_CARD", 1.0) for found in CARD.finditer(text)]


pieces = st.one_of(
    st.just("4111 1111 1111 1111"),
    st.text("abc", min_size=1, max_size=40),
    st.just(" "),
    st.integers(1, 900).map("x".__mul__),
)


@settings(max_examples=150)
@given(st.lists(pieces, max_size=80).map(" ".join))
def test_windows_find_what_the_whole_would(text: str) -> None:
    found = merged([finding for offset, window in windows(text) for finding in moved(find(window), offset)])

    assert found == find(text)
    assert mask(text, found) == mask(text, find(text))


@given(st.text(max_size=5 * WINDOW) | st.integers(0, 5 * WINDOW).map("x".__mul__))
def test_windows_cover_the_text_overlap_and_are_bounded(text: str) -> None:
    cut = list(windows(text))

    assert all(text[offset : offset + len(window)] == window and len(window) <= WINDOW for offset, window in cut)
    assert cut[0][0] == 0
    assert cut[-1][0] + len(cut[-1][1]) == len(text)
    for (first, window), (second, _) in pairwise(cut):
        assert first < second <= first + len(window) - OVERLAP + 1

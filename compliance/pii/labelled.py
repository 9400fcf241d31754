"""Texts with their personal data marked, a JSON object a line: `{"text", "spans": [{"type", "start", "end"}]}`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

MAX_LINE_BYTES = 1_048_576


class LineRefused(ValueError):
    """A line is not what it should be; the message has its number, and nothing of what stands in it."""


class Span(Struct, frozen=True):
    """Characters (code points) from `start` to `end` of the text."""

    type: Annotated[str, Meta(min_length=1, max_length=60)]
    start: Annotated[int, Meta(ge=0)]
    end: Annotated[int, Meta(ge=1)]


class Labelled(Struct, frozen=True):
    text: str
    spans: tuple[Span, ...] = ()


_decoder = msgspec.json.Decoder(Labelled)


def read_lines(lines: Iterable[bytes]) -> Iterator[Labelled]:
    """Each line that is not empty. Raises `LineRefused`."""
    for number, line in enumerate(lines, start=1):
        if line.strip():
            yield _parsed(number, line)


def _parsed(number: int, line: bytes) -> Labelled:
    if len(line) > MAX_LINE_BYTES:
        raise LineRefused(f"Line {number} is longer than {MAX_LINE_BYTES} bytes.")
    try:
        labelled = _decoder.decode(line)
    except msgspec.ValidationError as error:
        field = str(error).partition(" - at `$")[2].rstrip("`").lstrip(".")
        raise LineRefused(f"Line {number}: {field or 'the line'} is missing or of the wrong type.") from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise LineRefused(f"Line {number} is not JSON.") from None
    if any(not span.start < span.end <= len(labelled.text) for span in labelled.spans):
        raise LineRefused(f"Line {number}: a span lies outside its text, or ends before it begins.")
    if any("\ud800" <= character <= "\udfff" for character in labelled.text):
        raise LineRefused(f"Line {number}: the text holds half a character.")
    return labelled

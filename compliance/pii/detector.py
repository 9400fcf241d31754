"""A detector: a process that reads texts on standard input and answers with findings on standard output.

A process of its own, because finding names takes milliseconds of CPU that a web process's event loop has not.
It ends when its standard input does, so it never outlives the web process that started it.
"""

from __future__ import annotations

import gc
import os
import select
import struct
import sys
from collections.abc import Callable, Iterator, Sequence
from io import RawIOBase

from msgspec import Struct, msgpack

from compliance.pii.findings import Finding

# More texts or characters than this in one batch would make the first wait for the last.
MAX_BATCH = 16
MAX_BATCH_CHARS = 4_000
LENGTH = struct.Struct("!I")


class Request(Struct, frozen=True):
    number: int
    text: str


class Response(Struct, frozen=True):
    """`findings` is None where the text could not be inspected."""

    number: int
    findings: list[Finding] | None


READY = 0  # the number of the response that says that the model is loaded

_requests = msgpack.Decoder(Request)
_encode = msgpack.Encoder().encode


def frame(message: Request | Response) -> bytes:
    body = _encode(message)
    return LENGTH.pack(len(body)) + body


Find = Callable[[Sequence[str]], list[list[Finding]]]


def _read_exactly(stream: RawIOBase, size: int) -> bytes | None:
    """`size` bytes, or None where the stream ends before. A raw stream, so that select sees what is unread."""
    data = b""
    while len(data) < size:
        part = stream.read(size - len(data))
        if not part:
            return None
        data += part
    return data


def _batches(stream: RawIOBase) -> Iterator[list[Request]]:
    """What has arrived, at least one text and no more than a batch holds, until the stream ends."""
    while True:
        batch: list[Request] = []
        while not batch or (not _is_full(batch) and select.select([stream], [], [], 0)[0]):
            head = _read_exactly(stream, LENGTH.size)
            body = _read_exactly(stream, LENGTH.unpack(head)[0]) if head else None
            if body is None:
                return
            batch.append(_requests.decode(body))
        yield batch


def _is_full(batch: list[Request]) -> bool:
    return len(batch) >= MAX_BATCH or sum(len(request.text) for request in batch) >= MAX_BATCH_CHARS


def main() -> int:
    # Small matrices: more threads than one only take each other's cores.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    # Findings go to what was standard output; a library that prints must not get between them.
    output = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    from compliance.pii.analyzer import Analyzer

    analyzer = Analyzer()
    analyzer.find(["Warm up, Jane Doe: 4111 1111 1111 1111."])
    # The model is a million objects that stay: the collector need not walk them again and again.
    gc.collect()
    gc.freeze()
    output.write(frame(Response(READY, [])))
    stdin = os.fdopen(0, "rb", buffering=0)
    for batch in _batches(stdin):
        output.write(b"".join(frame(response) for response in _inspect(analyzer.find, batch)))
    return 0


def _inspect(find: Find, batch: list[Request]) -> list[Response]:
    try:
        found = find([request.text for request in batch])
    except Exception:
        # Whatever a recognizer trips over, the answer is "not inspected", one text at a time if there were more.
        if len(batch) == 1:
            return [Response(batch[0].number, None)]
        return [response for request in batch for response in _inspect(find, [request])]
    return [Response(request.number, findings) for request, findings in zip(batch, found, strict=True)]


if __name__ == "__main__":
    sys.exit(main())

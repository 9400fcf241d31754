"""A TCP line between a browser and a server that can be cut as a network is: without a word to either end."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator
from types import TracebackType


class Cable:
    """Listens on a port of its own and passes everything on to the port that it leads to."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._target: int | None = None
        self._ends: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._plugged = True

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Cable:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.close()
        self.cut()

    def lead_to(self, port: int) -> None:
        self._target = port

    def cut(self) -> None:
        """Reset every connection that there is. New ones can be made."""
        with self._lock:
            ends, self._ends = self._ends, set()
        for end in ends:
            _reset(end)

    @contextlib.contextmanager
    def unplugged(self) -> Iterator[None]:
        """No connection stays or comes about while this lasts."""
        self._plugged = False
        self.cut()
        try:
            yield
        finally:
            self._plugged = True

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            if not self._plugged or self._target is None:
                _reset(near)
                continue
            far = socket.create_connection(("127.0.0.1", self._target))
            with self._lock:
                self._ends |= {near, far}
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=_pass_on, args=(source, sink), daemon=True).start()


def _pass_on(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)


def _reset(end: socket.socket) -> None:
    """Close with RST: no close frame and no FIN, as when the network is gone."""
    with contextlib.suppress(OSError):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        # A thread that reads from it would keep it open.
        end.shutdown(socket.SHUT_RD)
    end.close()

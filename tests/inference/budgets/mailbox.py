"""A mail server that takes mail over SMTP (RFC 5321) and keeps it, or refuses as it is told."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email import message_from_bytes, policy
from email.message import EmailMessage
from typing import Any, cast


class Mailbox(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Session)
        self.mails: list[tuple[str, EmailMessage]] = []
        self.refuses_with: bytes | None = None

    @property
    def port(self) -> int:
        return int(self.server_address[1])


class _Session(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        box, recipient = cast(Mailbox, self.server), ""
        self._say(b"220 mailbox")
        while line := self.rfile.readline():
            verb = line[:4].upper()
            if verb == b"QUIT":
                self._say(b"221 bye")
                return
            if verb == b"RCPT":
                recipient = line.split(b"<")[1].split(b">")[0].decode()
                self._say(box.refuses_with or b"250 ok")
            elif verb == b"DATA":
                self._say(b"354 go on")
                body = b"".join(iter(self.rfile.readline, b".\r\n"))
                parsed: Any = message_from_bytes(body, policy=policy.default)
                box.mails.append((recipient, parsed))
                self._say(b"250 ok")
            else:
                self._say(b"250 ok")

    def _say(self, line: bytes) -> None:
        self.wfile.write(line + b"\r\n")


@contextmanager
def open_mailbox() -> Iterator[Mailbox]:
    with Mailbox() as box:
        thread = threading.Thread(target=box.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        yield box
        box.shutdown()
        thread.join()

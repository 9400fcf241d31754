"""TCP ports: the one that people open, and one on loopback for the engine."""

import errno
import re
import socket
from collections.abc import Mapping

from console.local.errors import CannotRunError

DEFAULT_PORT = 8000
LAST_ALTERNATIVE = 8099


def wanted_host(environment: Mapping[str, str]) -> str:
    return environment.get("BURSAR_HOST") or "127.0.0.1"


def wanted_port(environment: Mapping[str, str]) -> str:
    """What PORT (of `make run`) or BURSAR_PORT says; empty when any will do."""
    return environment.get("PORT") or environment.get("BURSAR_PORT") or ""


def choose_port(host: str, wanted: str) -> int:
    """The port `wanted`, or the first free one from 8000 on where none is named. Raises CannotRunError."""
    if not wanted:
        for port in range(DEFAULT_PORT, LAST_ALTERNATIVE + 1):
            if not why_taken(host, port):
                return port
        raise CannotRunError(f"every port from {DEFAULT_PORT} to {LAST_ALTERNATIVE} is taken: name one with PORT=...")
    if not (re.fullmatch(r"[0-9]{1,5}", wanted) and 0 < int(wanted) < 65536):
        raise CannotRunError("PORT must be a number from 1 to 65535")
    if reason := why_taken(host, int(wanted)):
        raise CannotRunError(f"port {wanted} {reason}: name another one with PORT=...")
    return int(wanted)


def free_port() -> int:
    """A port on loopback that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def why_taken(host: str, port: int) -> str:
    """Why we cannot listen there, or nothing."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError:
        raise CannotRunError(f"{host} is no address of this machine: set BURSAR_HOST to one") from None
    with socket.socket(family, kind, protocol) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
        except OSError as failure:
            return "may not be used by this user" if failure.errno == errno.EACCES else "is taken"
    return ""

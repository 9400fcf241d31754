"""Asks the web process whether it can serve, and what is still missing."""

import http.client
import json
from urllib.parse import urlsplit


def what_is_missing(url: str) -> str:
    """What keeps the server at `url` from serving, in words; empty when it is ready."""
    address = urlsplit(url)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=5)
    try:
        connection.request("GET", "/readyz")
        response = connection.getresponse()
        body = response.read(100_000)
    except (OSError, http.client.HTTPException):
        return "the web process does not answer yet"
    finally:
        connection.close()
    return "" if response.status == 200 else _unready(body)


def _unready(body: bytes) -> str:
    try:
        checks = json.loads(body)["checks"]
        names = [name for name, result in checks.items() if result not in (True, "ok")]
    except (ValueError, KeyError, TypeError, AttributeError):
        return "the web process answers, but not that it is ready"
    return f"waiting for: {', '.join(names)}"

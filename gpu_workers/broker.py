"""The platform's Valkey as Celery is to be told of it."""

from __future__ import annotations

from urllib.parse import parse_qs, parse_qsl, quote, urlencode, urlsplit, urlunsplit


def broker_url(valkey_url: str) -> str:
    """The same Valkey as Celery writes it. Raises ValueError for what is no URL.

    kombu has its own form for a Unix socket, and checks a certificate only when it is told to: the platform's other
    client, redis-py, always does.
    """
    parts = urlsplit(valkey_url)
    if parts.scheme == "unix":
        return _of_socket(parts.path, parse_qs(parts.query))
    query = parse_qsl(parts.query, keep_blank_values=True)
    if parts.scheme != "rediss" or any(name == "ssl_cert_reqs" for name, _ in query):
        return valkey_url
    return urlunsplit(parts._replace(query=urlencode([*query, ("ssl_cert_reqs", "required")])))


def _of_socket(path: str, query: dict[str, list[str]]) -> str:
    password = query.get("password", [""])[0]
    credentials = f":{quote(password, safe='')}@" if password else ""
    return f"redis+socket://{credentials}{path}?virtual_host={query.get('db', ['0'])[0]}"

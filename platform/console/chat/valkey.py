"""The synchronous client of Valkey, for views. The pipeline has its own asynchronous one."""

from __future__ import annotations

from functools import cache

import redis
from django.conf import settings

TIMEOUT_S = 2


def connection() -> redis.Redis:
    """A client that threads share. It connects with its first command and gives up after 2 s."""
    return _client(settings.VALKEY_URL)


@cache
def _client(url: str) -> redis.Redis:
    return redis.Redis.from_url(url, socket_connect_timeout=TIMEOUT_S, socket_timeout=TIMEOUT_S)

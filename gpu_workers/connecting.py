"""Connections to Valkey, as every process of the platform opens them."""

from __future__ import annotations

from redis.asyncio import BlockingConnectionPool, Redis


def connect(url: str) -> Redis:
    """A client whose pool makes callers wait when it is used up, where the plain pool raises."""
    pool = BlockingConnectionPool.from_url(
        url, max_connections=64, timeout=10, socket_timeout=5, socket_connect_timeout=3
    )
    return Redis(connection_pool=pool)

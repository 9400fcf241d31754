"""A database for tests that commit: the record cannot be emptied after them, so it is not Django's test database."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import psycopg
import pytest
from django.db import connection
from pytest_django import DjangoDbBlocker
from redis.asyncio import Redis

from gpu_workers.runner import connect
from tests.services import Services

NAME = "committed"


@pytest.fixture(scope="session")
def committed_database(services: Services, django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> str:
    """The URL of a copy of Django's test database with every migration applied."""
    with django_db_blocker.unblock():
        template = connection.settings_dict["NAME"]
        connection.close()
    with psycopg.connect(services.postgres.url(), autocommit=True) as server:
        server.execute(f"DROP DATABASE IF EXISTS {NAME}")
        server.execute(f"CREATE DATABASE {NAME} TEMPLATE {template}")
    return services.postgres.url(NAME)


@pytest.fixture
def on_committed_database(committed_database: str, django_db_blocker: DjangoDbBlocker) -> Iterator[str]:
    """Django's own connections, of every thread, go to the committed database."""
    with django_db_blocker.unblock():
        connection.close()
        name = connection.settings_dict["NAME"]
        connection.settings_dict["NAME"] = NAME
        yield committed_database
        connection.close()
        connection.settings_dict["NAME"] = name


@pytest.fixture
async def valkeys(services: Services) -> AsyncIterator[list[Redis]]:
    """Two clients with a pool each, as two web processes have them."""
    clients = [connect(services.valkey.url()) for _ in range(2)]
    yield clients
    for client in clients:
        await client.aclose()

"""A database for tests that commit: the record cannot be emptied after them, so it is not Django's test database."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import psycopg
import pytest
from django.core.management import call_command
from django.db import connection
from pytest_django import DjangoDbBlocker
from redis.asyncio import Redis

from gpu_workers.connecting import connect
from tests.services import Services


@contextmanager
def django_on(name: str, blocker: DjangoDbBlocker) -> Iterator[None]:
    """Django's own connections, of every thread, go to the database `name`."""
    with blocker.unblock():
        connection.close()
        before = connection.settings_dict["NAME"]
        connection.settings_dict["NAME"] = name
        try:
            yield
        finally:
            connection.close()
            connection.settings_dict["NAME"] = before


def make_database(name: str, services: Services, blocker: DjangoDbBlocker) -> str:
    """The URL of a new, empty database with every migration applied."""
    with psycopg.connect(services.postgres.url(), autocommit=True) as server:
        server.execute(f"CREATE DATABASE {name}")
    with django_on(name, blocker):
        call_command("migrate", verbosity=0)
    return services.postgres.url(name)


@pytest.fixture(scope="session")
def committed_database(services: Services, django_db_blocker: DjangoDbBlocker) -> str:
    return make_database("committed", services, django_db_blocker)


@pytest.fixture
def on_committed_database(committed_database: str, django_db_blocker: DjangoDbBlocker) -> Iterator[str]:
    with django_on("committed", django_db_blocker):
        yield committed_database


@pytest.fixture
async def valkeys(services: Services) -> AsyncIterator[list[Redis]]:
    """Two clients with a pool each, as two web processes have them."""
    clients = [connect(services.valkey.url()) for _ in range(2)]
    yield clients
    for client in clients:
        await client.aclose()

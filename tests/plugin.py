"""Starts the tests' own PostgreSQL and Valkey before Django reads its settings, and stops them at the end."""

from __future__ import annotations

import os
import secrets
from contextlib import ExitStack

import pytest

from tests.services import running_services

_stack = ExitStack()
services = _stack.enter_context(running_services())
os.environ.update(services.environment)
os.environ.update(
    BURSAR_SECRET_KEY=secrets.token_hex(32),
    BURSAR_RECORD_KEY=secrets.token_hex(32),
    BURSAR_SEAL_KEY=secrets.token_hex(32),
)


def pytest_unconfigure(config: pytest.Config) -> None:
    _stack.close()

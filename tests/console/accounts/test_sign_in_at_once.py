"""How many passwords are checked at once: each check takes memory and time on purpose, and anybody can ask for one."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.http import HttpResponse
from django.test import Client

PATIENCE_S = 30.0
AT_ONCE = 4


class SlowBackend:
    """Checks passwords as slowly as the test wants, and finds nobody."""

    entered = threading.Semaphore(0)
    may_end = threading.Event()

    def authenticate(self, request: object, **credentials: object) -> None:
        self.entered.release()
        assert self.may_end.wait(PATIENCE_S)


@pytest.fixture
def slow(settings: Any) -> Iterator[type[SlowBackend]]:
    settings.AUTHENTICATION_BACKENDS = [f"{__name__}.{SlowBackend.__qualname__}"]
    settings.AXES_ENABLED = False  # it would count in the database, which these threads have none of
    SlowBackend.may_end.clear()
    yield SlowBackend
    SlowBackend.may_end.set()


def sign_in() -> HttpResponse:
    answered = Client().post("/sign-in", {"username": "ada", "password": "x"})
    assert isinstance(answered, HttpResponse)
    return answered


def test_no_more_than_four_passwords_are_checked_at_once_and_the_next_is_told_to_wait(slow: type[SlowBackend]) -> None:
    with ThreadPoolExecutor(AT_ONCE + 2) as people:
        checking = [people.submit(sign_in) for _ in range(AT_ONCE)]
        for _ in range(AT_ONCE):
            assert slow.entered.acquire(timeout=PATIENCE_S)
        turned_away = [people.submit(sign_in) for _ in range(2)]

        for answered in turned_away:
            response = answered.result(PATIENCE_S)
            assert response.status_code == 503
            assert response["Retry-After"] == "2"
        assert not slow.entered.acquire(blocking=False)  # neither got as far as a password
        assert not any(answered.done() for answered in checking)

        slow.may_end.set()
        assert [answered.result(PATIENCE_S).status_code for answered in checking] == [200] * AT_ONCE
        assert sign_in().status_code == 200  # and there is room again
        slow.entered.acquire()

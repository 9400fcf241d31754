"""Wrong passwords are counted by user and address; past the limit none is checked for a quarter of an hour."""

from __future__ import annotations

import json
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from axes.models import AccessAttempt, AccessFailureLog, AccessLog
from django.core import serializers
from django.core.management import call_command
from django.http import HttpResponse
from django.test import AsyncClient, Client
from django.utils import timezone

from compliance.audit.models import Entry
from console.accounts.lockout import FAILURES_OF_ADDRESS
from console.accounts.models import Organisation, Role, User
from console.accounts.tasks import forget_sign_in_attempts
from console.celery import app
from tests.console import people

pytestmark = pytest.mark.django_db

LIMIT = 10
WRONG = "not-the-password-17"
HERE, ELSEWHERE = "192.0.2.1", "198.51.100.7"
_visitor = Client()


@pytest.fixture
def acme() -> Organisation:
    return people.organisation("Acme")


@pytest.fixture
def fast_hashes(settings: Any) -> None:
    """The limit is about how many, not how long."""
    settings.PASSWORD_HASHERS = [
        "django.contrib.auth.hashers.MD5PasswordHasher",
        "django.contrib.auth.hashers.PBKDF2PasswordHasher",
    ]


@pytest.fixture(autouse=True)
def ada(acme: Organisation, fast_hashes: None) -> User:
    return person(acme, "ada")


def person(of: Organisation, username: str, role: str = Role.END_USER) -> User:
    user = people.member(of, role, username=username)
    user.set_password(people.PASSWORD)
    user.save()
    return user


def attempt(password: str = WRONG, username: str = "ada", address: str = HERE, **headers: str) -> HttpResponse:
    form = {"username": username, "password": password}
    _visitor.cookies.clear()  # a stranger each time; a client of its own would load the middleware each time
    answered = _visitor.post("/sign-in", form, headers=headers, REMOTE_ADDR=address)
    assert isinstance(answered, HttpResponse)
    return answered


def fail(times: int, **whose: str) -> None:
    for _ in range(times):
        attempt(**whose)


def pass_time(**time: int) -> None:
    AccessAttempt.objects.update(attempt_time=timezone.now() - timedelta(**time))


def test_the_tenth_wrong_password_locks_and_the_right_one_is_not_taken_any_more() -> None:
    fail(LIMIT - 1)
    locked = attempt()
    assert locked.status_code == 429
    assert attempt(people.PASSWORD).status_code == 429
    assert locked["Retry-After"] == "900"
    assert "15 minutes" in locked.content.decode()
    assert "ada" not in locked.content.decode()
    assert "Content-Security-Policy" in locked


def test_fewer_do_not_and_signing_in_begins_anew() -> None:
    for _ in range(2):
        fail(LIMIT - 1)
        assert attempt(people.PASSWORD).status_code == 302


def test_it_ends_after_fifteen_minutes_however_often_it_was_tried_meanwhile() -> None:
    fail(LIMIT)
    pass_time(minutes=14)
    assert attempt(people.PASSWORD).status_code == 429
    pass_time(minutes=16)
    assert attempt(people.PASSWORD).status_code == 302


def test_another_address_and_another_user_are_not_locked(acme: Organisation) -> None:
    person(acme, "grace")
    fail(LIMIT)
    assert attempt(people.PASSWORD, address=ELSEWHERE).status_code == 302
    assert attempt(people.PASSWORD, username="grace").status_code == 302


def test_an_address_that_tries_many_users_is_locked_for_all_of_them() -> None:
    for number in range(FAILURES_OF_ADDRESS):
        attempt(username=f"guess-{number}")
    assert attempt(people.PASSWORD).status_code == 429
    assert attempt(people.PASSWORD, address=ELSEWHERE).status_code == 302


def test_an_account_of_ones_own_does_not_buy_more_attempts_on_others(acme: Organisation) -> None:
    person(acme, "mallory")
    for _ in range(LIMIT):
        attempt()
        attempt(people.PASSWORD, username="mallory")
    assert attempt(people.PASSWORD).status_code == 429
    for number in range(FAILURES_OF_ADDRESS - LIMIT):
        attempt(username=f"guess-{number}")
    assert attempt(people.PASSWORD, username="mallory").status_code == 429


def test_a_name_that_nobody_has_is_locked_alike() -> None:
    fail(LIMIT, username="nobody")
    fail(LIMIT)
    assert attempt(username="nobody").content == attempt().content


def test_another_browser_or_a_forged_address_does_not_get_around_it() -> None:
    for number in range(LIMIT):
        attempt(**{"user-agent": f"browser {number}", "x-forwarded-for": f"203.0.113.{number}"})
    assert attempt(people.PASSWORD).status_code == 429


def test_the_way_into_the_admin_is_locked_too(client: Client, acme: Organisation) -> None:
    person(acme, "root", Role.ADMINISTRATOR)
    fail(LIMIT, username="root")
    response = Client(REMOTE_ADDR=HERE).post(
        "/admin/login/?next=/admin/", {"username": "root", "password": people.PASSWORD}, follow=True
    )
    assert "/sign-in" in response.redirect_chain[-1][0]
    assert client.get("/admin/").status_code == 302
    assert attempt(people.PASSWORD, username="root").status_code == 429


def test_asynchronous_callers_are_locked_too(async_client: AsyncClient) -> None:
    post = async_to_sync(async_client.post)  # its views then run on this thread, in the test's transaction
    for _ in range(LIMIT):
        response = post("/sign-in", {"username": "ada", "password": WRONG})
    assert response.status_code == 429
    assert AccessAttempt.objects.get().failures_since_start == LIMIT


def test_keys_and_open_sessions_go_on(acme: Organisation, client: Client, ada: User) -> None:
    _, key = people.api_key(acme)
    client.force_login(ada)
    for number in range(FAILURES_OF_ADDRESS):
        attempt(username=f"guess-{number}", address="127.0.0.1")
    assert attempt(people.PASSWORD, address="127.0.0.1").status_code == 429
    assert client.get("/api/conversations").status_code == 200
    assert Client().get("/api/conversations", headers=people.bearer(key)).status_code == 200


@pytest.mark.parametrize("command", [("axes_reset_username", "ada"), ("axes_reset_ip", HERE), ("axes_reset",)])
def test_an_operator_lifts_it(command: tuple[str, ...]) -> None:
    fail(LIMIT)
    call_command(*command, stdout=StringIO())
    assert attempt(people.PASSWORD).status_code == 302


def test_a_lockout_is_in_the_record_once(ada: User, acme: Organisation) -> None:
    fail(LIMIT + 5)
    fail(LIMIT, username="nobody")
    known, unknown = Entry.objects.filter(kind="refusal", facts__param="sign-in").order_by("id")
    assert known.facts["caller"] == f"user:{ada.pk}"
    assert known.facts["error_code"] == "rate_limit_exceeded"
    assert known.organisation_id == acme.pk
    assert unknown.facts["caller"] == "unknown"
    assert "nobody" not in json.dumps(unknown.facts)


def test_what_was_typed_is_kept_and_logged_nowhere(capfd: pytest.CaptureFixture[str]) -> None:
    for _ in range(LIMIT + 1):
        form = {"username": "ada", "password": WRONG, "passwort": WRONG, "next": f"/?{WRONG}"}
        Client(REMOTE_ADDR=HERE).post(f"/sign-in?password={WRONG}&pw={WRONG}", form)
    # And somebody who types it into the field above, with more behind it than any name has.
    for username in (WRONG, WRONG * 100):
        attempt(username=username)
    kept = serializers.serialize("json", [*AccessAttempt.objects.all(), *AccessFailureLog.objects.all()])
    assert '"failures_since_start": 10' in kept
    assert WRONG not in kept
    said = "".join(capfd.readouterr())
    assert WRONG not in said
    assert HERE not in said


def test_names_and_addresses_are_forgotten_when_they_count_no_more() -> None:
    fail(3)
    assert forget_sign_in_attempts() == 0
    pass_time(minutes=16)
    fail(1, username="grace")  # axes forgets old ones itself, but only while people go on failing
    pass_time(minutes=16)
    assert forget_sign_in_attempts() == 1
    assert not AccessAttempt.objects.exists()
    attempt(people.PASSWORD)
    assert not AccessLog.objects.exists()


def test_every_task_that_is_scheduled_exists() -> None:
    app.loader.import_default_modules()
    scheduled = {entry["task"] for entry in app.conf.beat_schedule.values()}
    assert "accounts.forget_sign_in_attempts" in scheduled
    assert scheduled <= set(app.tasks)

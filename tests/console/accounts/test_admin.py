"""The admin of accounts: who sees and does what, and that a key is shown once."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import unescape

import pytest
from asgiref.sync import async_to_sync
from auditlog.models import LogEntry
from django.contrib.sessions.models import Session
from django.db import connection
from django.test import AsyncClient, Client
from django.test.utils import CaptureQueriesContext
from django_celery_beat.models import IntervalSchedule, PeriodicTask

from console.accounts import credentials
from console.accounts.models import APIKey, Member, Organisation, Role, User
from tests.console import people

pytestmark = pytest.mark.django_db
KEYS, USERS, ORGANISATIONS = "/admin/accounts/apikey/", "/admin/accounts/user/", "/admin/accounts/organisation/"
HISTORY, TASKS = "/admin/accounts/configurationchange/", "/admin/django_celery_beat/periodictask/"


@pytest.fixture
def acme() -> Organisation:
    return people.organisation("Acme", requests_per_minute=100)


@pytest.fixture
def globex() -> Organisation:
    return people.organisation("Globex")


@pytest.fixture
def enter(acme: Organisation) -> Callable[[str], Client]:
    def _enter(role: str) -> Client:
        return enter_as(people.superuser(acme) if role == "superuser" else people.member(acme, role))

    return _enter


def add_key(client: Client, organisation: Organisation, **fields: str) -> str:
    answered = client.post(KEYS + "add/", {"organisation": str(organisation.pk), "name": "billing"} | fields)
    return answered.content.decode()


def shown_key(page: str) -> str:
    return re.findall(r"bsk_[A-Za-z0-9_-]{43}", page)[0]


@pytest.mark.parametrize("role", ["superuser", Role.ADMINISTRATOR])
def test_a_new_key_is_shown_once(enter: Callable[[str], Client], acme: Organisation, role: str) -> None:
    client = enter(role)
    answered = client.post(KEYS + "add/", {"organisation": str(acme.pk), "name": "billing"})
    key = shown_key(answered.content.decode())
    row = APIKey.objects.get(name="billing")
    assert bytes(row.digest) == credentials.digest(key)
    assert "no-store" in answered["Cache-Control"]
    assert key not in str(answered.cookies)
    for path in (KEYS, f"{KEYS}{row.pk}/change/", f"{KEYS}{row.pk}/history/", "/admin/"):
        page = client.get(path).content.decode()
        assert key not in page
        assert credentials.digest(key).hex() not in page
    assert row.prefix in client.get(KEYS).content.decode()
    assert all(key not in str(session.get_decoded()) for session in Session.objects.all())


def test_the_form_of_a_key_says_what_empty_limits_mean_and_leads_only_to_the_key(
    enter: Callable[[str], Client], acme: Organisation
) -> None:
    client = enter(Role.ADMINISTRATOR)
    form = client.get(KEYS + "add/").content.decode()
    assert unescape(form).count("Empty: the organisation's limit applies.") == 2
    assert "Empty: never." in form
    assert 'name="_save"' in form
    assert not re.search("_addanother|_continue", form)
    # A hand-made request for another page gets the key all the same.
    assert shown_key(add_key(client, acme, _addanother="1"))


def test_a_key_is_revoked_after_a_question(enter: Callable[[str], Client], acme: Organisation) -> None:
    row, key = people.api_key(acme)
    client = enter(Role.ADMINISTRATOR)
    question = client.get(f"{KEYS}{row.pk}/revoke/")
    assert question.status_code == 200
    row.refresh_from_db()
    assert row.revoked_at is None
    change = f"{KEYS}{row.pk}/change/"
    assert "/revoke/" in client.get(change).content.decode()
    assert client.post(f"{KEYS}{row.pk}/revoke/").status_code == 302
    assert "/revoke/" not in client.get(change).content.decode()
    row.refresh_from_db()
    assert row.revoked_at is not None
    assert Client().get("/api/conversations", headers=people.bearer(key)).status_code == 401


@pytest.mark.parametrize("asynchronous", [False, True])
def test_the_history_names_who_changed_what(acme: Organisation, asynchronous: bool) -> None:
    operator = people.superuser(acme)
    fields = {"name": "Acme 2", "slug": "acme", "requests_per_minute": "7", "concurrent_answers": "1"}
    path = f"{ORGANISATIONS}{acme.pk}/change/"
    if asynchronous:  # on this thread, where the test's transaction is
        client = AsyncClient()
        client.force_login(operator)
        async_to_sync(client.post)(path, fields)
    else:
        enter_as(operator).post(path, fields)
    entry = LogEntry.objects.get(object_repr="Acme 2")
    assert entry.actor == operator
    assert entry.changes_dict["requests_per_minute"] == ["100", "7"]


def enter_as(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


def test_a_keys_digest_owner_and_revocation_do_not_change(enter: Callable[[str], Client], acme: Organisation) -> None:
    row, _ = people.api_key(acme)
    before = APIKey.objects.values().get(pk=row.pk)
    forged = {"name": "renamed", "digest": "00", "prefix": "bsk_forged", "revoked_at": "", "organisation": ""}
    enter("superuser").post(f"{KEYS}{row.pk}/change/", forged)
    after = APIKey.objects.values().get(pk=row.pk)
    assert after["name"] == "renamed"
    assert {**after, "name": before["name"]} == before


def test_a_key_with_more_than_the_organisation_has_is_refused_beside_the_field(
    enter: Callable[[str], Client], acme: Organisation
) -> None:
    page = add_key(enter(Role.ADMINISTRATOR), acme, requests_per_minute="101")
    assert "At most 100" in page
    assert not APIKey.objects.exists()


def test_keys_users_and_organisations_are_never_deleted(enter: Callable[[str], Client], acme: Organisation) -> None:
    row, _ = people.api_key(acme)
    client = enter("superuser")
    user = people.member(acme)
    for path in (f"{KEYS}{row.pk}/", f"{USERS}{user.pk}/", f"{ORGANISATIONS}{acme.pk}/"):
        assert client.post(f"{path}delete/", {"post": "yes"}).status_code == 403


def test_an_administrator_sees_their_own_organisation_only(
    enter: Callable[[str], Client], acme: Organisation, globex: Organisation
) -> None:
    stranger = people.member(globex, username="stranger")
    theirs, _ = people.api_key(globex, name="their key")
    client = enter(Role.ADMINISTRATOR)
    for path in (KEYS, USERS, ORGANISATIONS, KEYS + "add/", USERS + "add/"):
        page = client.get(path).content.decode()
        assert not re.search("Globex|stranger|their key", page), path
    for path in (f"{KEYS}{theirs.pk}/", f"{USERS}{stranger.pk}/", f"{ORGANISATIONS}{globex.pk}/"):
        assert client.get(f"{path}change/").status_code == 302
        assert client.get(f"{path}history/").status_code in (302, 404)
    assert client.post(f"{KEYS}{theirs.pk}/revoke/").status_code == 403
    assert client.post(f"{USERS}{stranger.pk}/password/", {}).status_code in (302, 404)


def test_an_administrator_creates_no_key_for_another_organisation(
    enter: Callable[[str], Client], globex: Organisation
) -> None:
    assert "Select a valid choice" in add_key(enter(Role.ADMINISTRATOR), globex)
    assert not APIKey.objects.exists()


def test_the_operator_sees_every_organisation(
    enter: Callable[[str], Client], acme: Organisation, globex: Organisation
) -> None:
    people.api_key(globex, name="their key")
    client = enter("superuser")
    assert "Globex" in client.get(ORGANISATIONS).content.decode()
    assert "their key" in client.get(KEYS).content.decode()


def new_user(client: Client, organisation: Organisation, role: str = Role.OFFICER) -> int:
    fields = {
        "username": "newcomer",
        "usable_password": "true",
        "password1": people.PASSWORD,
        "password2": people.PASSWORD,
        "member-TOTAL_FORMS": "1",
        "member-INITIAL_FORMS": "0",
        "member-0-organisation": str(organisation.pk),
        "member-0-role": role,
        "is_superuser": "on",
        "is_staff": "on",
    }
    return client.post(USERS + "add/", fields).status_code


@pytest.mark.parametrize(("role", "is_staff"), [(Role.OFFICER, True), (Role.END_USER, False)])
def test_an_administrator_adds_a_user_with_a_role(
    enter: Callable[[str], Client], acme: Organisation, role: str, is_staff: bool
) -> None:
    client = enter(Role.ADMINISTRATOR)
    assert new_user(client, acme, role) == 302
    user = User.objects.get(username="newcomer")
    assert (user.member.role, user.is_staff, user.is_superuser) == (role, is_staff, False)
    assert client.get(f"{USERS}{user.pk}/change/").status_code == 200


def test_an_administrator_adds_no_user_elsewhere(enter: Callable[[str], Client], globex: Organisation) -> None:
    assert new_user(enter(Role.ADMINISTRATOR), globex) == 200
    assert not User.objects.filter(username="newcomer").exists()


def change_user(client: Client, user: User, **fields: str) -> int:
    member = user.member
    form = {
        "username": user.username,
        "is_active": "on",
        "member-TOTAL_FORMS": "1",
        "member-INITIAL_FORMS": "1",
        "member-0-id": str(member.pk),
        "member-0-user": str(user.pk),
        "member-0-organisation": str(member.organisation_id),
        "member-0-role": member.role,
    }
    return client.post(f"{USERS}{user.pk}/change/", form | fields).status_code


def test_an_administrator_makes_nobody_a_superuser(enter: Callable[[str], Client], acme: Organisation) -> None:
    user = people.member(acme)
    assert change_user(enter(Role.ADMINISTRATOR), user, is_superuser="on", is_staff="on") == 302
    user.refresh_from_db()
    assert (user.is_superuser, user.is_staff) == (False, False)


def test_an_administrator_does_not_touch_a_superuser(enter: Callable[[str], Client], acme: Organisation) -> None:
    operator = people.superuser(acme)
    client = enter(Role.ADMINISTRATOR)
    assert client.get(f"{USERS}{operator.pk}/change/").status_code == 200
    assert change_user(client, operator, username="taken") == 403
    forged = {"password1": "taken-over-1", "password2": "taken-over-1"}
    assert client.post(f"{USERS}{operator.pk}/password/", forged).status_code == 403


def test_a_role_is_changed_in_the_users_page(enter: Callable[[str], Client], acme: Organisation) -> None:
    user = people.member(acme)
    assert change_user(enter(Role.ADMINISTRATOR), user, **{"member-0-role": Role.OFFICER}) == 302
    user.refresh_from_db()
    assert user.is_staff
    assert Member.objects.get(user=user).role == Role.OFFICER


def test_an_administrator_does_not_change_the_own_role(acme: Organisation, client: Client) -> None:
    administrator = people.member(acme, Role.ADMINISTRATOR)
    client.force_login(administrator)
    change_user(client, administrator, **{"member-0-role": Role.END_USER})
    assert Member.objects.get(user=administrator).role == Role.ADMINISTRATOR


def test_an_administrator_changes_no_limit_of_the_organisation(
    enter: Callable[[str], Client], acme: Organisation
) -> None:
    client = enter(Role.ADMINISTRATOR)
    assert client.get(f"{ORGANISATIONS}{acme.pk}/change/").status_code == 200
    assert client.post(f"{ORGANISATIONS}{acme.pk}/change/", {"requests_per_minute": "9999"}).status_code == 403
    assert client.get(f"{ORGANISATIONS}add/").status_code == 403


def test_an_officer_looks_and_changes_nothing(enter: Callable[[str], Client], acme: Organisation) -> None:
    row, _ = people.api_key(acme)
    user = people.member(acme)
    client = enter(Role.OFFICER)
    for path in (KEYS, USERS, ORGANISATIONS, f"{KEYS}{row.pk}/change/", f"{USERS}{user.pk}/change/"):
        assert client.get(path).status_code == 200, path
    for path in (
        f"{KEYS}add/",
        f"{USERS}add/",
        f"{ORGANISATIONS}add/",
        f"{KEYS}{row.pk}/change/",
        f"{KEYS}{row.pk}/revoke/",
        f"{KEYS}{row.pk}/delete/",
        f"{USERS}{user.pk}/change/",
        f"{USERS}{user.pk}/password/",
        f"{ORGANISATIONS}{acme.pk}/change/",
    ):
        assert client.post(path, {"name": "x"}).status_code == 403, path


@pytest.mark.parametrize("role", [Role.OFFICER, Role.ADMINISTRATOR])
@pytest.mark.parametrize("path", [HISTORY, TASKS])
def test_what_spans_organisations_is_the_operators(enter: Callable[[str], Client], role: str, path: str) -> None:
    assert enter(role).get(path).status_code == 403


@pytest.mark.parametrize("path", [HISTORY, TASKS])
def test_the_operator_sees_changes_and_schedules(enter: Callable[[str], Client], path: str) -> None:
    assert enter("superuser").get(path).status_code == 200


def test_the_history_shows_before_and_after_in_the_forms_words(
    enter: Callable[[str], Client], acme: Organisation
) -> None:
    acme.concurrent_answers = 7
    acme.save()
    change = LogEntry.objects.filter(object_pk=str(acme.pk)).first()
    assert change is not None
    client = enter("superuser")
    page = client.get(f"{HISTORY}{change.pk}/change/").content.decode()
    assert re.search(r"Answers at once</th><td>64</td><td>7</td>", page)
    for method in ("change", "delete"):
        assert client.post(f"{HISTORY}{change.pk}/{method}/", {"post": "yes"}).status_code == 403


@pytest.mark.parametrize(
    "stock",
    [
        "auth/group",
        "auditlog/logentry",
        "django_celery_beat/solarschedule",
        "django_celery_beat/clockedschedule",
    ],
)
def test_what_packages_bring_beside_the_products_own_is_not_offered(enter: Callable[[str], Client], stock: str) -> None:
    assert enter("superuser").get(f"/admin/{stock}/").status_code == 404


def test_a_periodic_task_is_made_in_the_consoles_form(enter: Callable[[str], Client]) -> None:
    interval = IntervalSchedule.objects.create(every=15, period="seconds")
    client = enter("superuser")
    assert "<script>" not in client.get(f"{TASKS}add/").content.decode()
    fields = {"name": "tidy", "task": "inference.reconcile_exchanges", "interval": str(interval.pk), "enabled": "on"}
    assert client.post(f"{TASKS}add/", fields | {"args": "[]", "kwargs": "{}"}).status_code == 302
    row = PeriodicTask.objects.get(name="tidy")
    assert (row.task, row.schedule.run_every.total_seconds()) == ("inference.reconcile_exchanges", 15)
    assert client.get(f"{TASKS}{row.pk}/change/").status_code == 200


@pytest.mark.parametrize("path", [KEYS, USERS, ORGANISATIONS])
def test_a_list_takes_as_many_queries_for_many_rows_as_for_few(enter: Callable[[str], Client], path: str) -> None:
    client = enter("superuser")

    def rows(count: int) -> None:
        for _ in range(count):
            of = people.organisation()
            people.api_key(of, created_by=people.member(of))

    def queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            assert client.get(path).status_code == 200
        return len(captured)

    rows(2)
    queries()
    few = queries()
    rows(10)
    assert queries() == few


@pytest.mark.parametrize("lookup", ["digest__startswith=a", "password__startswith=pbkdf2"])
def test_secrets_cannot_be_guessed_through_filters(enter: Callable[[str], Client], lookup: str) -> None:
    client = enter("superuser")
    path = KEYS if lookup.startswith("digest") else USERS
    assert client.get(f"{path}?{lookup}").status_code == 400

"""Who may create and revoke keys and give roles, and what the history of it holds."""

from __future__ import annotations

import json

import pytest
from auditlog.models import LogEntry
from django.core.exceptions import PermissionDenied, ValidationError

from console.accounts import credentials
from console.accounts.actions.assign_role import assign_role
from console.accounts.actions.create_api_key import create_api_key
from console.accounts.actions.revoke_api_key import revoke_api_key
from console.accounts.history import acting
from console.accounts.models import APIKey, Member, Organisation, Role, User
from tests.console import people

pytestmark = pytest.mark.django_db


@pytest.fixture
def acme() -> Organisation:
    return people.organisation("Acme", requests_per_minute=100, concurrent_answers=8)


@pytest.fixture
def administrator(acme: Organisation) -> User:
    return people.member(acme, Role.ADMINISTRATOR)


def test_it_returns_a_key_and_stores_its_digest_only(acme: Organisation, administrator: User) -> None:
    key = create_api_key(administrator, APIKey(organisation=acme, name="billing"))
    row = APIKey.objects.get(name="billing")
    assert bytes(row.digest) == credentials.digest(key)
    assert row.prefix == key[:12]
    assert row.created_by == administrator
    assert all(key not in str(value) for value in APIKey.objects.values().get(pk=row.pk).values())


@pytest.mark.parametrize("role", [Role.OFFICER, Role.DEVELOPER, Role.END_USER])
def test_only_administrators_create_and_revoke_keys(acme: Organisation, role: str) -> None:
    someone = people.member(acme, role)
    row, _ = people.api_key(acme)
    with pytest.raises(PermissionDenied):
        create_api_key(someone, APIKey(organisation=acme, name="mine"))
    with pytest.raises(PermissionDenied):
        revoke_api_key(someone, row.pk)


def test_an_administrator_has_no_say_in_another_organisation(administrator: User) -> None:
    globex = people.organisation("Globex")
    row, _ = people.api_key(globex)
    stranger = people.member(globex)
    with pytest.raises(PermissionDenied):
        create_api_key(administrator, APIKey(organisation=globex, name="theirs"))
    with pytest.raises(PermissionDenied):
        revoke_api_key(administrator, row.pk)
    with pytest.raises(PermissionDenied):
        assign_role(administrator, stranger, globex, Role.ADMINISTRATOR)


def test_an_inactive_administrator_can_do_nothing(acme: Organisation, administrator: User) -> None:
    administrator.is_active = False
    with pytest.raises(PermissionDenied):
        create_api_key(administrator, APIKey(organisation=acme, name="late"))


def test_a_key_gets_no_more_than_the_organisation_has(acme: Organisation, administrator: User) -> None:
    with pytest.raises(ValidationError) as refused:
        create_api_key(administrator, APIKey(organisation=acme, name="greedy", requests_per_minute=101))
    assert "requests_per_minute" in refused.value.message_dict
    assert not APIKey.objects.exists()


def test_the_operator_may_give_a_key_more(acme: Organisation) -> None:
    create_api_key(people.superuser(acme), APIKey(organisation=acme, name="big", requests_per_minute=10_000))
    assert APIKey.objects.get().requests_per_minute == 10_000


def test_a_key_revoked_twice_keeps_its_first_time(acme: Organisation, administrator: User) -> None:
    row, _ = people.api_key(acme)
    first = revoke_api_key(administrator, row.pk).revoked_at
    assert first is not None
    assert revoke_api_key(administrator, row.pk).revoked_at == first


@pytest.mark.parametrize(
    ("role", "is_staff"),
    [(Role.ADMINISTRATOR, True), (Role.OFFICER, True), (Role.DEVELOPER, False), (Role.END_USER, False)],
)
def test_the_role_decides_who_enters_the_admin(
    acme: Organisation, administrator: User, role: str, is_staff: bool
) -> None:
    user = people.member(acme, Role.OFFICER)
    assign_role(administrator, user, acme, role)
    assert User.objects.get(pk=user.pk).is_staff is is_staff
    assert Member.objects.get(user=user).role == role


def test_nobody_changes_their_own_role(acme: Organisation, administrator: User) -> None:
    with pytest.raises(PermissionDenied):
        assign_role(administrator, administrator, acme, Role.OFFICER)


def test_an_administrator_does_not_change_a_superuser(acme: Organisation, administrator: User) -> None:
    with pytest.raises(PermissionDenied):
        assign_role(administrator, people.superuser(acme), acme, Role.END_USER)


def test_an_administrator_does_not_take_a_member_of_another_organisation(
    acme: Organisation, administrator: User
) -> None:
    stranger = people.member(people.organisation("Globex"))
    with pytest.raises(PermissionDenied):
        assign_role(administrator, stranger, acme, Role.END_USER)


def test_the_history_names_the_actor_and_holds_no_secret(acme: Organisation, administrator: User) -> None:
    LogEntry.objects.all().delete()
    key = create_api_key(administrator, APIKey(organisation=acme, name="billing"))
    revoke_api_key(administrator, APIKey.objects.get().pk)
    with acting(administrator):
        administrator.set_password("another password")
        administrator.save()
    entries = list(LogEntry.objects.all())
    assert {entry.actor for entry in entries} == {administrator}
    kept = json.dumps([[entry.changes, entry.object_repr, entry.serialized_data] for entry in entries])
    assert "revoked_at" in kept
    for secret in ("digest", "password", key, credentials.digest(key).hex()):
        assert secret not in kept


def test_acting_ends_where_it_began(acme: Organisation, administrator: User) -> None:
    other = people.member(acme, Role.ADMINISTRATOR)
    with acting(administrator):
        with acting(other):
            people.organisation("Inner")
        people.organisation("Outer")
    people.organisation("System")
    actors = dict(LogEntry.objects.filter(content_type__model="organisation").values_list("object_repr", "actor_id"))
    assert actors == {"Acme": None, "Inner": other.pk, "Outer": administrator.pk, "System": None}

"""Make the accounts of an installation that shows itself: one organisation, three people and a key."""

from __future__ import annotations

from dataclasses import dataclass, field

from django.db import transaction

from console.accounts import credentials
from console.accounts.actions.assign_role import assign_role
from console.accounts.actions.create_api_key import create_api_key
from console.accounts.actions.revoke_api_key import revoke_api_key
from console.accounts.models import APIKey, Member, Organisation, Role, User

ORGANISATION = "Demo"
KEY_NAME = "Demo key"


@dataclass(frozen=True, slots=True)
class Login:
    username: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Accounts:
    administrator: Login
    officer: Login
    user: Login
    api_key: str = field(repr=False)


@transaction.atomic
def seed_accounts(accounts: Accounts) -> None:
    """Bring the accounts to this state. What is there already stays; a password or key that differs is replaced."""
    # One person runs this installation, nobody could approve what they propose, and its model comes without a set.
    defaults = {"name": ORGANISATION, "four_eyes": False, "requires_evaluation": False}
    organisation, _ = Organisation.objects.get_or_create(slug="demo", defaults=defaults)
    operator = _user(accounts.administrator, is_superuser=True)
    people = {
        Role.ADMINISTRATOR: operator,
        Role.OFFICER: _user(accounts.officer),
        Role.END_USER: _user(accounts.user),
    }
    for role, user in people.items():
        if not Member.objects.filter(user=user).exists():
            assign_role(operator, user, organisation, role)
    _key(operator, organisation, accounts.api_key)


def _user(login: Login, *, is_superuser: bool = False) -> User:
    user = User.objects.filter(username=login.username).first() or User(username=login.username)
    if user._state.adding or not user.check_password(login.password):
        user.set_password(login.password)
        user.is_superuser = user.is_superuser or is_superuser
        user.full_clean(exclude=["password"])
        user.save()
    return user


def _key(operator: User, organisation: Organisation, key: str) -> None:
    """The key of the environment. Another one that was put there before is no longer anybody's."""
    digest = credentials.digest(key)
    if APIKey.objects.filter(digest=digest).exists():
        return
    for earlier in APIKey.objects.filter(organisation=organisation, name=KEY_NAME, revoked_at=None):
        revoke_api_key(operator, earlier.pk)
    create_api_key(operator, APIKey(organisation=organisation, name=KEY_NAME), key=key)

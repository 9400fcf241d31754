"""Run inside `manage.py shell`: changes to keys and people, through the product's own actions where it has them."""

from django.contrib.sessions.models import Session
from django.utils.timezone import now

from console.accounts import credentials
from console.accounts.models import APIKey, Member, Organisation, Role, User


class keys:
    @staticmethod
    def create(name: str, organisation: Organisation | None = None) -> str:
        key = credentials.new_key()
        APIKey.objects.create(
            organisation=organisation or Organisation.objects.get(slug="demo"),
            name=name,
            prefix=credentials.prefix(key),
            digest=credentials.digest(key),
        )
        return key

    @staticmethod
    def create_elsewhere() -> str:
        other, _ = Organisation.objects.get_or_create(slug="elsewhere", defaults={"name": "Elsewhere"})
        return keys.create("elsewhere", other)

    @staticmethod
    def revoke(name: str) -> int:
        return APIKey.objects.filter(name=name).update(revoked_at=now())

    @staticmethod
    def expire(name: str) -> int:
        return APIKey.objects.filter(name=name).update(expires_at=now())

    @staticmethod
    def create_in(slug: str) -> str:
        """A key named like the organisation that it is the only one of."""
        return keys.create(slug, Organisation.objects.create(slug=slug, name=slug))

    @staticmethod
    def close_organisation(slug: str) -> int:
        return Organisation.objects.filter(slug=slug).update(is_active=False)


class people:
    @staticmethod
    def create(name: str) -> str:
        user = User.objects.create_user(name, password="guest-password-17")
        Member.objects.create(organisation=Organisation.objects.get(slug="demo"), user=user, role=Role.END_USER)
        return name

    @staticmethod
    def deactivate(name: str) -> int:
        return User.objects.filter(username=name).update(is_active=False)

    @staticmethod
    def change_password(name: str) -> None:
        user = User.objects.get(username=name)
        user.set_password("another-password-17")
        user.save()

    @staticmethod
    def sign_out(name: str) -> int:
        user = str(User.objects.get(username=name).pk)
        mine = [s.pk for s in Session.objects.all() if s.get_decoded().get("_auth_user_id") == user]
        return Session.objects.filter(pk__in=mine).delete()[0]

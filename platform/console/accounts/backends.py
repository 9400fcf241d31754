"""Signing in with a password, and permissions that come from the role alone."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.backends import ModelBackend
from django.contrib.auth.models import AnonymousUser
from django.db.models import Model

from console.accounts.models import User
from console.accounts.roles import PERMISSIONS


class RoleBackend(ModelBackend):
    """Members of an inactive organisation are signed out at once, as users who are inactive are."""

    def get_user(self, user_id: Any) -> User | None:
        user = User.objects.select_related("member__organisation").filter(pk=user_id).first()
        return user if self.user_can_authenticate(user) else None

    def user_can_authenticate(self, user: Any) -> bool:
        if user is None or not super().user_can_authenticate(user):
            return False
        member = getattr(user, "member", None)
        return member is None or member.organisation.is_active

    def get_all_permissions(self, user_obj: Any, obj: Model | None = None) -> set[str]:
        if isinstance(user_obj, AnonymousUser) or not user_obj.is_active or obj is not None:
            return set()
        member = getattr(user_obj, "member", None)
        return set() if member is None else set(PERMISSIONS[member.role])

    def get_user_permissions(self, user_obj: Any, obj: Model | None = None) -> set[str]:
        return set()

    def get_group_permissions(self, user_obj: Any, obj: Model | None = None) -> set[str]:
        return set()

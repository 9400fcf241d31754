"""Rows that go through steps in the console: one check of who may take them, and only the possible ones offered."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, ClassVar

from django.contrib.admin.utils import unquote
from django.contrib.auth.models import AbstractUser
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest

from compliance.access import ModelAdmin


class SteppedAdmin(ModelAdmin):
    """Each action of a row's page is a step, named by its `url_path`."""

    step_permission: ClassVar[str]
    # Actions that change nothing, by `url_path`: for everybody who may see the row.
    looks: ClassVar[frozenset[str]] = frozenset()

    def possible_steps(self, row: Any) -> Collection[str]:
        """What can be done with this row where it is."""
        raise NotImplementedError

    def get_actions_detail(self, request: HttpRequest, object_id: Any) -> list[Any]:
        row = self.get_object(request, unquote(str(object_id)))
        may = row is not None and request.user.has_perm(self.step_permission)
        steps = self.possible_steps(row) if may else ()
        offered = super().get_actions_detail(request, object_id)  # type: ignore[misc]
        return [one for one in offered if one.path in steps or one.path in self.looks]

    def row_for_step(self, request: HttpRequest, object_id: str) -> tuple[Any, AbstractUser]:
        """The row and who takes the step. Raises PermissionDenied."""
        row, user = self.get_object(request, unquote(object_id)), request.user
        if row is None or not isinstance(user, AbstractUser) or not user.has_perm(self.step_permission):
            raise PermissionDenied
        return row, user

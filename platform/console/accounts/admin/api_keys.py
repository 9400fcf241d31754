"""API keys: created and shown once, revoked, never read again and never deleted."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.contrib import admin, messages
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.db.models import Model
from django.forms import ModelForm
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.utils import timezone
from unfold.decorators import action
from unfold.enums import ActionVariant

from compliance.access import ScopedAdmin
from console.accounts.actions.create_api_key import LIMITS, check_limits, create_api_key
from console.accounts.actions.revoke_api_key import revoke_api_key
from console.accounts.admin.own_organisation import OwnOrganisation, actor_of
from console.accounts.models import APIKey, User, check_team

_SHOWN_KEY = "bursar.shown_key"


class APIKeyForm(ModelForm):  # type: ignore[type-arg]
    """Says beside the field when a limit is more than the one who gives it has."""

    actor: User

    def clean(self) -> dict[str, Any] | None:
        cleaned = super().clean() or self.cleaned_data
        organisation = cleaned.get("organisation") or (
            None if self.instance._state.adding else self.instance.organisation
        )
        if organisation is not None:
            check_limits(self.actor, organisation, {name: cleaned.get(name) for name in LIMITS})
            check_team(cleaned.get("team"), organisation)
        return cleaned


@admin.register(APIKey)
class APIKeyAdmin(OwnOrganisation, ScopedAdmin):
    form = APIKeyForm
    given_fields = ("organisation", "team", "name", *LIMITS, "expires_at")
    shown_fields = ("prefix", "state", "created_by", "created_at", "revoked_at")
    list_display = ["name", "prefix", "organisation", "state", "created_by", "created_at", "expires_at"]
    list_select_related = ["organisation", "created_by"]
    list_filter = ["organisation", ("revoked_at", admin.EmptyFieldListFilter)]
    search_fields = ["name", "prefix"]
    date_hierarchy = "created_at"
    actions_detail = ["revoke"]

    def get_fields(self, request: HttpRequest, obj: Model | None = None) -> tuple[str, ...]:
        return self.given_fields if obj is None else self.given_fields + self.shown_fields

    def get_readonly_fields(self, request: HttpRequest, obj: Model | None = None) -> tuple[str, ...]:
        return () if obj is None else ("organisation", *self.shown_fields)

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        form: Any = super().get_form(request, obj, change, **kwargs)
        form.actor = request.user  # the class is made anew for each request
        return form

    def lookup_allowed(self, lookup: str, value: Any, request: HttpRequest) -> bool:
        return not lookup.startswith("digest") and super().lookup_allowed(lookup, value, request)

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False  # revoked instead: the record refers to it

    def save_model(self, request: HttpRequest, obj: APIKey, form: ModelForm[Any], change: bool) -> None:
        if change:
            super().save_model(request, obj, form, change)
        else:
            request.META[_SHOWN_KEY] = create_api_key(actor_of(request), obj)

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> Any:
        # A new key is shown once, on the page that follows: no other page may follow instead.
        only_save = {} if object_id else {"show_save_and_add_another": False, "show_save_and_continue": False}
        return super().changeform_view(request, object_id, form_url, {**only_save, **(extra_context or {})})

    def response_add(self, request: HttpRequest, obj: APIKey, post_url_continue: str | None = None) -> HttpResponse:
        """The page that shows the key: in this response, and in no message that would be stored until read."""
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "title": "Copy the API key now",
            "row": obj,
            "key": request.META.pop(_SHOWN_KEY),
        }
        return TemplateResponse(request, "admin/accounts/apikey/created.html", context)

    def get_actions_detail(self, request: HttpRequest, object_id: str) -> list[Any]:
        row = self.get_object(request, unquote(object_id))
        if row is None or row.revoked_at is not None:
            return []
        return super().get_actions_detail(request, object_id)  # type: ignore[misc,no-any-return]

    @action(  # type: ignore[untyped-decorator]
        description="Revoke", permissions=["change"], icon="block", variant=ActionVariant.DANGER
    )
    def revoke(self, request: HttpRequest, object_id: str) -> HttpResponse:
        row = self.get_object(request, unquote(object_id))
        if row is None:
            raise PermissionDenied
        if request.method != "POST":
            return self._ask_to_revoke(request, row)
        revoke_api_key(actor_of(request), UUID(str(row.pk)))
        self.message_user(request, f"{row} is revoked.", messages.SUCCESS)
        return redirect("admin:accounts_apikey_change", row.pk)

    def _ask_to_revoke(self, request: HttpRequest, row: APIKey) -> HttpResponse:
        context = {**self.admin_site.each_context(request), "opts": self.opts, "title": "Revoke API key?", "row": row}
        return TemplateResponse(request, "admin/accounts/apikey/revoke.html", context)

    @admin.display
    def state(self, row: APIKey) -> str:
        if row.revoked_at is not None:
            return "Revoked"
        if row.expires_at is not None and row.expires_at <= timezone.now():
            return "Expired"
        return "Active"

"""Users and their roles. An organisation's administrator manages its members, and no superuser."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.db.models import Model
from django.forms import ModelForm
from django.http import HttpRequest
from unfold.forms import AdminPasswordChangeForm, UserChangeForm, UserCreationForm

from compliance.access import ScopedAdmin, TabularInline, sees_everything
from console.accounts.actions.assign_role import assign_role
from console.accounts.admin.own_organisation import OwnOrganisation, actor_of
from console.accounts.models import Member, User, check_team
from console.accounts.roles import STAFF


class MemberForm(ModelForm):  # type: ignore[type-arg]
    """A new membership is saved also when it is what the form proposed."""

    def clean(self) -> dict[str, Any] | None:
        cleaned = super().clean() or self.cleaned_data
        if (organisation := cleaned.get("organisation")) is not None:
            check_team(cleaned.get("team"), organisation)
        return cleaned

    def has_changed(self) -> bool:
        proposed = self.instance._state.adding and bool(self.data.get(self.add_prefix("organisation")))
        return proposed or super().has_changed()


class MemberInline(OwnOrganisation, TabularInline):
    model = Member
    form = MemberForm
    fields = ["organisation", "role", "team"]
    extra = 1
    max_num = 1
    can_delete = False
    verbose_name_plural = "Role"

    def get_min_num(self, request: HttpRequest, obj: Model | None = None, **kwargs: Any) -> int:
        # Without a place in the organisation its administrator would not see the new user again.
        return 0 if sees_everything(request.user) else 1

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        is_own = obj is not None and obj.pk == request.user.pk
        return super().has_change_permission(request, obj) and (sees_everything(request.user) or not is_own)


@admin.register(User)
class UserAdmin(DjangoUserAdmin, ScopedAdmin):  # type: ignore[type-arg]
    form = UserChangeForm
    add_form = UserCreationForm
    change_password_form = AdminPasswordChangeForm
    inlines = [MemberInline]
    organisation_path = "member__organisation"
    wide_filters = ("member__organisation",)
    list_display = ["username", "email", "organisation", "role", "is_active", "last_login"]
    list_select_related = ["member__organisation"]
    list_filter = ["is_active", "member__role", "member__organisation"]
    search_fields = ["username", "first_name", "last_name", "email"]
    filter_horizontal = ()
    readonly_fields = ["enters_console", "last_login", "date_joined"]
    fieldsets = [
        (None, {"fields": ["username", "password"]}),
        ("Person", {"fields": ["first_name", "last_name", "email"]}),
        ("Access", {"fields": ["is_active", "enters_console", "last_login", "date_joined"]}),
    ]
    superuser_fieldsets = [
        *fieldsets[:2],
        ("Access", {"fields": ["is_active", "is_superuser", "enters_console", "last_login", "date_joined"]}),
    ]

    def get_fieldsets(self, request: HttpRequest, obj: Model | None = None) -> Any:
        if obj is not None and sees_everything(request.user):
            return self.superuser_fieldsets
        return super().get_fieldsets(request, obj)

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        if isinstance(obj, User) and obj.is_superuser and not sees_everything(request.user):
            return False
        return super().has_change_permission(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False  # made inactive instead: the record refers to them

    def save_model(self, request: HttpRequest, obj: User, form: ModelForm[Any], change: bool) -> None:
        member = getattr(obj, "member", None) if change else None
        obj.is_staff = obj.is_superuser or (member is not None and member.role in STAFF)
        super().save_model(request, obj, form, change)

    def save_formset(self, request: HttpRequest, form: ModelForm[Any], formset: Any, change: bool) -> None:
        for member in formset.save(commit=False):
            assign_role(actor_of(request), form.instance, member.organisation, member.role, team=member.team)

    @admin.display(description="Enters the console", boolean=True)
    def enters_console(self, user: User) -> bool:
        return user.is_staff

    @admin.display(ordering="member__organisation__name")
    def organisation(self, user: User) -> str:
        member = getattr(user, "member", None)
        return member.organisation.name if member else "-"

    @admin.display(ordering="member__role")
    def role(self, user: User) -> str:
        if user.is_superuser:
            return "Superuser"
        member = getattr(user, "member", None)
        return member.get_role_display() if member else "-"

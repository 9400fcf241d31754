"""The rule sets in the console: drafts are edited, versions activated and gone back to, and requests explained."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from uuid import UUID

from django.contrib import admin, messages
from django.contrib.auth.models import AbstractUser
from django.core.exceptions import PermissionDenied
from django.db.models import Count, Model, QuerySet
from django.forms import ModelForm, Select
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from unfold.decorators import action
from unfold.enums import ActionVariant
from unfold.widgets import INPUT_CLASSES, SELECT_CLASSES

from inference.errors import Refusal
from inference.four_eyes import SecondPersonNeeded
from inference.routing import actions
from inference.routing.explaining import explain_now, recorded_explanation
from inference.routing.models import RoutingRule, RoutingRuleSet, RuleSetState
from inference.routing.queries import problems_of
from inference.routing.request_form import RequestForm
from inference.routing.wording import extras, score, standing, verdicts
from inference.stepped_admin import SteppedAdmin

if TYPE_CHECKING:  # unfold has no types; its classes behave as Django's
    from django.contrib.admin import StackedInline as _StackedInline

    StackedInline = _StackedInline[Any, Any]
else:
    from unfold.admin import StackedInline

# What can be done with a version, by its state.
STEPS: dict[str, tuple[str, ...]] = {
    RuleSetState.DRAFT: ("propose",),
    RuleSetState.PROPOSED: ("activate", "withdraw"),
    RuleSetState.ACTIVE: ("edit_copy",),
    RuleSetState.SUPERSEDED: ("revert", "edit_copy"),
}


class RuleInline(StackedInline):
    model = RoutingRule
    extra = 0
    fields = ["position", "name", "conditions", "route"]
    ordering_field = "position"
    verbose_name_plural = "Rules, in order: the first that a request meets decides"

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return _may_edit(request, obj)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return _may_edit(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return _may_edit(request, obj)


@admin.register(RoutingRuleSet)
class RoutingRuleSetAdmin(SteppedAdmin):
    step_permission = actions.PERMISSION
    list_display = ["version", "state", "note", "rule_count", "proposed_by", "activated_by", "effective_from"]
    list_filter = ["state"]
    list_select_related = ["proposed_by", "activated_by"]
    list_fullwidth = True
    search_fields = ["note", "rules__name"]
    given_fields = ("note", "aliases")
    shown_fields = (
        *("version", "state", "problems", "proposed_by", "proposed_at", "activated_by"),
        *("effective_from", "effective_until", "reverts_to", "created_at"),
    )
    inlines = [RuleInline]
    actions_list = ["explain"]
    actions_detail = ["propose", "activate", "withdraw", "revert", "edit_copy"]

    def get_queryset(self, request: HttpRequest) -> QuerySet[RoutingRuleSet]:
        rows: QuerySet[RoutingRuleSet] = super().get_queryset(request)
        return rows.annotate(rule_count=Count("rules"))

    def get_fields(self, request: HttpRequest, obj: Model | None = None) -> tuple[str, ...]:
        return self.given_fields if obj is None else self.given_fields + self.shown_fields

    def get_readonly_fields(self, request: HttpRequest, obj: Model | None = None) -> tuple[str, ...]:
        return () if obj is None else self.shown_fields

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        is_row = isinstance(obj, RoutingRuleSet)
        return super().has_change_permission(request) and (not is_row or obj.state == RuleSetState.DRAFT)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        # A version that was ever in force, or may be soon, is part of the history.
        return isinstance(obj, RoutingRuleSet) and obj.state == RuleSetState.DRAFT and _may_edit(request, obj)

    def save_model(self, request: HttpRequest, obj: RoutingRuleSet, form: ModelForm[Any], change: bool) -> None:
        if not change:
            obj.version = actions.next_version()
        super().save_model(request, obj, form, change)

    @admin.display(description="Rules", ordering="rule_count")
    def rule_count(self, row: RoutingRuleSet) -> int:
        return row.rule_count  # type: ignore[attr-defined,no-any-return]

    @admin.display(description="Problems")
    def problems(self, row: RoutingRuleSet) -> SafeString | str:
        found = problems_of(row)
        if not found:
            return "none"
        rows = ((problem.rule or "rule set", problem.field, problem.message) for problem in found)
        body = format_html_join("", "<tr><td>{}</td><td>{}</td><td>{}</td></tr>", rows)
        head = "<tr><th>Rule</th><th>Field</th><th>Problem</th></tr>"
        return format_html('<div class="scrolls"><table class="changes">{}{}</table></div>', SafeString(head), body)

    def possible_steps(self, row: RoutingRuleSet) -> tuple[str, ...]:
        return STEPS.get(row.state, ())

    @action(description="Propose", url_path="propose", icon="outgoing_mail")  # type: ignore[untyped-decorator]
    def propose(self, request: HttpRequest, object_id: str) -> HttpResponse:
        return self._step(request, object_id, actions.propose, "Propose", "It cannot be edited after that.")

    @action(  # type: ignore[untyped-decorator]
        description="Activate", url_path="activate", icon="bolt", variant=ActionVariant.PRIMARY
    )
    def activate(self, request: HttpRequest, object_id: str) -> HttpResponse:
        about = "Every request from now on is routed by these rules, and the active ones are superseded."
        return self._step(request, object_id, actions.activate, "Activate", about)

    @action(description="Withdraw", url_path="withdraw", icon="undo")  # type: ignore[untyped-decorator]
    def withdraw(self, request: HttpRequest, object_id: str) -> HttpResponse:
        return self._step(request, object_id, actions.withdraw, "Withdraw", "It becomes a draft again.")

    @action(  # type: ignore[untyped-decorator]
        description="Go back to it", url_path="revert", icon="history", variant=ActionVariant.DANGER
    )
    def revert(self, request: HttpRequest, object_id: str) -> HttpResponse:
        about = "These rules are in force again at once, as a new version, and the active ones are superseded."
        return self._step(request, object_id, actions.revert, "Go back to", about)

    @action(  # type: ignore[untyped-decorator]
        description="Edit a copy", url_path="edit_copy", icon="content_copy"
    )
    def edit_copy(self, request: HttpRequest, object_id: str) -> HttpResponse:
        return self._step(request, object_id, actions.draft_from, "Copy", "The copy is a new draft.")

    def _step(
        self,
        request: HttpRequest,
        object_id: str,
        act: Callable[[AbstractUser, UUID], RoutingRuleSet],
        verb: str,
        about: str,
    ) -> HttpResponse:
        """Ask on GET, do on POST, and say what stands against it."""
        row, actor = self.row_for_step(request, object_id)
        if request.method != "POST":
            title = f"{verb} version {row.version}?"
            context = {**self.admin_site.each_context(request), "opts": self.opts, "title": title}
            context |= {"row": row, "verb": verb, "about": about, "problems": problems_of(row)}
            return TemplateResponse(request, "admin/inference/routingruleset/confirm.html", context)
        try:
            row = act(actor, row.pk)
            self.message_user(request, f"{row} is {row.get_state_display().lower()}.", messages.SUCCESS)
        except actions.RuleSetInvalid as error:
            for problem in error.problems:
                self.message_user(request, str(problem), messages.ERROR)
        except (SecondPersonNeeded, actions.WrongState) as error:
            self.message_user(request, str(error), messages.ERROR)
        return redirect("admin:inference_routingruleset_change", row.pk)

    @action(description="Explain a request", url_path="explain", icon="alt_route")  # type: ignore[untyped-decorator]
    def explain(self, request: HttpRequest) -> HttpResponse:
        if not self.has_view_permission(request):
            raise PermissionDenied
        form = RequestForm.given(request.GET.dict()) if request.GET else RequestForm()
        for field in form.fields.values():
            is_select = isinstance(field.widget, Select)
            field.widget.attrs["class"] = " ".join(SELECT_CLASSES if is_select else INPUT_CLASSES)
        context = {**self.admin_site.each_context(request), "opts": self.opts, "title": "Explain a request"}
        context |= {"form": form, **(_explained(form) if form.is_bound and form.is_valid() else {})}
        return TemplateResponse(request, "admin/inference/routingruleset/explain.html", context)


def _may_edit(request: HttpRequest, obj: Any) -> bool:
    is_draft = obj is None or obj.state == RuleSetState.DRAFT
    return bool(is_draft and request.user.has_perm(actions.PERMISSION))


def _explained(form: RequestForm) -> dict[str, Any]:
    """What the page shows: the recorded explanation of an exchange, or that of the request described."""
    exchange, refusal, language = form.cleaned_data["exchange"], None, None
    if exchange:
        explanation = recorded_explanation(exchange)
        if explanation is None:
            return {"refusal": "No explanation is recorded for this exchange."}
    else:
        facts = form.facts()
        try:
            outcome = explain_now(facts)
        except Refusal as unknown:
            return {"refusal": unknown.message}
        explanation, refusal = outcome.explanation, outcome.refusal
        language = facts.language or "unknown"
    return {
        "explanation": explanation,
        "verdicts": list(verdicts(explanation)),
        "candidates": [
            (one.deployment, standing(one, explanation), "-" if one.ttft_ms is None else score(one))
            for one in explanation.candidates
        ],
        "extras": list(extras(explanation)),
        "language": language,
        "refusal": refusal.message if refusal else None,
    }

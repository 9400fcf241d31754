"""The catalog in the console: model versions with their lifecycle, and deployments. The operator changes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from asgiref.sync import async_to_sync
from django import forms
from django.contrib import admin, messages
from django.contrib.admin.utils import unquote
from django.contrib.auth.models import AbstractUser
from django.core.exceptions import PermissionDenied
from django.db.models import Count, Model, QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.utils.formats import localize
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe
from unfold.decorators import action
from unfold.enums import ActionVariant
from unfold.widgets import INPUT_CLASSES

from compliance.access import ModelAdmin, RecordAdmin, RecordInline, TabularInline, sees_everything
from gpu_workers.messages import Heartbeat
from inference.engine_models import EngineEvent
from inference.fitting.admin import fit_page
from inference.fleet_now import fleet_now
from inference.four_eyes import SecondPersonNeeded
from inference.lifecycle import actions
from inference.lifecycle.canary_policy import CanaryPolicy
from inference.lifecycle.models import LifecycleStep, StepState
from inference.lifecycle.queries import NEXT, is_frozen, open_step, revertible_step
from inference.models import Deployment, Lifecycle, ModelVersion
from inference.stepped_admin import SteppedAdmin

# What answers is what was approved: these stay as they were proposed.
APPROVED_FIELDS = (
    *("name", "version", "source_kind", "source", "checksum", "licence", "parameters_total", "parameters_active"),
    *("quantization", "engine", "engine_arguments", "context_length"),
)


class ProposalForm(forms.Form):
    effective_from = forms.DateTimeField(
        label="From (UTC)",
        required=False,
        help_text="Empty: with the approval.",
        widget=forms.DateTimeInput(attrs={"type": "datetime-local", "class": " ".join(INPUT_CLASSES)}),
    )


class StepInline(RecordInline):
    model = LifecycleStep
    fields = [
        *("change", "kind", "state", "proposed_by", "proposed_at", "approved_by", "approved_at", "effective_from"),
        "because",
    ]
    readonly_fields = ["change", "because"]
    verbose_name_plural = "Steps of its lifecycle, the latest first"

    def get_queryset(self, request: HttpRequest) -> QuerySet[LifecycleStep]:
        return super().get_queryset(request).select_related("proposed_by", "approved_by")

    @admin.display(description="Change")
    def change(self, row: LifecycleStep) -> str:
        return str(row)

    @admin.display(description="Because")
    def because(self, row: LifecycleStep) -> str:
        return row.why


class CanaryInline(TabularInline):
    model = CanaryPolicy
    max_num = 1
    can_delete = False
    fields = ["is_enabled", "good_percent", "ttft_ms", "at_least"]
    verbose_name = "what it must keep to as a canary"


@admin.register(ModelVersion)
class ModelVersionAdmin(SteppedAdmin):
    step_permission = actions.PERMISSION
    list_display = [
        "name",
        "version",
        "lifecycle",
        "context_length",
        "quantization",
        "input_price",
        "cached_price",
        "output_price",
        "deployment_count",
    ]
    list_filter = ["lifecycle", "quantization"]
    list_fullwidth = True
    search_fields = ["name", "version", "source"]
    fieldsets = [
        (None, {"fields": ["name", "version"]}),
        (
            "Weights",
            {
                "fields": [
                    *("source_kind", "source", "checksum", "licence", "parameters_total", "parameters_active"),
                    *("quantization", "context_length", "kv_bytes_per_token"),
                ]
            },
        ),
        ("Engine", {"fields": ["engine", "engine_arguments"]}),
        ("Prices", {"fields": ["input_price", "cached_price", "output_price"]}),
        ("Dates", {"fields": ["embargo_until", "retires_at"]}),
    ]
    inlines = [CanaryInline, StepInline]
    actions_detail = ["fit", "propose", "approve", "withdraw", "revert", "retire"]
    looks = frozenset({"fit"})

    def get_fieldsets(self, request: HttpRequest, obj: Model | None = None) -> Any:
        if obj is None:
            return self.fieldsets
        return [("Lifecycle", {"fields": ["lifecycle", "under_way", "created_at"]}), *self.fieldsets]

    def get_inlines(self, request: HttpRequest, obj: Model | None) -> list[Any]:
        return [] if obj is None else list(self.inlines)

    def get_readonly_fields(self, request: HttpRequest, obj: Model | None = None) -> tuple[str, ...]:
        shown = ("lifecycle", "under_way", "created_at")
        return (*shown, *APPROVED_FIELDS) if isinstance(obj, ModelVersion) and is_frozen(obj) else shown

    def get_queryset(self, request: HttpRequest) -> QuerySet[ModelVersion]:
        rows: QuerySet[ModelVersion] = super().get_queryset(request)
        return rows.annotate(deployment_count=Count("deployments"))

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        # A version that went through steps is part of the history, and of what was answered.
        may = bool(super().has_delete_permission(request, obj))
        return may and (not isinstance(obj, ModelVersion) or not obj.steps.exists())

    @admin.display(description="Deployments", ordering="deployment_count")
    def deployment_count(self, row: ModelVersion) -> int:
        return row.deployment_count  # type: ignore[attr-defined,no-any-return]

    @admin.display(description="Under way")
    def under_way(self, row: ModelVersion) -> str:
        step = open_step(row)
        if step is None:
            return "nothing"
        said = f"{step}: {step.get_state_display().lower()}, proposed by {step.proposed_by or 'nobody known'}"
        said += f", approved by {step.approved_by}" if step.approved_by else ""
        when = f"{localize(step.effective_from)} UTC" if step.effective_from else "its approval"
        return f"{said}, from {when}"

    def possible_steps(self, row: ModelVersion) -> set[str]:
        return _possible(row)

    @action(description="Propose", url_path="propose", icon="outgoing_mail")  # type: ignore[untyped-decorator]
    def propose(self, request: HttpRequest, object_id: str) -> HttpResponse:
        form = ProposalForm(request.POST) if request.method == "POST" else ProposalForm()
        at: datetime | None = form.cleaned_data["effective_from"] if form.is_valid() else None
        about = "Its weights and engine cannot be edited after that. A second person approves it."
        return self._step(
            request, object_id, lambda who, pk: actions.propose(who, pk, effective_from=at), "Propose", about, form
        )

    @action(  # type: ignore[untyped-decorator]
        description="Approve", url_path="approve", icon="check", variant=ActionVariant.PRIMARY
    )
    def approve(self, request: HttpRequest, object_id: str) -> HttpResponse:
        about = "It is in force from its time on, or at once where that has passed."
        return self._step(request, object_id, actions.approve, "Approve", about)

    @action(description="Withdraw", url_path="withdraw", icon="undo")  # type: ignore[untyped-decorator]
    def withdraw(self, request: HttpRequest, object_id: str) -> HttpResponse:
        return self._step(request, object_id, actions.withdraw, "Withdraw", "The version stays as it is.")

    @action(  # type: ignore[untyped-decorator]
        description="Revert", url_path="revert", icon="history", variant=ActionVariant.DANGER
    )
    def revert(self, request: HttpRequest, object_id: str) -> HttpResponse:
        about = "It is at once what it was before its last step. What is under way is withdrawn."
        return self._step(request, object_id, actions.revert, "Revert", about)

    @action(  # type: ignore[untyped-decorator]
        description="Retire", url_path="retire", icon="block", variant=ActionVariant.DANGER
    )
    def retire(self, request: HttpRequest, object_id: str) -> HttpResponse:
        about = "It answers nobody from now on. What is being answered ends; what is under way is withdrawn."
        return self._step(request, object_id, actions.retire, "Retire", about)

    @action(description="Fit check", url_path="fit", icon="memory")  # type: ignore[untyped-decorator]
    def fit(self, request: HttpRequest, object_id: str) -> HttpResponse:
        row = self.get_object(request, unquote(object_id))
        if row is None or not self.has_view_permission(request, row):
            raise PermissionDenied
        return fit_page(self, request, row)

    def _step(
        self,
        request: HttpRequest,
        object_id: str,
        act: Callable[[AbstractUser, UUID], LifecycleStep],
        verb: str,
        about: str,
        form: forms.Form | None = None,
    ) -> HttpResponse:
        """Ask on GET, do on POST, and say what stands against it."""
        row, actor = self.row_for_step(request, object_id)
        if request.method != "POST" or (form is not None and not form.is_valid()):
            context = {**self.admin_site.each_context(request), "opts": self.opts, "title": f"{verb} {row}?"}
            context |= {"row": row, "verb": verb, "about": about, "form": form, "under_way": self.under_way(row)}
            return TemplateResponse(request, "admin/inference/modelversion/confirm.html", context)
        try:
            step = act(actor, row.pk)
            self.message_user(request, f"{step}: {step.get_state_display().lower()}.", messages.SUCCESS)
        except (SecondPersonNeeded, actions.WrongState, actions.PromotionRefused) as error:
            self.message_user(request, str(error), messages.ERROR)
        return redirect("admin:inference_modelversion_change", row.pk)


def _possible(row: ModelVersion) -> set[str]:
    """What can be done with a version where it is."""
    step = open_step(row)
    steps = {"withdraw"} if step is not None else set()
    if step is not None and step.state == StepState.PROPOSED:
        steps.add("approve")
    if step is None and row.lifecycle in NEXT:
        steps.add("propose")
    if revertible_step(row) is not None:
        steps.add("revert")
    return steps if row.lifecycle == Lifecycle.RETIRED else steps | {"retire"}


@admin.register(Deployment)
class DeploymentAdmin(ModelAdmin):
    list_display = [
        *("slug", "model_version", "engine", "zone", "desired_replicas", "hourly_price", "is_enabled", "is_draining"),
        "external",
    ]
    list_filter = ["engine", "zone", "is_enabled", "is_draining"]
    list_select_related = ["model_version"]
    list_fullwidth = True
    search_fields = ["slug", "model_version__name", "zone"]
    given_fields = (
        *("slug", "model_version", "engine", "zone", "desired_replicas", "concurrency", "hourly_price"),
        *("is_enabled", "is_draining"),
    )
    told_fields = ("external", "celery_queue", "replicas", "created_at")

    def get_fields(self, request: HttpRequest, obj: Model | None = None) -> tuple[str, ...]:
        return self.given_fields if obj is None else (*self.given_fields, *self.told_fields)

    def get_readonly_fields(self, request: HttpRequest, obj: Model | None = None) -> tuple[str, ...]:
        # The slug names a queue that workers listen to: another slug is another deployment.
        return () if obj is None else ("slug", *self.told_fields)

    @admin.display(description="External", boolean=True)
    def external(self, row: Deployment) -> bool:
        return row.is_external

    @admin.display(description="Celery queue", ordering="slug")
    def celery_queue(self, row: Deployment) -> str:
        return row.queue

    @admin.display(description="Replicas now")
    def replicas(self, row: Deployment) -> str:
        """The workers that show life, found by their heartbeats alone."""
        fleet = async_to_sync(fleet_now)()
        if not fleet.broker:
            return "The broker does not answer."
        checksum = row.model_version.checksum
        lines = [_about(beat, checksum) for beat in _of(row, fleet.workers)]
        lines += [f"{beat.worker}: has another seal key, and is sent nothing" for beat in _of(row, fleet.foreign)]
        lines = lines or ["None: no worker of this deployment shows life."]
        return format_html_join(mark_safe("<br>"), "{}", ((line,) for line in lines))


def _of(deployment: Deployment, beats: Mapping[str, Heartbeat]) -> list[Heartbeat]:
    return [beat for _, beat in sorted(beats.items()) if beat.deployment == deployment.slug]


def _about(beat: Heartbeat, checksum: str) -> str:
    """`checksum` is the version's, empty where it has none."""
    state = "ready" if beat.engine_ready else (beat.fault or "its engine is not ready")
    told = [f"{beat.running} of {beat.capacity} answers", f"{beat.waiting} waiting in the engine"]
    told += [f"{beat.tokens_per_s:g} tokens/s"]
    told += [] if beat.kv_use is None else [f"{beat.kv_use:.0%} of the context memory"]
    told += [f"start {beat.epoch} of {beat.engine} {beat.engine_version}".rstrip()]
    told += [f"in {beat.zone}"] if beat.zone else []
    if beat.model_checksum:
        same = {"": "", beat.model_checksum: ", as its version's"}.get(checksum, ", not its version's")
        told += [f"model {beat.model_checksum[:12]}{same}"]
    return f"{beat.worker}: {state}, {', '.join(told)}"


@admin.register(EngineEvent)
class EngineEventAdmin(RecordAdmin):
    """What supervisors told of their engines. The operator's: an engine's words may hold anything."""

    list_display = ["at", "deployment", "host", "engine", "kind", "exit_code"]
    list_filter = ["kind", "deployment"]
    date_hierarchy = "at"
    fields = ["at", "deployment", "host", "engine", "kind", "exit_code", "shown_lines"]
    readonly_fields = ["shown_lines"]

    def get_queryset(self, request: HttpRequest) -> QuerySet[EngineEvent]:
        rows = EngineEvent.objects.all()
        return rows if sees_everything(request.user) else rows.none()

    @admin.display(description="Its last lines")
    def shown_lines(self, row: EngineEvent) -> SafeString:
        return format_html('<pre class="facts">{}</pre>', row.lines or "none")

"""Evaluation in the console: the operator writes sets and has them run; what came of it others see, too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import admin, messages
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from unfold.decorators import action

from compliance.access import RecordAdmin, RecordInline
from inference.evaluation import actions
from inference.evaluation.gate import latest_run
from inference.evaluation.models import (
    MAX_PROMPTS,
    EvaluationPrompt,
    EvaluationRun,
    EvaluationSet,
    EvaluationVerdict,
)
from inference.stepped_admin import SteppedAdmin

if TYPE_CHECKING:  # unfold has no types; its classes behave as Django's
    from django.contrib.admin import StackedInline as _StackedInline

    StackedInline = _StackedInline[Any, Any]
else:
    from unfold.admin import StackedInline


class PromptInline(StackedInline):
    model = EvaluationPrompt
    extra = 0
    min_num, validate_min = 1, True
    max_num, validate_max = MAX_PROMPTS, True
    fields = ["position", "prompt", "check_of_answer", "max_tokens"]
    ordering_field = "position"
    verbose_name_plural = "Prompts, each with the check that its answer must pass"


@admin.register(EvaluationSet)
class EvaluationSetAdmin(SteppedAdmin):
    step_permission = actions.PERMISSION
    list_display = ["model_version", "threshold", "latest"]
    list_select_related = ["model_version"]
    list_fullwidth = True
    search_fields = ["model_version__name", "model_version__version"]
    autocomplete_fields = ["model_version"]
    inlines = [PromptInline]
    actions_detail = ["run"]

    def get_fields(self, request: HttpRequest, obj: Model | None = None) -> tuple[str, ...]:
        return ("model_version", "threshold") if obj is None else ("model_version", "threshold", "latest", "created_at")

    def get_readonly_fields(self, request: HttpRequest, obj: Model | None = None) -> tuple[str, ...]:
        return () if obj is None else ("model_version", "latest", "created_at")

    @admin.display(description="Last run as it is now")
    def latest(self, row: EvaluationSet) -> str:
        run = latest_run(row)
        return "none" if run is None else f"{run.passed} of {run.total} passed"

    def possible_steps(self, row: EvaluationSet) -> tuple[str, ...]:
        return ("run",)

    @action(description="Run", url_path="run", icon="play_arrow")  # type: ignore[untyped-decorator]
    def run(self, request: HttpRequest, object_id: str) -> HttpResponse:
        row, actor = self.row_for_step(request, object_id)
        if request.method != "POST":
            context = {**self.admin_site.each_context(request), "opts": self.opts, "title": f"Run: {row}?", "row": row}
            return TemplateResponse(request, "admin/inference/evaluationset/confirm.html", context)
        try:
            started = actions.ask_for_run(actor, row.model_version_id)
        except actions.CannotEvaluate as error:
            self.message_user(request, str(error), messages.ERROR)
            return redirect("admin:inference_evaluationset_change", row.pk)
        return redirect("admin:inference_evaluationrun_change", started.pk)


class VerdictInline(RecordInline):
    model = EvaluationVerdict
    fields = ["position", "kind", "passed", "reason", "completion_tokens"]
    verbose_name_plural = "Verdicts"


@admin.register(EvaluationRun)
class EvaluationRunAdmin(RecordAdmin):
    """What came of a set; the answers themselves are kept nowhere. The catalog is everybody's, and so are its runs."""

    list_display = ["model_version", "state", "share", "passed", "total", "error_code", "created_at"]
    list_filter = ["state"]
    list_select_related = ["model_version"]
    search_fields = ["model_version__name", "model_version__version"]
    inlines = [VerdictInline]
    fields = [
        *("model_version", "state", "error_code", "share", "passed", "total", "deployment"),
        *("started_by", "created_at", "finished_at"),
    ]
    readonly_fields = ["share"]

    def get_queryset(self, request: HttpRequest) -> QuerySet[EvaluationRun]:
        return EvaluationRun.objects.select_related("model_version")

    @admin.display(description="Passed (%)")
    def share(self, row: EvaluationRun) -> str:
        return "-" if row.score is None else f"{row.score:.1f}"

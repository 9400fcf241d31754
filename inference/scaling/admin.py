"""Scaling in the console: a deployment's policy, and what was done by it. The operator sets it."""

from __future__ import annotations

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString

from compliance.access import ModelAdmin, RecordAdmin, sees_everything
from inference.scaling.models import ScalingPolicy, ScalingStep
from inference.scaling.wording import BECAUSE, sentences


@admin.register(ScalingPolicy)
class ScalingPolicyAdmin(ModelAdmin):
    list_display = ["deployment", "is_enabled", "driver", "at_least", "at_most", "wanted", "applied", "failures"]
    list_filter = ["driver", "is_enabled"]
    list_select_related = ["deployment"]
    list_fullwidth = True
    autocomplete_fields = ["deployment"]
    readonly_fields = ["state"]
    fieldsets = [
        (None, {"fields": ["deployment", "is_enabled", "state"]}),
        ("Who makes the replicas", {"fields": ["driver", "namespace", "name", "region"]}),
        ("How many", {"fields": ["at_least", "at_most", "across_zones", "hourly_most"]}),
        ("What decides", {"fields": ["queue_ms", "good_percent", "down_after_s"]}),
    ]

    @admin.display(description="Wanted")
    def wanted(self, row: ScalingPolicy) -> int:
        return row.deployment.desired_replicas

    @admin.display(description="Now")
    def state(self, row: ScalingPolicy) -> str:
        if row.deployment_id is None:
            return "Not looked at yet."
        told = f"{row.deployment.desired_replicas} wanted"
        if row.applied != row.deployment.desired_replicas:
            told += f", {row.applied if row.applied is not None else 'nothing'} told to the driver"
        return f"{told}; the driver failed {row.failures} times in a row" if row.failures else told


@admin.register(ScalingStep)
class ScalingStepAdmin(RecordAdmin):
    list_display = ["at", "deployment", "before", "after", "because", "trigger", "error"]
    list_filter = ["trigger", "bound", "deployment"]
    list_select_related = ["deployment"]
    list_fullwidth = True
    date_hierarchy = "at"
    fields = ["at", "deployment", "before", "after", "because", "trigger", "error", "seen"]
    readonly_fields = ["because", "seen"]

    def get_queryset(self, request: HttpRequest) -> QuerySet[ScalingStep]:
        # What all organisations together ask for is the operator's to know.
        rows = ScalingStep.objects.select_related("deployment")
        return rows if sees_everything(request.user) else rows.none()

    @admin.display(description="Because", ordering="bound")
    def because(self, row: ScalingStep) -> str:
        return BECAUSE.get(row.bound, row.bound)

    @admin.display(description="What was seen")
    def seen(self, row: ScalingStep) -> SafeString:
        return format_html('<pre class="facts">{}</pre>', "\n".join(sentences(row.figures)))

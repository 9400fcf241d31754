"""The accelerators in the console. The operator sets their prices."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse

from compliance.access import ModelAdmin
from inference.fitting.fit_form import FitForm
from inference.fitting.models import Accelerator
from inference.fitting.queries import NotKnown, check_fit
from inference.fitting.wording import HEADINGS, needs, notes, rows
from inference.models import ModelVersion


@admin.register(Accelerator)
class AcceleratorAdmin(ModelAdmin):
    list_display = [
        *("name", "memory_gb", "bandwidth_gb_s", "fp8_native", "nvfp4_native", "usd_per_hour", "priced_on"),
    ]
    list_fullwidth = True
    search_fields = ["name"]
    fieldsets = [
        (None, {"fields": ["name"]}),
        ("Data sheet", {"fields": ["memory_gb", "bandwidth_gb_s", "fp8_native", "nvfp4_native", "source"]}),
        ("Price", {"fields": ["usd_per_hour", "priced_on"]}),
    ]


def fit_page(on: ModelAdmin, request: HttpRequest, version: ModelVersion) -> HttpResponse:
    """A model version against every accelerator; whoever calls this has checked that it may be seen."""
    form = FitForm(request.GET)
    context = {**on.admin_site.each_context(request), "opts": on.opts, "title": f"What {version} fits on"}
    context |= {"form": form, "back": reverse("admin:inference_modelversion_change", args=[version.pk])}
    context |= _checked(version, form) if form.is_valid() else {}
    return TemplateResponse(request, "admin/inference/modelversion/fit.html", context)


def _checked(version: ModelVersion, form: FitForm) -> dict[str, Any]:
    try:
        report = check_fit(version, **form.cleaned_data)
    except NotKnown as unknown:
        return {"unknown": str(unknown)}
    return {
        "needs": list(needs(report)),
        "headings": HEADINGS,
        "rows": list(rows(report)),
        "notes": list(notes(report)),
    }

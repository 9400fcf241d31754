"""Periodic tasks of the platform, for superusers: django-celery-beat's rows in the console's own form."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.utils.formats import localize
from django_celery_beat.admin import PeriodicTaskAdmin, PeriodicTaskForm, TaskSelectWidget
from django_celery_beat.models import ClockedSchedule, CrontabSchedule, IntervalSchedule, PeriodicTask, SolarSchedule
from unfold.widgets import UnfoldAdminSelectWidget, UnfoldAdminTextInputWidget

from compliance.access import ModelAdmin

for stock in (PeriodicTask, IntervalSchedule, CrontabSchedule, SolarSchedule, ClockedSchedule):
    admin.site.unregister(stock)


class TaskWidget(UnfoldAdminSelectWidget, TaskSelectWidget):  # type: ignore[misc]
    pass


# Labels and help texts by field, in the place of the package's own.
WORDS = {
    "name": ("Name", ""),
    "regtask": ("Task", "Choosing one here replaces the name below."),
    "task": ("Task by name", "Where the list does not have it."),
    "enabled": ("Enabled", "A disabled task is not started."),
    "description": ("Description", ""),
    "interval": ("Every", "An interval, or else a time of day below; one of the two."),
    "crontab": ("At", "A time of day, as crontab writes it: minute, hour, day of month, month, day of week."),
    "start_time": ("Not before", "In UTC. Empty: at once."),
    "one_off": ("Only once", "It is disabled after its first start."),
    "args": ("Positional arguments", "A JSON list."),
    "kwargs": ("Named arguments", "A JSON object."),
    "queue": ("Queue", "Empty: the platform's own."),
    "expire_seconds": ("Expires after (s)", "A start that waited longer than this is dropped. Empty: never."),
}


class TaskForm(PeriodicTaskForm):  # type: ignore[misc]
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["regtask"].widget = TaskWidget()
        self.fields["task"].widget = UnfoldAdminTextInputWidget()
        for name, (label, help_text) in WORDS.items():
            self.fields[name].label, self.fields[name].help_text = label, help_text


@admin.register(PeriodicTask)
class TaskAdmin(PeriodicTaskAdmin, ModelAdmin):  # type: ignore[misc]
    form = TaskForm
    change_form_template = None  # the stock one has an inline script, which the policy blocks
    list_display = ["name", "is_on", "runs", "when", "started", "starts"]
    list_filter = ["enabled"]
    list_fullwidth = True
    readonly_fields = ["started"]
    fieldsets = [
        (None, {"fields": ["name", "regtask", "task", "enabled", "description"]}),
        ("When", {"fields": ["interval", "crontab", "start_time", "one_off", "started"]}),
        ("With", {"fields": ["args", "kwargs", "queue", "expire_seconds"]}),
    ]

    @admin.display(description="Enabled", boolean=True, ordering="enabled")
    def is_on(self, task: PeriodicTask) -> bool:
        return bool(task.enabled)

    @admin.display(description="Task", ordering="task")
    def runs(self, task: PeriodicTask) -> str:
        return str(task.task)

    @admin.display(description="When")
    def when(self, task: PeriodicTask) -> str:
        return str(task.scheduler)

    @admin.display(description="Last started", ordering="last_run_at")
    def started(self, task: PeriodicTask) -> str:
        return "-" if task.last_run_at is None else str(localize(task.last_run_at))

    @admin.display(description="Starts", ordering="total_run_count")
    def starts(self, task: PeriodicTask) -> int:
        return int(task.total_run_count)


@admin.register(IntervalSchedule)
class IntervalAdmin(ModelAdmin):
    """Reached from a task's form: an interval alone does nothing."""


@admin.register(CrontabSchedule)
class CrontabAdmin(ModelAdmin):
    """Reached from a task's form, like an interval."""

    fields = ["minute", "hour", "day_of_month", "month_of_year", "day_of_week", "timezone"]

from django.apps import AppConfig


class ScheduleConfig(AppConfig):
    name = "console.schedule"
    label = "schedule"
    verbose_name = "Schedule"

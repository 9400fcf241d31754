from __future__ import annotations

from django.apps import AppConfig


class PiiConfig(AppConfig):
    name = "compliance.pii"
    label = "pii"
    verbose_name = "Personal data"

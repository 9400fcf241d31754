from django.apps import AppConfig


class AuditConfig(AppConfig):
    name = "compliance.audit"
    label = "audit"
    verbose_name = "Record"

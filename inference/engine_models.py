"""What happened to engines, as their supervisors told it."""

from __future__ import annotations

from django.db import models

from gpu_workers.identifiers import uuid7


class EngineEventKind(models.TextChoices):
    READY = "ready", "Ready"
    ACTIVE = "active", "Active"
    EXITED = "exited", "Exited"
    SILENT = "silent", "Ended: no answer to health checks"
    STUCK = "stuck", "Ended: no progress"


class EngineEvent(models.Model):
    """Kept for thirty days. `lines` are the engine's own words before it ended: the operator's alone."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    deployment = models.CharField(max_length=60)
    host = models.CharField(max_length=100)
    engine = models.CharField("address", max_length=100, help_text="On its host's loopback.")
    kind = models.CharField("what", max_length=8, choices=EngineEventKind.choices)
    at = models.DateTimeField()
    exit_code = models.IntegerField(null=True, help_text="Negative: the signal that ended it.")
    lines = models.TextField("last lines", blank=True)

    class Meta:
        ordering = ["-at"]
        verbose_name = "engine event"
        indexes = [models.Index(fields=["-at"], name="engine_event_at")]

    def __str__(self) -> str:
        return f"{self.deployment} {self.get_kind_display().lower()}"

"""The record: one entry for each intent, outcome and refusal. Entries are added and never changed."""

from __future__ import annotations

from django.db import models
from django.db.models.functions import Now

from gpu_workers.identifiers import uuid7


class EntryKind(models.TextChoices):
    INTENT = "intent", "Intent"
    OUTCOME = "outcome", "Outcome"
    REFUSAL = "refusal", "Refusal"
    BUDGET = "budget", "Budget step"
    CONFIGURATION = "config", "Configuration"


class Entry(models.Model):
    """One record. `facts` are in clear and hold no content; `payload` is sealed with AES-256-GCM.

    The additional data of the seal names the organisation, table, column and row, so that a payload moved
    to another row does not open. Rows refer to nothing by foreign key: the record outlives what it is about.
    """

    id = models.UUIDField("entry", primary_key=True, default=uuid7, editable=False)
    organisation_id = models.UUIDField("organisation", null=True)
    exchange_id = models.UUIDField("exchange")
    kind = models.CharField(max_length=8, choices=EntryKind.choices)
    recorded_at = models.DateTimeField("recorded", db_default=Now())
    facts = models.JSONField()
    payload = models.BinaryField(null=True)
    key_id = models.CharField(
        "sealed with key", max_length=16, blank=True, help_text="The identifier of the record's key."
    )

    class Meta:
        ordering = ["-id"]
        verbose_name_plural = "entries"
        constraints = [models.UniqueConstraint(fields=["exchange_id", "kind"], name="entry_once")]
        indexes = [models.Index(fields=["organisation_id", "-id"], name="entry_organisation")]

    def __str__(self) -> str:
        return f"{self.get_kind_display()} {self.id}"


class Refusal(Entry):
    """An entry of a request that was refused: the same rows, as a list of their own."""

    class Meta:
        proxy = True
        ordering = ["-id"]

    def __str__(self) -> str:
        return str(self.id)

"""Exchanges and their attempts: what was asked and answered, as facts without content."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from gpu_workers.identifiers import uuid7


class ExchangeStatus(models.TextChoices):
    OPEN = "open", "Open"
    FINISHED = "finished", "Finished"
    CANCELLED = "cancelled", "Cancelled"
    FAILED = "failed", "Failed"
    UNKNOWN = "unknown", "Unknown"


class Channel(models.TextChoices):
    SOCKET = "socket", "WebSocket"
    HTTP = "http", "HTTP"


class Exchange(models.Model):
    """One prompt and its answer, as facts without content. The content is in the record, encrypted.

    Rows are written by the pipeline's group-committed statements, not through this class.
    """

    id = models.UUIDField("exchange", primary_key=True, default=uuid7, editable=False)
    organisation = models.ForeignKey("accounts.Organisation", on_delete=models.PROTECT, related_name="+")
    user = models.ForeignKey("accounts.User", on_delete=models.SET_NULL, null=True, related_name="+")
    api_key = models.ForeignKey(
        "accounts.APIKey", verbose_name="API key", on_delete=models.SET_NULL, null=True, related_name="+"
    )
    conversation_id = models.UUIDField("conversation", null=True)
    request_id = models.CharField(
        "request ID", max_length=64, help_text="The x-request-id of its HTTP request; on a socket, the exchange's own."
    )
    channel = models.CharField(max_length=8, choices=Channel.choices)
    model = models.CharField("model asked for", max_length=100, help_text="The model that the caller named.")
    deployment = models.ForeignKey("inference.Deployment", on_delete=models.PROTECT, related_name="+")
    status = models.CharField(max_length=10, choices=ExchangeStatus.choices, default=ExchangeStatus.OPEN)
    finish_reason = models.CharField(max_length=20, blank=True, db_default="")
    error_code = models.CharField("error", max_length=40, blank=True, db_default="")
    owner = models.CharField("web process", max_length=64, help_text="The web process that served it.")
    configuration = models.BigIntegerField(
        "configuration version", help_text="Version of keys, limits and catalog that it was decided under."
    )
    opened_at = models.DateTimeField("opened")
    deadline_at = models.DateTimeField("deadline")
    finished_at = models.DateTimeField("finished", null=True)
    prompt_findings = models.PositiveIntegerField("findings in the prompt", default=0)
    answer_findings = models.PositiveIntegerField("findings in the answer", db_default=0)
    prompt_tokens = models.PositiveIntegerField(null=True)
    cached_tokens = models.PositiveIntegerField(
        null=True, help_text="Of the prompt tokens, those that the engine had in its cache."
    )
    completion_tokens = models.PositiveIntegerField("answer tokens", null=True)
    cost = models.DecimalField("cost (USD)", max_digits=20, decimal_places=12, null=True)
    ttft_ms = models.FloatField("TTFT (ms)", null=True, help_text="From the question's arrival to the first text sent.")
    e2e_ms = models.FloatField("E2E (ms)", null=True, help_text="From the question's arrival to the answer's end.")

    team_id = models.UUIDField("team", null=True)
    reserved = models.DecimalField(
        "held (USD)", max_digits=20, decimal_places=12, null=True, help_text="What it could cost at most."
    )
    reserved_external = models.DecimalField(max_digits=20, decimal_places=12, null=True, editable=False)
    budget_generation = models.BigIntegerField(null=True, editable=False)

    class Meta:
        ordering = ["-id"]
        indexes = [
            models.Index(fields=["conversation_id", "opened_at"], name="exchange_conversation"),
            models.Index(fields=["organisation", "-id"], name="exchange_organisation"),
            models.Index(fields=["deadline_at"], name="exchange_open", condition=Q(status="open")),
        ]

    def __str__(self) -> str:
        return str(self.id)


class AttemptStatus(models.TextChoices):
    FINISHED = "finished", "Finished"
    CANCELLED = "cancelled", "Cancelled"
    FAILED = "failed", "Failed"
    LOST = "lost", "Worker lost"


# Attempts of the answer itself are counted from one; its mirror's stands apart from them.
MIRROR_NUMBER = 100


class Attempt(models.Model):
    """One try of an exchange on one worker."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    exchange = models.ForeignKey(Exchange, on_delete=models.CASCADE, related_name="attempts")
    number = models.PositiveSmallIntegerField("attempt")
    deployment = models.ForeignKey("inference.Deployment", on_delete=models.PROTECT, related_name="+")
    worker = models.CharField(max_length=100, blank=True)
    status = models.CharField(max_length=10, choices=AttemptStatus.choices)
    error_code = models.CharField("error", max_length=40, blank=True)
    queued_ms = models.FloatField("queued (ms)", null=True, help_text="From dispatch until a worker took it.")
    ttft_ms = models.FloatField("TTFT (ms)", null=True)
    completion_tokens = models.PositiveIntegerField("answer tokens", null=True)

    class Meta:
        ordering = ["exchange", "number"]
        constraints = [models.UniqueConstraint(fields=["exchange", "number"], name="attempt_once")]

    def __str__(self) -> str:
        return f"{self.exchange_id} attempt {self.number}"

"""The catalog (model versions and where they run) and the exchanges that went through it."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from django.core.validators import MinValueValidator
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from gpu_workers.identifiers import uuid7

USD_PER_MILLION: dict[str, Any] = {"max_digits": 12, "decimal_places": 6, "validators": [MinValueValidator(Decimal(0))]}


class Lifecycle(models.TextChoices):
    DRAFT = "draft", "Draft"
    VALIDATED = "validated", "Validated"
    CANARY = "canary", "Canary"
    LIVE = "live", "Live"
    RETIRED = "retired", "Retired"


class EngineKind(models.TextChoices):
    VLLM = "vllm", "vLLM"
    OPENAI = "openai", "OpenAI-compatible server"
    SIMULATED = "simulated", "Simulated"


class ModelVersion(models.Model):
    """Weights at one version, with what they cost. Callers name `name`; a version is what answers."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    name = models.CharField(max_length=100, help_text="The name that callers use.")
    version = models.CharField(max_length=40)
    source = models.CharField(max_length=300, blank=True, help_text="Path or hub identifier of the weights.")
    licence = models.CharField(max_length=80, blank=True)
    quantization = models.CharField(max_length=20, blank=True)
    context_length = models.PositiveIntegerField(help_text="Tokens of prompt and answer together.")
    input_price = models.DecimalField(**USD_PER_MILLION, default=Decimal(0), help_text="USD per million prompt tokens.")
    cached_price = models.DecimalField(
        **USD_PER_MILLION, default=Decimal(0), help_text="USD per million cached tokens."
    )
    output_price = models.DecimalField(
        **USD_PER_MILLION, default=Decimal(0), help_text="USD per million answer tokens."
    )
    lifecycle = models.CharField(max_length=12, choices=Lifecycle.choices, default=Lifecycle.DRAFT)
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        ordering = ["name", "-created_at"]
        constraints = [
            models.UniqueConstraint(fields=["name", "version"], name="model_version_once"),
            models.CheckConstraint(condition=Q(context_length__gte=64), name="model_version_context_length"),
        ]

    def __str__(self) -> str:
        return f"{self.name} {self.version}"


class Deployment(models.Model):
    """A model version running somewhere, reached through the Celery queue `gpu.<slug>`."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    slug = models.SlugField(max_length=60, unique=True)
    model_version = models.ForeignKey(ModelVersion, on_delete=models.PROTECT, related_name="deployments")
    engine = models.CharField(max_length=12, choices=EngineKind.choices)
    is_enabled = models.BooleanField(default=True, help_text="A disabled deployment is sent no new request.")
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        ordering = ["slug"]

    def __str__(self) -> str:
        return self.slug

    @property
    def queue(self) -> str:
        return f"gpu.{self.slug}"


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

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    organisation = models.ForeignKey("accounts.Organisation", on_delete=models.PROTECT, related_name="+")
    user = models.ForeignKey("accounts.User", on_delete=models.SET_NULL, null=True, related_name="+")
    api_key = models.ForeignKey("accounts.APIKey", on_delete=models.SET_NULL, null=True, related_name="+")
    conversation_id = models.UUIDField(null=True)
    request_id = models.CharField(max_length=64)
    channel = models.CharField(max_length=8, choices=Channel.choices)
    model = models.CharField(max_length=100, help_text="The model that the caller named.")
    deployment = models.ForeignKey(Deployment, on_delete=models.PROTECT, related_name="+")
    status = models.CharField(max_length=10, choices=ExchangeStatus.choices, default=ExchangeStatus.OPEN)
    finish_reason = models.CharField(max_length=20, blank=True, db_default="")
    error_code = models.CharField(max_length=40, blank=True, db_default="")
    owner = models.CharField(max_length=64, help_text="The web process that serves it.")
    configuration = models.BigIntegerField(help_text="Version of the configuration it was decided under.")
    opened_at = models.DateTimeField()
    deadline_at = models.DateTimeField()
    finished_at = models.DateTimeField(null=True)
    prompt_findings = models.PositiveIntegerField(default=0)
    answer_findings = models.PositiveIntegerField(db_default=0)
    prompt_tokens = models.PositiveIntegerField(null=True)
    cached_tokens = models.PositiveIntegerField(null=True)
    completion_tokens = models.PositiveIntegerField(null=True)
    cost = models.DecimalField(max_digits=20, decimal_places=12, null=True, help_text="USD")
    ttft_ms = models.FloatField(null=True, verbose_name="TTFT (ms)")
    e2e_ms = models.FloatField(null=True, verbose_name="E2E (ms)")

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


class Attempt(models.Model):
    """One try of an exchange on one worker."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    exchange = models.ForeignKey(Exchange, on_delete=models.CASCADE, related_name="attempts")
    number = models.PositiveSmallIntegerField()
    deployment = models.ForeignKey(Deployment, on_delete=models.PROTECT, related_name="+")
    worker = models.CharField(max_length=100, blank=True)
    status = models.CharField(max_length=10, choices=AttemptStatus.choices)
    error_code = models.CharField(max_length=40, blank=True)
    queued_ms = models.FloatField(null=True, help_text="From dispatch until a worker took it.")
    ttft_ms = models.FloatField(null=True, verbose_name="TTFT (ms)")
    completion_tokens = models.PositiveIntegerField(null=True)

    class Meta:
        ordering = ["exchange", "number"]
        constraints = [models.UniqueConstraint(fields=["exchange", "number"], name="attempt_once")]

    def __str__(self) -> str:
        return f"{self.exchange_id} attempt {self.number}"


class Configuration(models.Model):
    """One row: a counter that database triggers move with every change of keys, limits or catalog.

    Web processes poll it and reload their snapshot when it has moved. A trigger, because it also sees bulk
    and raw changes, which Django's signals do not.
    """

    id = models.BooleanField(primary_key=True, default=True)
    version = models.BigIntegerField(default=1)

    class Meta:
        constraints = [models.CheckConstraint(condition=Q(id=True), name="configuration_one_row")]

    def __str__(self) -> str:
        return f"version {self.version}"

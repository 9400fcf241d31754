"""The catalog: model versions and where they run; and the counters that say when configuration moves."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator, RegexValidator
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now

from gpu_workers.identifiers import uuid7
from inference.catalog_validation import (
    MAX_CONTEXT,
    MAX_KV_BYTES,
    MAX_PARAMETERS_B,
    MAX_USD_PER_HOUR,
    MAX_USD_PER_MILLION,
    SHA256,
    check_engine_arguments,
    check_source,
)

USD_PER_MILLION: dict[str, Any] = {
    "max_digits": 12,
    "decimal_places": 6,
    "validators": [MinValueValidator(Decimal(0)), MaxValueValidator(MAX_USD_PER_MILLION)],
}
BILLIONS: dict[str, Any] = {
    "max_digits": 9,
    "decimal_places": 3,
    "null": True,
    "blank": True,
    "validators": [MinValueValidator(Decimal("0.001")), MaxValueValidator(MAX_PARAMETERS_B)],
}


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
    SAGEMAKER = "sagemaker", "SageMaker endpoint"
    TENSORRT = "tensorrt", "TensorRT"


class SourceKind(models.TextChoices):
    PATH = "path", "Path on the worker's host"
    HUB = "hub", "Hub identifier"
    S3 = "s3", "S3"
    SAGEMAKER = "sagemaker", "SageMaker model package"


class Quantization(models.TextChoices):
    NONE = "none", "None"
    FP8 = "fp8", "FP8"
    INT4_AWQ = "int4-awq", "INT4-AWQ"
    NVFP4 = "nvfp4", "NVFP4"


class ModelVersion(models.Model):
    """Weights at one version, with what they cost. Callers name `name`; a version is what answers.

    `lifecycle` is changed by `inference.lifecycle.actions` alone.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    name = models.CharField(max_length=100, help_text="The name that callers use.")
    version = models.CharField(max_length=40, help_text="Tells versions of one name apart.")
    source_kind = models.CharField(
        "kind of source",
        max_length=12,
        choices=SourceKind.choices,
        blank=True,
        db_default="",
        default="",
        help_text="Empty where the weights are somebody else's.",
    )
    source = models.CharField(max_length=300, blank=True, help_text="Where the weights are.")
    checksum = models.CharField(
        "checksum (SHA-256)",
        max_length=64,
        blank=True,
        db_default="",
        default="",
        validators=[RegexValidator(SHA256, "Expected 64 hexadecimal digits.")],
        help_text="Of the weights, in hexadecimal digits.",
    )
    licence = models.CharField(max_length=80, blank=True)
    parameters_total = models.DecimalField(
        "parameters (B)", **BILLIONS, help_text="All parameters, in billions. Empty: not known."
    )
    parameters_active = models.DecimalField(
        "active parameters (B)", **BILLIONS, help_text="Those that one token uses, in billions."
    )
    quantization = models.CharField(
        max_length=20, choices=Quantization.choices, default=Quantization.NONE, db_default=Quantization.NONE
    )
    kv_bytes_per_token = models.PositiveBigIntegerField(
        "KV cache (bytes/token)",
        null=True,
        blank=True,
        validators=[MinValueValidator(1), MaxValueValidator(MAX_KV_BYTES)],
        help_text="Usually 2 × layers × KV heads × head size × bytes of an element. Empty: not known.",
    )
    engine = models.CharField(
        max_length=12,
        choices=EngineKind.choices,
        blank=True,
        db_default="",
        default="",
        help_text="What its deployments run. Empty: each says for itself.",
    )
    engine_arguments = models.JSONField(
        default=list,
        db_default=models.Value([], models.JSONField()),
        blank=True,
        validators=[check_engine_arguments],
        help_text='What the engine is started with: ["--max-num-seqs", "64"]. No secrets.',
    )
    context_length = models.PositiveIntegerField(
        "context (tokens)",
        validators=[MaxValueValidator(MAX_CONTEXT)],
        help_text="Tokens of prompt and answer together.",
    )
    input_price = models.DecimalField(
        "prompt (USD/M)", **USD_PER_MILLION, default=Decimal(0), help_text="USD per million prompt tokens."
    )
    cached_price = models.DecimalField(
        "cached prompt (USD/M)",
        **USD_PER_MILLION,
        default=Decimal(0),
        help_text="USD per million prompt tokens that the engine had in its cache.",
    )
    output_price = models.DecimalField(
        "answer (USD/M)", **USD_PER_MILLION, default=Decimal(0), help_text="USD per million answer tokens."
    )
    embargo_until = models.DateTimeField(
        "embargo until", null=True, blank=True, help_text="In UTC. It answers nobody before. Empty: no embargo."
    )
    retires_at = models.DateTimeField(
        "retires", null=True, blank=True, help_text="In UTC. It answers nobody from then on. Empty: no date."
    )
    lifecycle = models.CharField(max_length=12, choices=Lifecycle.choices, default=Lifecycle.DRAFT, editable=False)
    created_at = models.DateTimeField("created", db_default=Now(), editable=False)

    class Meta:
        ordering = ["name", "-created_at"]
        constraints = [
            models.UniqueConstraint(fields=["name", "version"], name="model_version_once"),
            models.CheckConstraint(condition=Q(context_length__gte=64), name="model_version_context_length"),
            *(
                models.CheckConstraint(
                    condition=Q(**{f"{price}__gte": 0, f"{price}__lte": MAX_USD_PER_MILLION}),
                    name=f"model_version_{price}",
                    violation_error_message="A price is not negative, and not above 10,000 USD per million tokens.",
                )
                for price in ("input_price", "cached_price", "output_price")
            ),
            models.CheckConstraint(condition=Q(checksum="") | Q(checksum__regex=SHA256), name="model_version_checksum"),
            models.CheckConstraint(
                condition=Q(parameters_active=None)
                | Q(parameters_total__isnull=False, parameters_active__lte=F("parameters_total")),
                name="model_version_parameters",
                violation_error_message="There are no more active parameters than there are parameters.",
            ),
            models.CheckConstraint(
                condition=Q(embargo_until=None) | Q(retires_at=None) | Q(retires_at__gt=F("embargo_until")),
                name="model_version_dates",
                violation_error_message="It retires after its embargo ends.",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name} {self.version}"

    def clean_fields(self, exclude: Any = None) -> None:
        # Tools print digests in either case, and a form's empty list comes as nothing.
        self.checksum = self.checksum.strip().lower()
        self.engine_arguments = self.engine_arguments or []
        super().clean_fields(exclude)

    def clean(self) -> None:
        check_source(self.source_kind, self.source)


class Deployment(models.Model):
    """A model version running somewhere, reached through the Celery queue `gpu.<slug>`."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    slug = models.SlugField(
        "name", max_length=60, unique=True, help_text="Its workers' Celery queue is named after it: it stays."
    )
    model_version = models.ForeignKey(ModelVersion, on_delete=models.PROTECT, related_name="deployments")
    engine = models.CharField(max_length=12, choices=EngineKind.choices)
    zone = models.SlugField(
        max_length=40,
        blank=True,
        db_default="",
        default="",
        db_index=False,
        help_text="Where its hosts are: what a request's residency is compared with. Empty: not known.",
    )
    desired_replicas = models.PositiveSmallIntegerField(
        "replicas wanted", default=1, db_default=1, validators=[MaxValueValidator(1000)], help_text="Workers."
    )
    concurrency = models.PositiveSmallIntegerField(
        "answers at once",
        null=True,
        blank=True,
        validators=[MinValueValidator(1), MaxValueValidator(4096)],
        help_text="That one replica is planned for. Empty: what its worker says.",
    )
    hourly_price = models.DecimalField(
        "price (USD/h)",
        max_digits=12,
        decimal_places=4,
        default=Decimal(0),
        db_default=Decimal(0),
        validators=[MinValueValidator(Decimal(0)), MaxValueValidator(MAX_USD_PER_HOUR)],
        help_text="USD per hour of one replica. External deployments are paid by the token.",
    )
    is_enabled = models.BooleanField("enabled", default=True, help_text="A disabled deployment is sent no new request.")
    is_draining = models.BooleanField(
        "draining",
        default=False,
        db_default=False,
        help_text="It is sent no new request and ends what it has, before it is taken away.",
    )
    created_at = models.DateTimeField("created", db_default=Now(), editable=False)

    class Meta:
        ordering = ["slug"]
        constraints = [
            models.CheckConstraint(
                condition=Q(hourly_price__gte=0, hourly_price__lte=MAX_USD_PER_HOUR),
                name="deployment_hourly_price",
                violation_error_message="A price is not negative, and not above 100,000 USD per hour.",
            )
        ]

    def __str__(self) -> str:
        return self.slug

    def clean(self) -> None:
        # A simulation may stand in for any engine.
        wanted = self.model_version.engine if self.model_version_id else ""
        if wanted and self.engine not in ("", wanted, EngineKind.SIMULATED):
            raise ValidationError({"engine": f"{self.model_version} runs on {EngineKind(wanted).label}."})
        if self.engine == EngineKind.OPENAI and self.hourly_price:
            raise ValidationError({"hourly_price": "An external deployment is paid by the token."})

    @property
    def queue(self) -> str:
        return f"gpu.{self.slug}"

    @property
    def is_external(self) -> bool:
        return self.engine == EngineKind.OPENAI


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


class BudgetState(models.Model):
    """One row: which count of the budgets is in force. An intent that rests on an earlier one is not committed."""

    id = models.BooleanField(primary_key=True, default=True)
    generation = models.BigIntegerField(default=1)

    class Meta:
        constraints = [models.CheckConstraint(condition=Q(id=True), name="budget_state_one_row")]

    def __str__(self) -> str:
        return f"generation {self.generation}"


from inference.budget_models import Budget, BudgetCrossing, LedgerDay, LedgerMonth, Limit, Transfer  # noqa: E402, F401
from inference.engine_models import EngineEvent  # noqa: E402, F401
from inference.evaluation.models import EvaluationSet  # noqa: E402, F401
from inference.exchange_models import Attempt, Exchange  # noqa: E402, F401
from inference.fitting.models import Accelerator  # noqa: E402, F401
from inference.lifecycle.canary_policy import CanaryPolicy  # noqa: E402, F401
from inference.lifecycle.models import LifecycleStep  # noqa: E402, F401
from inference.routing.models import RoutingRule, RoutingRuleSet  # noqa: E402, F401 - Django looks for tables here
from inference.scaling.models import ScalingPolicy, ScalingStep  # noqa: E402, F401

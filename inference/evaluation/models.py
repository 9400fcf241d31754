"""Tables of evaluation: what a version must answer, and how it did. What it answered is kept nowhere."""

from __future__ import annotations

import hashlib
import json
from decimal import Decimal

from django.core.exceptions import ValidationError
from django.core.validators import MaxLengthValidator, MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models.functions import Now

from gpu_workers.identifiers import uuid7
from inference.evaluation.checks import parse_check
from inference.models import ModelVersion

MAX_PROMPTS = 500
MAX_PROMPT = 8_000
MAX_ANSWER_TOKENS = 1_024
# A run is about the version as it is: with other weights or arguments it says nothing.
ABOUT = ("source_kind", "source", "checksum", "quantization", "engine", "engine_arguments", "context_length")


class EvaluationSet(models.Model):
    """The prompts that decide whether a version may go live."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    model_version = models.OneToOneField(ModelVersion, on_delete=models.CASCADE, related_name="evaluation_set")
    threshold = models.DecimalField(
        "threshold (%)",
        max_digits=5,
        decimal_places=2,
        default=Decimal(90),
        validators=[MinValueValidator(Decimal("0.01")), MaxValueValidator(Decimal(100))],
        help_text="Of its prompts, those that must pass at least.",
    )
    created_at = models.DateTimeField("created", db_default=Now(), editable=False)

    class Meta:
        app_label = "inference"
        ordering = ["model_version__name", "-created_at"]

    def __str__(self) -> str:
        return f"Evaluation of {self.model_version}"

    def digest(self) -> str:
        """Tells whether a run was about these prompts and this version. The threshold is compared as it is now."""
        version = self.model_version
        asked = [[row.prompt, row.check_of_answer, row.max_tokens] for row in self.prompts.all()]
        about = [getattr(version, name) for name in ABOUT]
        return hashlib.sha256(json.dumps([about, asked], sort_keys=True, default=str).encode()).hexdigest()


class EvaluationPrompt(models.Model):
    """One prompt and the check that its answer must pass."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    evaluation_set = models.ForeignKey(EvaluationSet, on_delete=models.CASCADE, related_name="prompts")
    position = models.PositiveSmallIntegerField(default=0, db_index=True)
    prompt = models.TextField(max_length=MAX_PROMPT, validators=[MaxLengthValidator(MAX_PROMPT)])
    check_of_answer = models.JSONField(
        "check",
        help_text='{"kind": "contains", "text": "Paris"} · {"kind": "regex", "pattern": "^[0-9]+$"} ·'
        ' {"kind": "number", "value": 4, "tolerance": 0.1} · {"kind": "refusal"} ·'
        ' {"kind": "json_schema", "schema": {"type": "object"}}',
    )
    max_tokens = models.PositiveSmallIntegerField(
        "answer tokens at most",
        default=256,
        validators=[MinValueValidator(1), MaxValueValidator(MAX_ANSWER_TOKENS)],
    )

    class Meta:
        app_label = "inference"
        ordering = ["position", "id"]
        verbose_name = "prompt"

    def __str__(self) -> str:
        return f"Prompt {self.position}"

    def clean(self) -> None:
        try:
            parse_check(self.check_of_answer)
        except (ValueError, RecursionError) as error:
            raise ValidationError({"check_of_answer": str(error)}) from None


class RunState(models.TextChoices):
    WAITING = "waiting", "Waiting"
    RUNNING = "running", "Running"
    FINISHED = "finished", "Finished"
    FAILED = "failed", "Failed"


class EvaluationRun(models.Model):
    """One run of a version's set. Only one that finished counts."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    model_version = models.ForeignKey(ModelVersion, on_delete=models.PROTECT, related_name="evaluation_runs")
    digest = models.CharField(max_length=64, editable=False)
    state = models.CharField(max_length=8, choices=RunState.choices, default=RunState.WAITING)
    error_code = models.CharField("error", max_length=40, blank=True, db_default="", default="")
    deployment = models.CharField(max_length=60, blank=True, db_default="", default="")
    started_by = models.ForeignKey("accounts.User", on_delete=models.SET_NULL, null=True, related_name="+")
    created_at = models.DateTimeField("asked for", db_default=Now())
    finished_at = models.DateTimeField("finished", null=True)
    passed = models.PositiveSmallIntegerField(null=True)
    total = models.PositiveSmallIntegerField("prompts", null=True)

    class Meta:
        app_label = "inference"
        ordering = ["-id"]
        verbose_name = "evaluation run"

    def __str__(self) -> str:
        return f"Evaluation of {self.model_version}"

    @property
    def score(self) -> Decimal | None:
        """Percent of the prompts that passed."""
        return None if self.passed is None or not self.total else Decimal(self.passed) * 100 / self.total


class EvaluationVerdict(models.Model):
    """How one answer of a run did."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    run = models.ForeignKey(EvaluationRun, on_delete=models.CASCADE, related_name="verdicts")
    position = models.PositiveSmallIntegerField("prompt")
    kind = models.CharField("check", max_length=12)
    passed = models.BooleanField()
    reason = models.CharField(max_length=16, blank=True)
    completion_tokens = models.PositiveIntegerField("answer tokens", default=0)

    class Meta:
        app_label = "inference"
        ordering = ["run", "position"]
        verbose_name = "verdict"
        constraints = [models.UniqueConstraint(fields=["run", "position"], name="evaluation_verdict_once")]

    def __str__(self) -> str:
        return f"Prompt {self.position}"

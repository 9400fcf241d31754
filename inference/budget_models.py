"""Tables of limits, budgets and the ledger."""

from __future__ import annotations

from decimal import Decimal
from itertools import pairwise
from typing import Any

from django.contrib.postgres.functions import RandomUUID
from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now

from gpu_workers.identifiers import uuid7
from inference.budgets import MAX_CAP_USD

PERCENT: dict[str, Any] = {
    "max_digits": 5,
    "decimal_places": 2,
    "validators": [MinValueValidator(Decimal(0)), MaxValueValidator(Decimal(100))],
}


class Scoped(models.Model):
    """Something that holds for one organisation, team, key or user."""

    organisation = models.ForeignKey(
        "accounts.Organisation", on_delete=models.CASCADE, null=True, blank=True, related_name="+"
    )
    team = models.ForeignKey("accounts.Team", on_delete=models.CASCADE, null=True, blank=True, related_name="+")
    api_key = models.ForeignKey(
        "accounts.APIKey", verbose_name="API key", on_delete=models.CASCADE, null=True, blank=True, related_name="+"
    )

    class Meta:
        abstract = True


class Limit(Scoped):
    """How much one scope may ask for, all its callers together. Empty: not limited."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    user = models.ForeignKey("accounts.User", on_delete=models.CASCADE, null=True, blank=True, related_name="+")
    model = models.CharField(
        max_length=100,
        blank=True,
        default="",
        db_default="",
        help_text="The name that callers use. Empty: all models together.",
    )
    requests_per_minute = models.PositiveIntegerField(
        null=True, blank=True, help_text="Requests that may start in any 60 seconds."
    )
    tokens_per_minute = models.PositiveIntegerField(
        null=True,
        blank=True,
        help_text="Tokens in any 60 seconds: at first the prompt's estimate and all that the answer may have, "
        "then what the engine counted.",
    )
    concurrent_answers = models.PositiveIntegerField(
        "answers at once", null=True, blank=True, help_text="Answers that may be running at once."
    )

    class Meta:
        ordering = ["organisation__name", "model", "id"]
        constraints = [
            models.UniqueConstraint(
                fields=["organisation", "team", "api_key", "user", "model"], nulls_distinct=False, name="limit_once"
            ),
            models.CheckConstraint(
                condition=Q(organisation__isnull=False)
                | (Q(team__isnull=True, api_key__isnull=True, user__isnull=True) & ~Q(model="")),
                name="limit_has_scope",
            ),
            models.CheckConstraint(
                condition=Q(requests_per_minute__isnull=False)
                | Q(tokens_per_minute__isnull=False)
                | Q(concurrent_answers__isnull=False),
                name="limit_limits",
            ),
        ]

    def __str__(self) -> str:
        return " · ".join(str(part) for part in (self.organisation, self.narrowest(), self.model) if part)

    def narrowest(self) -> models.Model | None:
        """What inside the organisation it is for; None for all of it."""
        return self.api_key or self.user or self.team

    def clean(self) -> None:
        """The same rules as the table's, in words."""
        inner = [name for name in ("team", "api_key", "user") if getattr(self, f"{name}_id") is not None]
        if len(inner) > 1:
            raise ValidationError({inner[1]: "A limit is for one of team, API key and user."})
        if self.organisation_id is None and (inner or not self.model):
            raise ValidationError({"organisation": "Name the organisation, or a model for the limit of all."})
        if inner and _organisation_of(getattr(self, inner[0])) != self.organisation_id:
            raise ValidationError({inner[0]: "It belongs to another organisation."})
        if self.requests_per_minute is self.tokens_per_minute is self.concurrent_answers is None:
            raise ValidationError("Set at least one limit.")


def _organisation_of(part: Any) -> Any:
    """Teams and keys carry their organisation; a user's is that of the membership."""
    member = getattr(part, "member", None)
    return member.organisation_id if member is not None else getattr(part, "organisation_id", None)


class BudgetPeriod(models.TextChoices):
    MONTH = "month", "Month"
    YEAR = "year", "Year"


class Budget(Scoped):
    """What a scope may spend in a calendar month or year (UTC). All that a request falls under hold at once.

    Without organisation, team and key it is the platform's: it counts engine-hours of the platform's own deployments
    and tokens of external ones.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    period = models.CharField(max_length=5, choices=BudgetPeriod.choices, default=BudgetPeriod.MONTH)
    amount = models.DecimalField(
        "amount (USD)",
        max_digits=12,
        decimal_places=2,
        validators=[MinValueValidator(Decimal(0)), MaxValueValidator(Decimal(MAX_CAP_USD))],
    )
    warn_at = models.DecimalField(
        "warn at (%)", **PERCENT, default=Decimal(80), help_text="From here on it is recorded and shown, once a period."
    )
    degrade_at = models.DecimalField(
        "cheaper model at (%)", **PERCENT, default=Decimal(90), help_text="From here on the cheaper model answers."
    )
    cheaper_model = models.CharField(
        max_length=100,
        blank=True,
        default="",
        db_default="",
        help_text="The name of the model that answers then. Empty: the one asked for, unless a routing rule decides.",
    )
    refuse_batch_at = models.DecimalField(
        "refuse batch at (%)", **PERCENT, default=Decimal(95), help_text="From here on batch requests are refused."
    )
    refuse_at = models.DecimalField("refuse all at (%)", **PERCENT, default=Decimal(100))
    is_enabled = models.BooleanField("enabled", default=True)
    created_at = models.DateTimeField("created", db_default=Now(), editable=False)

    class Meta:
        ordering = ["organisation__name", "team__name", "period"]
        constraints = [
            models.UniqueConstraint(
                fields=["organisation", "team", "api_key", "period"], nulls_distinct=False, name="budget_once"
            ),
            models.CheckConstraint(
                condition=Q(organisation__isnull=False) | Q(team__isnull=True, api_key__isnull=True),
                name="budget_has_scope",
            ),
            models.CheckConstraint(condition=Q(team__isnull=True) | Q(api_key__isnull=True), name="budget_one_scope"),
            models.CheckConstraint(condition=Q(amount__gte=0, amount__lte=MAX_CAP_USD), name="budget_amount"),
            models.CheckConstraint(
                condition=Q(warn_at__gte=0)
                & Q(warn_at__lte=F("degrade_at"))
                & Q(degrade_at__lte=F("refuse_batch_at"))
                & Q(refuse_batch_at__lte=F("refuse_at"))
                & Q(refuse_at__lte=100),
                name="budget_ladder",
            ),
        ]

    def __str__(self) -> str:
        whose = self.api_key or self.team or self.organisation or "Platform"
        return f"{whose}, {self.get_period_display().lower()}"

    def clean(self) -> None:
        """The same rules as the table's, in words."""
        if self.team_id is not None and self.api_key_id is not None:
            raise ValidationError({"api_key": "A budget is for a team or for an API key."})
        for name in ("team", "api_key"):
            part = getattr(self, name)
            if part is not None and part.organisation_id != self.organisation_id:
                raise ValidationError({name: "It belongs to another organisation."})
        ladder = ("warn_at", "degrade_at", "refuse_batch_at", "refuse_at")
        for lower, upper in pairwise(ladder):
            low, high = getattr(self, lower), getattr(self, upper)
            if low is not None and high is not None and low > high:
                raise ValidationError({upper: "A later step cannot come before an earlier one."})


class BudgetCrossing(models.Model):
    """A threshold that a budget reached in a period: recorded and told once."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    budget = models.ForeignKey(Budget, on_delete=models.CASCADE, related_name="crossings")
    period = models.CharField(max_length=7, help_text="2026-12 or 2026.")
    stage = models.PositiveSmallIntegerField(
        choices=[(1, "Warned"), (2, "Cheaper model"), (3, "Batch refused"), (4, "All refused")]
    )
    crossed_at = models.DateTimeField("crossed", db_default=Now())
    notified_at = models.DateTimeField("told", null=True)
    tries = models.PositiveSmallIntegerField(db_default=0, default=0)
    tried_at = models.DateTimeField(null=True)
    notice_error = models.CharField(max_length=40, blank=True, db_default="", default="")

    class Meta:
        ordering = ["-crossed_at"]
        constraints = [models.UniqueConstraint(fields=["budget", "period", "stage"], name="budget_crossing_once")]

    def __str__(self) -> str:
        return f"{self.budget} {self.period}: {self.get_stage_display()}"


class TransferKind(models.TextChoices):
    ANSWER = "answer", "Answer"
    ENGINE_HOURS = "engine_hours", "Engine-hours"


class Transfer(models.Model):
    """One movement of the ledger, append-only: what one account owes is what the other has earned.

    An answer moves its cost from the organisation to the deployment, engine-hours from the platform (no organisation)
    to the deployment. Each row is both halves of a double entry; the view `inference_posting` shows them apart.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    kind = models.CharField(max_length=12, choices=TransferKind.choices)
    exchange_id = models.UUIDField("exchange", null=True)
    organisation = models.ForeignKey("accounts.Organisation", on_delete=models.PROTECT, null=True, related_name="+")
    # Without constraints: what was spent stays after a team, key or user is gone.
    team_id = models.UUIDField("team", null=True)
    api_key_id = models.UUIDField("API key", null=True)
    user_id = models.UUIDField("user", null=True)
    deployment = models.ForeignKey("inference.Deployment", on_delete=models.PROTECT, related_name="+")
    external = models.BooleanField(default=False, help_text="Paid to somebody else by the token.")
    model = models.CharField(max_length=100)
    amount = models.DecimalField("amount (USD)", max_digits=20, decimal_places=12)
    prompt_tokens = models.PositiveIntegerField(default=0)
    cached_tokens = models.PositiveIntegerField(default=0)
    completion_tokens = models.PositiveIntegerField("answer tokens", default=0)
    at = models.DateTimeField("counted on", help_text="The exchange's opening: it decides the period.")
    recorded_at = models.DateTimeField("recorded", db_default=Now())

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.CheckConstraint(condition=Q(amount__gte=0), name="transfer_amount"),
            models.UniqueConstraint(fields=["exchange_id"], condition=Q(kind="answer"), name="transfer_once"),
        ]
        indexes = [
            models.Index(fields=["organisation", "at"], include=["amount"], name="transfer_organisation"),
            models.Index(fields=["api_key_id", "at"], include=["amount"], name="transfer_key"),
            models.Index(fields=["team_id", "at"], include=["amount"], name="transfer_team"),
            models.Index(
                fields=["at"],
                include=["amount"],
                condition=Q(kind="engine_hours") | Q(external=True),
                name="transfer_platform",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.get_kind_display()} {self.amount} USD"


class LedgerDay(models.Model):
    """Transfers of one day (UTC) and one kind of each, added up (inference.rollups). Made anew, never edited."""

    id = models.UUIDField(primary_key=True, default=uuid7, db_default=RandomUUID(), editable=False)
    day = models.DateField(db_index=True)
    kind = models.CharField(max_length=12, choices=TransferKind.choices)
    organisation = models.ForeignKey("accounts.Organisation", on_delete=models.PROTECT, null=True, related_name="+")
    team_id = models.UUIDField("team", null=True)
    api_key_id = models.UUIDField("API key", null=True)
    user_id = models.UUIDField("user", null=True)
    deployment = models.ForeignKey("inference.Deployment", on_delete=models.PROTECT, related_name="+")
    external = models.BooleanField()
    model = models.CharField(max_length=100)
    amount = models.DecimalField("amount (USD)", max_digits=24, decimal_places=12)
    prompt_tokens = models.BigIntegerField()
    cached_tokens = models.BigIntegerField()
    completion_tokens = models.BigIntegerField("answer tokens")
    transfers = models.BigIntegerField()

    class Meta:
        ordering = ["-day"]

    def __str__(self) -> str:
        return f"{self.day} {self.model} {self.amount} USD"


class LedgerMonth(models.Model):
    """Days of a month added up: a view, never out of step with them. `id` is made of what tells rows apart."""

    id = models.UUIDField(primary_key=True, editable=False)
    month = models.DateField(help_text="Its first day.")
    kind = models.CharField(max_length=12, choices=TransferKind.choices)
    organisation = models.ForeignKey("accounts.Organisation", on_delete=models.DO_NOTHING, null=True, related_name="+")
    team_id = models.UUIDField("team", null=True)
    api_key_id = models.UUIDField("API key", null=True)
    user_id = models.UUIDField("user", null=True)
    deployment = models.ForeignKey("inference.Deployment", on_delete=models.DO_NOTHING, related_name="+")
    external = models.BooleanField()
    model = models.CharField(max_length=100)
    amount = models.DecimalField("amount (USD)", max_digits=30, decimal_places=12)
    prompt_tokens = models.BigIntegerField()
    cached_tokens = models.BigIntegerField()
    completion_tokens = models.BigIntegerField("answer tokens")
    transfers = models.BigIntegerField()

    class Meta:
        managed = False
        db_table = "inference_ledgermonth"
        ordering = ["-month", "-amount", "id"]
        verbose_name = "month"

    def __str__(self) -> str:
        return f"{self.month:%Y-%m} {self.model} {self.amount} USD"

"""Who may use the platform: organisations, their members and roles, and the keys of their programs."""

from __future__ import annotations

from auditlog.models import LogEntry
from django.contrib.auth.models import AbstractUser
from django.core.exceptions import ValidationError
from django.db import models
from django.db.models.functions import Now

from gpu_workers.identifiers import uuid7


class Organisation(models.Model):
    """A tenant. Its limits hold for each of its keys and users that sets none of its own."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    name = models.CharField(max_length=120, unique=True)
    slug = models.SlugField("short name", max_length=60, unique=True, help_text="Letters, digits and hyphens.")
    is_active = models.BooleanField("active", default=True, help_text="An inactive organisation is served nothing.")
    requests_per_minute = models.PositiveIntegerField(
        default=600, help_text="Requests that each key or user may start in any 60 seconds."
    )
    concurrent_answers = models.PositiveIntegerField(
        "answers at once", default=64, help_text="Answers that each key or user may have running at once."
    )
    four_eyes = models.BooleanField(
        "four eyes",
        default=True,
        help_text="Its administrators cannot approve what they proposed themselves: a second person must.",
    )
    requires_evaluation = models.BooleanField(
        "evaluation before going live",
        default=True,
        help_text="A model version without an evaluation set cannot go live by its administrators' approval.",
    )
    residency = models.SlugField(
        max_length=40,
        blank=True,
        default="",
        db_default="",
        db_index=False,
        help_text="Its requests go to deployments of this zone and to no others. Empty: anywhere.",
    )
    created_at = models.DateTimeField("created", db_default=Now(), editable=False)

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class Team(models.Model):
    """A part of an organisation that has limits and budgets of its own."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    organisation = models.ForeignKey(Organisation, on_delete=models.CASCADE, related_name="teams")
    name = models.CharField(max_length=80)
    created_at = models.DateTimeField("created", db_default=Now(), editable=False)

    class Meta:
        ordering = ["organisation__name", "name"]
        constraints = [models.UniqueConstraint(fields=["organisation", "name"], name="team_once")]

    def __str__(self) -> str:
        return self.name


def check_team(team: Team | None, organisation: Organisation) -> None:
    """Raise ValidationError for a team of another organisation."""
    if team is not None and team.organisation_id != organisation.pk:
        raise ValidationError({"team": "It belongs to another organisation."})


class User(AbstractUser):
    """A person who signs in. What they may do comes from their membership of an organisation."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)

    class Meta(AbstractUser.Meta):
        ordering = ["username"]


class Role(models.TextChoices):
    ADMINISTRATOR = "administrator", "Administrator"
    OFFICER = "officer", "Compliance officer"
    DEVELOPER = "developer", "Application developer"
    END_USER = "end_user", "End user"


class Member(models.Model):
    """A user's place in an organisation. One user belongs to one organisation."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    organisation = models.ForeignKey(Organisation, on_delete=models.CASCADE, related_name="members")
    user = models.OneToOneField(User, on_delete=models.CASCADE, related_name="member")
    role = models.CharField(max_length=20, choices=Role.choices, default=Role.END_USER)
    team = models.ForeignKey(Team, on_delete=models.SET_NULL, null=True, blank=True, related_name="members")
    created_at = models.DateTimeField("created", db_default=Now(), editable=False)

    class Meta:
        ordering = ["organisation__name", "user__username"]

    def __str__(self) -> str:
        return f"{self.user} ({self.get_role_display()})"


class APIKey(models.Model):
    """A program's credential. The key itself is shown once and kept nowhere; the row holds its SHA-256."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    organisation = models.ForeignKey(Organisation, on_delete=models.CASCADE, related_name="api_keys")
    team = models.ForeignKey(
        Team, on_delete=models.SET_NULL, null=True, blank=True, related_name="api_keys", help_text="Empty: none."
    )
    name = models.CharField(max_length=80, help_text="What the program that uses it is called.")
    prefix = models.CharField("key begins with", max_length=12, editable=False)
    digest = models.BinaryField(max_length=32, unique=True, editable=False)
    requests_per_minute = models.PositiveIntegerField(
        null=True,
        blank=True,
        help_text="Requests it may start in any 60 seconds. Empty: the organisation's limit applies.",
    )
    concurrent_answers = models.PositiveIntegerField(
        "answers at once",
        null=True,
        blank=True,
        help_text="Answers it may have running at once. Empty: the organisation's limit applies.",
    )
    created_by = models.ForeignKey(User, on_delete=models.SET_NULL, null=True, editable=False, related_name="+")
    created_at = models.DateTimeField("created", db_default=Now(), editable=False)
    expires_at = models.DateTimeField("expires", null=True, blank=True, help_text="In UTC. Empty: never.")
    revoked_at = models.DateTimeField("revoked", null=True, blank=True, editable=False)

    class Meta:
        verbose_name = "API key"
        verbose_name_plural = "API keys"
        ordering = ["-created_at"]

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix}…)"


class ConfigurationChange(LogEntry):  # type: ignore[misc]  # auditlog has no types
    """A change of accounts or catalog, as auditlog keeps it, under the product's own name."""

    class Meta:
        proxy = True
        ordering = ["-timestamp"]
        verbose_name = "change"

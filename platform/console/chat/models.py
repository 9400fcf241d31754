"""Conversations. Their turns are exchanges; what was said is read from the record."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from gpu_workers.identifiers import uuid7


class Conversation(models.Model):
    """A user's conversation. The title is sealed: it begins as the first words of the first prompt."""

    id = models.UUIDField("conversation", primary_key=True, default=uuid7, editable=False)
    organisation = models.ForeignKey("accounts.Organisation", on_delete=models.CASCADE, related_name="+")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, null=True, related_name="+")
    api_key = models.ForeignKey(
        "accounts.APIKey", verbose_name="API key", on_delete=models.CASCADE, null=True, related_name="+"
    )
    title = models.BinaryField(null=True, editable=False)
    created_at = models.DateTimeField("begun", db_default=Now(), editable=False)
    updated_at = models.DateTimeField("last used", db_default=Now(), editable=False)
    deleted_at = models.DateTimeField(
        "deleted", null=True, editable=False, help_text="When its owner took it off their list. The record keeps it."
    )

    class Meta:
        ordering = ["-updated_at"]
        indexes = [models.Index(fields=["user", "-updated_at"], name="conversation_user")]
        constraints = [
            models.CheckConstraint(
                condition=Q(user__isnull=False, api_key__isnull=True) | Q(user__isnull=True, api_key__isnull=False),
                name="conversation_one_owner",
            )
        ]

    def __str__(self) -> str:
        return str(self.id)

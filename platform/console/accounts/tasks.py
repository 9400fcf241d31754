"""Celery entry points of accounts."""

from __future__ import annotations

from celery import shared_task

from console.accounts import lockout


@shared_task(name="accounts.forget_sign_in_attempts")
def forget_sign_in_attempts() -> int:
    return lockout.forget_attempts()

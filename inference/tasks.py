"""Celery entry points of the platform's own worker."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

from celery import shared_task

from inference import (
    crossing_mails,
    crossing_sweep,
    engine_events,
    engine_hours,
    overdue,
    reconcile,
    rollups,
    specifications,
)
from inference.evaluation import actions as evaluation
from inference.lifecycle import canary, effect
from inference.scaling import loop


@shared_task(name="inference.reconcile_exchanges")
def reconcile_exchanges() -> int:
    return reconcile.reconcile_exchanges()


@shared_task(name="inference.settle_overdue")
def settle_overdue() -> int:
    return overdue.settle_overdue()


@shared_task(name="inference.roll_up")
def roll_up() -> int:
    now = datetime.now(UTC)
    days = rollups.roll_up(now)
    crossing_sweep.note_steps_of_the_ledger(now)
    return days


@shared_task(name="inference.apply_due_steps")
def apply_due_steps() -> int:
    return effect.apply_due_steps()


@shared_task(name="inference.collect_engine_events")
def collect_engine_events() -> int:
    return engine_events.collect_engine_events()


@shared_task(name="inference.publish_specifications")
def publish_specifications() -> int:
    return specifications.publish_specifications()


@shared_task(name="inference.scale")
def scale() -> int:
    return loop.scale_all()


@shared_task(name="inference.send_crossing_mails")
def send_crossing_mails() -> int:
    return crossing_mails.send_crossing_mails(datetime.now(UTC))


@shared_task(name="inference.watch_canaries")
def watch_canaries() -> int:
    return canary.watch_canaries()


@shared_task(name=evaluation.TASK)
def evaluate(run: str) -> None:
    evaluation.run_evaluation(UUID(run))


@shared_task(name="inference.book_engine_hours")
def book_engine_hours() -> int:
    return engine_hours.book_engine_hours(datetime.now(UTC))

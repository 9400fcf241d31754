"""The platform's own Celery application: periodic work of the console. GPU work has its own (gpu_workers.app)."""

from __future__ import annotations

import os
from typing import Any

from celery import Celery
from celery.signals import setup_logging

from gpu_workers.logging import configure_logging
from gpu_workers.transport import configure_transport

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")

app = Celery("console")
configure_transport(app)
app.config_from_object("django.conf:settings", namespace="CELERY")
app.conf.task_default_queue = "platform"
app.conf.beat_schedule = {
    "reconcile-exchanges": {"task": "inference.reconcile_exchanges", "schedule": 15.0},
    "settle-overdue": {"task": "inference.settle_overdue", "schedule": 15.0},
    "book-engine-hours": {"task": "inference.book_engine_hours", "schedule": 60.0},
    "roll-up-ledger": {"task": "inference.roll_up", "schedule": 60.0},
    "apply-due-steps": {"task": "inference.apply_due_steps", "schedule": 5.0},
    "watch-canaries": {"task": "inference.watch_canaries", "schedule": 5.0},
    "send-crossing-mails": {"task": "inference.send_crossing_mails", "schedule": 15.0},
    "scale": {"task": "inference.scale", "schedule": 15.0},
    "publish-specifications": {"task": "inference.publish_specifications", "schedule": 5.0},
    "collect-engine-events": {"task": "inference.collect_engine_events", "schedule": 5.0},
    "forget-sign-in-attempts": {"task": "accounts.forget_sign_in_attempts", "schedule": 300.0},
}
app.autodiscover_tasks()


@setup_logging.connect
def _set_up_logging(**_: Any) -> None:
    configure_logging()

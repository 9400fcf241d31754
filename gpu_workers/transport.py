"""How every Celery application of the platform speaks over Valkey."""

from __future__ import annotations

import os
from collections.abc import Iterable

from celery import Celery

from gpu_workers.broker import broker_url

GENERATE = "gpu_workers.generate"
# kombu keeps a list for each priority; the first has the queue's own name.
SEPARATOR, PRIORITY_STEPS = "\x06\x16", (0, 3, 6, 9)


def own_queue(queue: str, worker: str) -> str:
    """The queue that one worker alone reads, beside its deployment's."""
    return f"{queue}@{worker}"


def queue_lists(queue: str, workers: Iterable[str]) -> list[str]:
    """The lists in the broker in which a deployment's tasks wait: of its own queue and of each worker's."""
    names = [queue, *(own_queue(queue, worker) for worker in workers)]
    return [f"{name}{SEPARATOR}{step}" if step else name for name in names for step in PRIORITY_STEPS]


def configure_transport(app: Celery) -> None:
    """Quiet, result-less, and never redelivered.

    Interactive tasks are acknowledged when they are taken: by the time a broker would give them out again the user
    is gone, and recovery belongs to the pipeline (docs/decisions/0003).
    """
    app.conf.update(
        broker_url=broker_url(os.environ.get("BURSAR_VALKEY_URL", "redis://127.0.0.1:6379/0")),
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        # Without the broker's book of what was taken: it is there to give tasks out again, and costs two round trips.
        broker_transport_options={"ack_emulation": False, "socket_timeout": 5, "socket_connect_timeout": 3},
        task_serializer="json",
        accept_content=["json"],
        task_ignore_result=True,
        task_acks_late=False,
        task_create_missing_queues=True,
        task_send_sent_event=False,
        worker_send_task_events=False,
        worker_disable_rate_limits=True,
        worker_prefetch_multiplier=1,
        worker_enable_remote_control=False,
        worker_hijack_root_logger=False,
        worker_redirect_stdouts=False,
    )

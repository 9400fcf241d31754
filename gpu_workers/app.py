"""The workers' Celery application. It needs the broker's address and the seal key, and no database."""

from __future__ import annotations

import gc
import sys
from typing import Any

from celery import Celery
from celery.signals import celeryd_after_setup, setup_logging, worker_init, worker_shutdown, worker_shutting_down
from kombu import Queue

from gpu_workers import settings as worker_settings
from gpu_workers.logging import configure_logging
from gpu_workers.runner import Runner
from gpu_workers.transport import configure_transport, own_queue

app = Celery("gpu_workers", include=["gpu_workers.tasks"])
configure_transport(app)

_runner: Runner | None = None


def runner() -> Runner:
    if _runner is None:
        raise RuntimeError("The runner starts with the worker.")
    return _runner


@setup_logging.connect
def _set_up_logging(**_: Any) -> None:
    configure_logging()


@celeryd_after_setup.connect
def _read_own_queue(instance: Any = None, **_: Any) -> None:
    """Beside the deployment's queue: what is meant for this worker and no other."""
    settings, queues = worker_settings.load(), instance.app.amqp.queues
    for name in list(queues.consume_from):
        # Not declared: nothing is ever routed to it, and a trace of every worker that has been would stay behind.
        queues.select_add(Queue(own_queue(name, settings.worker), no_declare=True))


@worker_init.connect
def _start(sender: Any = None, **_: Any) -> None:
    global _runner
    # A request passes through three threads here; each hand-over waits for this at most.
    sys.setswitchinterval(0.0005)
    _runner = Runner(worker_settings.load(), capacity=int(getattr(sender, "concurrency", 0) or 0))
    _runner.start()
    gc.freeze()  # what is loaded now stays: the collector need not walk it while answers stream


@worker_shutting_down.connect
def _drain(**_: Any) -> None:
    if _runner is not None:
        _runner.give_up_all()


@worker_shutdown.connect
def _stop(**_: Any) -> None:
    if _runner is not None:
        _runner.stop()

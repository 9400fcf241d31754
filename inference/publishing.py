"""Celery's messages, built here and sent by the event loop: kombu's own way to Valkey would hold the loop up.

Celery writes the task's message, as it does everywhere. The transport below keeps it instead of sending it, and the
caller pushes it, with the client that it has anyway, onto the list that a worker's kombu reads.
"""

from __future__ import annotations

from typing import Any, cast

from celery import Celery
from kombu import Connection, Producer
from kombu.transport import virtual
from kombu.transport.redis import Channel as ValkeyChannel
from kombu.utils.json import dumps

# Workers read a list for each of these priorities of a queue; a lower one goes first.
PRIORITY_STEPS: tuple[int, ...] = tuple(ValkeyChannel.priority_steps)


def list_of(queue: str, priority: int) -> str:
    """The list in Valkey on which a worker looks for tasks of this queue and one of `PRIORITY_STEPS`."""
    return f"{queue}{ValkeyChannel.sep}{priority}" if priority else queue


class _Channel(virtual.Channel):
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.kept: list[str] = []

    def _put(self, queue: str, message: dict[str, Any], **_: Any) -> None:
        self.kept.append(dumps(message))


class _Transport(virtual.Transport):
    Channel = _Channel
    driver_type = driver_name = "kept"


class TaskMessages:
    """Builds messages; not for more than one thread at a time."""

    def __init__(self, app: Celery) -> None:
        self._app = app
        self._channel = cast(_Channel, Connection(transport=_Transport).channel())
        self._producer = Producer(self._channel, auto_declare=False)

    def build(self, name: str, *, task_id: str, args: tuple[Any, ...], queue: str, priority: int) -> str:
        """The message of one task, as it lies in `list_of(queue, priority)`."""
        self._app.send_task(
            name,
            args=args,
            queue=queue,
            task_id=task_id,
            argsrepr="sealed",
            kwargsrepr="",
            retry=False,
            priority=priority,
            producer=self._producer,
        )
        return self._channel.kept.pop()

"""Socket answers that run in this process: numbered, kept for a resume, cancelled when nobody waits any more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Literal
from uuid import UUID

import msgspec
import structlog
from redis.asyncio import Redis
from redis.exceptions import RedisError

from console.chat import protocol
from console.chat.released import Released, ReleasedEvents
from inference.answers import Answers
from inference.cancellation import Cancellation
from inference.errors import Refusal
from inference.events import Ask, Caller, Delta, Event, Refused, Started

log = structlog.get_logger(__name__)

# Given a frame, and whether it is the answer's last.
Sink = Callable[[bytes, bool], None]


class Control(msgspec.Struct, frozen=True):
    """What another process asks of the one that serves an exchange."""

    do: Literal["cancel", "attach", "detach"]
    exchange: UUID


def control_channel(owner: str) -> str:
    return f"bursar:control:{owner}"


class LiveAnswer:
    """One answer and those who read it: the socket that asked, and followers on other sockets."""

    def __init__(
        self, answers: LiveAnswers, ask: Ask, ask_id: str, caller: Caller, linger_s: float, sink: Sink
    ) -> None:
        self.ask = ask
        self.ask_id = ask_id
        self._answers = answers
        self.caller = caller
        self._linger_s = linger_s
        self._sink: Sink | None = sink
        self._followers = 0
        self._sequence = 0
        self._waiting: asyncio.TimerHandle | None = None
        self._cancellation: Cancellation | None = None

    def start(self, answers: Answers) -> None:
        self._cancellation = answers.start(self.ask, self.caller, self._on_event)

    def cancel(self) -> None:
        if self._cancellation is not None:
            self._cancellation.cancel()

    def leave(self, *, clean: bool) -> None:
        """The socket that asked is gone. A connection that broke may come back, one that closed will not."""
        self._sink = None
        if clean:
            self.cancel()
        else:
            self._wait_for_readers()

    def attach(self) -> None:
        self._followers += 1
        if self._waiting is not None:
            self._waiting.cancel()

    def detach(self) -> None:
        self._followers = max(0, self._followers - 1)
        self._wait_for_readers()

    def _wait_for_readers(self) -> None:
        if self._sink is None and self._followers == 0:
            self._waiting = asyncio.get_running_loop().call_later(self._linger_s, self.cancel)

    def _on_event(self, event: Event) -> None:
        if isinstance(event, Refused) and self._sequence == 0:
            self._refuse(event.refusal)
            return
        final = not isinstance(event, Started | Delta)
        frame = protocol.encode(event, self._sequence, self.ask_id, self.ask.exchange_id, self.ask.conversation_id)
        self._answers.released.append(self.ask.exchange_id, Released(self._sequence, frame, final))
        self._sequence += 1
        self._hand_over(frame, final)

    def _refuse(self, refusal: Refusal) -> None:
        """Refused before it began: nothing is kept, and the same id may ask again."""
        self._answers.forget(self)
        self._hand_over(protocol.encode_error(refusal, self.ask_id), True)

    def _hand_over(self, frame: bytes, final: bool) -> None:
        if final:
            self._answers.ended(self)
        if self._sink is not None:
            self._sink(frame, final)


class LiveAnswers:
    """All live answers of this process, and the channel on which others ask about them."""

    def __init__(self, answers: Answers, released: ReleasedEvents, valkey: Redis, owner: str) -> None:
        self.released = released
        self._answers = answers
        self._valkey = valkey
        self._owner = owner
        self._live: dict[UUID, LiveAnswer] = {}
        self._forgetting: set[asyncio.Task[None]] = set()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._listen(), name="control")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def begin(self, answer: LiveAnswer) -> None:
        self._live[answer.ask.exchange_id] = answer
        answer.start(self._answers)

    def ended(self, answer: LiveAnswer) -> None:
        self._live.pop(answer.ask.exchange_id, None)

    def forget(self, answer: LiveAnswer) -> None:
        task = asyncio.create_task(self.released.forget(answer.caller.name, answer.ask_id, answer.ask.exchange_id))
        self._forgetting.add(task)
        task.add_done_callback(self._forgetting.discard)

    async def tell(self, owner: str, control: Control) -> None:
        """Ask the process `owner`, which may be this one. Raises `RedisError`."""
        if owner == self._owner:
            self._obey(control)
        else:
            await self._valkey.publish(control_channel(owner), msgspec.json.encode(control))

    def _obey(self, control: Control) -> None:
        answer = self._live.get(control.exchange)
        if answer is None:
            return
        match control.do:
            case "cancel":
                answer.cancel()
            case "attach":
                answer.attach()
            case "detach":
                answer.detach()

    async def _listen(self) -> None:
        while True:
            try:
                async with self._valkey.pubsub() as pubsub:
                    await pubsub.subscribe(control_channel(self._owner))
                    while True:
                        message = await pubsub.get_message(ignore_subscribe_messages=True, timeout=5.0)
                        if message is not None:
                            self._obey(msgspec.json.decode(message["data"], type=Control))
            except msgspec.MsgspecError:
                log.warning("control_not_understood")
            except (RedisError, OSError) as error:
                log.warning("control_channel_lost", error=type(error).__name__)
                await asyncio.sleep(0.5)

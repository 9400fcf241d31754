"""Released events, kept in Valkey for two minutes so that a client that reconnects anywhere can resume."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from uuid import UUID

import msgspec
import structlog
from redis.asyncio import Redis
from redis.exceptions import RedisError

from gpu_workers.messages import owner_key
from gpu_workers.sealing import Sealer
from gpu_workers.streams import newest_entry, read_stream

log = structlog.get_logger(__name__)

KEEP_S = 120
IDEMPOTENT_S = 600
# No answer runs longer: the exchange's deadline, with room for its end.
RUNNING_S = 180
FLUSH_S = 0.02
POLL_S = 0.05
READ_COUNT = 200
DELETE_IF = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"
# How long an exchange may have no event at all: it is being admitted and inspected.
NOTHING_YET_S = 10.0
FINAL = b"f"


class NeverBegan(Exception):
    """The exchange that an id stood for ended before it began, and the id is free again."""


class ExchangeNote(msgspec.Struct, frozen=True):
    """What another process must know of an exchange to let its caller resume or cancel it."""

    owner: str
    caller: str
    ask_id: str


@dataclass(frozen=True, slots=True)
class Released:
    sequence: int
    frame: bytes
    final: bool


class ReleasedEvents:
    """Writes behind: `append` returns at once, and one task sends what has gathered."""

    def __init__(self, valkey: Redis, seal_key: bytes, owner: str) -> None:
        self._valkey = valkey
        self._delete_if = valkey.register_script(DELETE_IF)
        self._seal_key = seal_key
        self._owner = owner
        self._gathered: list[tuple[UUID, Released]] = []
        self._some = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._write(), name="released-events")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._flush()

    async def open(self, exchange: UUID, caller: str, ask_id: str) -> UUID | None:
        """Note a new exchange. Where the caller used `ask_id` before, the exchange that it started then."""
        note = msgspec.json.encode(ExchangeNote(self._owner, caller, ask_id))
        async with self._valkey.pipeline(transaction=False) as pipe:
            pipe.set(_idempotency_key(caller, ask_id), exchange.bytes, nx=True, get=True, ex=IDEMPOTENT_S)
            pipe.set(_note_key(exchange), note, ex=IDEMPOTENT_S)
            earlier, _ = await pipe.execute()
        return UUID(bytes=earlier) if earlier else None

    async def forget(self, caller: str, ask_id: str, exchange: UUID) -> None:
        """Let `ask_id` be used again where it stands for `exchange`, which was refused before it began."""
        try:
            await self._delete_if(keys=[_idempotency_key(caller, ask_id)], args=[exchange.bytes])
        except (RedisError, OSError) as error:
            log.warning("idempotency_key_not_freed", error=type(error).__name__)

    async def _stands_for(self, note: ExchangeNote, exchange: UUID) -> bool:
        return bool(await self._valkey.get(_idempotency_key(note.caller, note.ask_id)) == exchange.bytes)

    async def note(self, exchange: UUID) -> ExchangeNote | None:
        found = await self._valkey.get(_note_key(exchange))
        return msgspec.json.decode(found, type=ExchangeNote) if found else None

    def append(self, exchange: UUID, event: Released) -> None:
        self._gathered.append((exchange, event))
        self._some.set()

    async def follow(self, exchange: UUID, after: int, note: ExchangeNote) -> AsyncIterator[bytes]:
        """The frames after sequence `after`, and then those that come. Raises `NeverBegan`.

        Ends with the last one, which is given again where the reader has it; without it, when the owner died or
        the events are no longer kept.
        """
        sealer = Sealer(self._seal_key, exchange)
        key, last = _events_key(exchange), _entry_id(after)
        patience = NOTHING_YET_S
        while True:
            alive = await self._valkey.exists(owner_key(note.owner))
            entries = await read_stream(self._valkey, key, last, count=READ_COUNT)
            newest = None if entries else await newest_entry(self._valkey, key)
            if newest is not None and _place_of(newest[0]) > _place_of(last):
                continue  # it came between the two looks, perhaps not alone
            if newest is not None and FINAL in newest[1]:
                entries = [newest]  # the reader has it already, or says so
            for last, fields in entries:
                yield sealer.open(fields[b"s"], place=f"released/{last}")
                if FINAL in fields:
                    return
            if not entries:
                if newest is None and not await self._stands_for(note, exchange):
                    raise NeverBegan
                if not alive or (newest is None and patience <= 0):
                    return
                await asyncio.sleep(POLL_S)
                patience -= POLL_S

    async def _write(self) -> None:
        while True:
            await self._some.wait()
            await asyncio.sleep(FLUSH_S)
            await self._flush()

    async def _flush(self) -> None:
        gathered, self._gathered = self._gathered, []
        self._some.clear()
        if not gathered:
            return
        try:
            async with self._valkey.pipeline(transaction=False) as pipe:
                for exchange, event in gathered:
                    self._add(pipe, exchange, event)
                await pipe.execute()
        except (RedisError, OSError) as error:
            # The events have reached their reader; what is lost is the chance to resume.
            log.warning("released_events_not_kept", events=len(gathered), error=type(error).__name__)

    def _add(self, pipe: Redis, exchange: UUID, event: Released) -> None:
        entry_id = _entry_id(event.sequence)
        sealed = Sealer(self._seal_key, exchange).seal(event.frame, place=f"released/{entry_id}")
        fields: dict[str, bytes] = {"s": sealed} | ({"f": b"1"} if event.final else {})
        pipe.xadd(_events_key(exchange), fields, id=entry_id)  # type: ignore[arg-type]
        if event.sequence == 0:
            # For an answer whose process dies before its end.
            pipe.expire(_events_key(exchange), RUNNING_S + KEEP_S)
        if event.final:
            pipe.expire(_events_key(exchange), KEEP_S)


def _entry_id(sequence: int) -> str:
    """Sequence numbers plus one: a stream has no entry 0-0."""
    return f"0-{sequence + 1}"


def _place_of(entry_id: str) -> int:
    return int(entry_id.partition("-")[2])


def _events_key(exchange: UUID) -> str:
    return f"bursar:released:{exchange}"


def _note_key(exchange: UUID) -> str:
    return f"bursar:exchange:{exchange}"


def _idempotency_key(caller: str, ask_id: str) -> str:
    return f"bursar:ask:{caller}:{ask_id}"

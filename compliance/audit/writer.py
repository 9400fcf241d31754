"""The group-committed writer: one per process, it turns the records of a few milliseconds into one transaction."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, LiteralString

import psycopg
import structlog

log = structlog.get_logger(__name__)

GATHER_S = 0.002
CONNECT_TIMEOUT_S = 3
COMMIT_TIMEOUT_S = 10.0
# What may wait at once. Past it the writer says that it is unavailable, rather than hold what it cannot keep.
MAX_WAITING = 10_000


class RecordUnavailable(Exception):
    """The record could not be written now. Nothing may be served that depends on it.

    `sqlstate` is what the database said, where it refused.
    """

    def __init__(self, message: str, sqlstate: str | None = None) -> None:
        super().__init__(message)
        self.sqlstate = sqlstate


class RecordConflict(Exception):
    """The record already holds another entry in this one's place."""


@dataclass(frozen=True, slots=True)
class Statement:
    sql: LiteralString
    values: Sequence[Any]


@dataclass(slots=True)
class _Record:
    statements: Sequence[Statement]
    committed: asyncio.Future[None]


class GroupWriter:
    """`commit` returns when PostgreSQL has made the record durable, and not before."""

    def __init__(self, database_url: str) -> None:
        self._database_url = database_url
        self._waiting: asyncio.Queue[_Record] = asyncio.Queue(MAX_WAITING)
        self._connection: psycopg.AsyncConnection[Any] | None = None
        self._worker: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._worker = asyncio.create_task(self._work(), name="group-writer")

    async def stop(self) -> None:
        """Write what waits, then close."""
        await self._waiting.join()
        if self._worker is not None:
            self._worker.cancel()
            await asyncio.gather(self._worker, return_exceptions=True)
        await self._disconnect()

    async def commit(self, statements: Sequence[Statement]) -> None:
        """Write `statements` in one transaction, all or none. Raises `RecordUnavailable`, `RecordConflict`."""
        await asyncio.shield(self.submit(statements))

    def submit(self, statements: Sequence[Statement]) -> asyncio.Future[None]:
        """Like `commit`, for those who wait later. The record is written even if nobody waits any more."""
        committed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # An exception that nobody fetches would be reported as lost; the writer has logged it already.
        committed.add_done_callback(lambda future: future.cancelled() or future.exception())
        try:
            self._waiting.put_nowait(_Record(statements, committed))
        except asyncio.QueueFull:
            log.error("record_queue_full", waiting=MAX_WAITING)
            committed.set_exception(RecordUnavailable("Too many records wait to be written."))
        return committed

    async def _work(self) -> None:
        while True:
            batch = [await self._waiting.get()]
            await asyncio.sleep(GATHER_S)
            while not self._waiting.empty():
                batch.append(self._waiting.get_nowait())
            try:
                await self._write(batch)
            except asyncio.CancelledError:
                _fail(batch, RecordUnavailable("The writer was stopped."))
                raise
            finally:
                for _ in batch:
                    self._waiting.task_done()

    async def _write(self, batch: list[_Record]) -> None:
        try:
            await self._transact([statement for record in batch for statement in record.statements])
        except Exception as error:  # a value that the driver cannot send raises what it likes
            if len(batch) > 1 or not isinstance(error, psycopg.errors.IntegrityError):
                log.warning("group_commit_failed", records=len(batch), error=type(error).__name__)
            # One record may spoil the transaction of all, or the connection was stale: each once more, alone.
            await self._write_each(batch)
            return
        for record in batch:
            _resolve(record)

    async def _write_each(self, batch: list[_Record]) -> None:
        for position, record in enumerate(batch):
            if not await self._write_alone(record):
                # Each would wait for its own timeout, and those who wait for them for the sum of all.
                _fail(batch[position:], RecordUnavailable("The record cannot be reached."))
                return

    async def _write_alone(self, record: _Record) -> bool:
        """False where the database cannot be reached at all."""
        try:
            await self._transact(record.statements)
        except psycopg.errors.UniqueViolation as error:
            if (error.diag.constraint_name or "").endswith("_pkey"):
                _resolve(record)  # the first try was committed after all: the identifiers are ours alone
            else:
                _fail([record], RecordConflict("The record already has this entry."))
        except Exception as error:
            log.error("record_not_written", error=type(error).__name__)
            _fail([record], RecordUnavailable("The record cannot be written.", getattr(error, "sqlstate", None)))
            return not _is_unreachable(error)
        else:
            _resolve(record)
        return True

    async def _transact(self, statements: Sequence[Statement]) -> None:
        connection = await self._connect()
        try:
            async with asyncio.timeout(COMMIT_TIMEOUT_S):
                # In pipeline mode BEGIN, every statement and COMMIT travel together: one round trip. Written out,
                # since psycopg's transaction block costs as much again as the statements in it.
                async with connection.pipeline(), connection.cursor() as cursor:
                    await cursor.execute("BEGIN")
                    for statement in statements:
                        await cursor.execute(statement.sql, statement.values)
                    await cursor.execute("COMMIT")
        except BaseException:
            await self._disconnect()  # whatever went wrong, a transaction that is not whole ends with its connection
            raise

    async def _connect(self) -> psycopg.AsyncConnection[Any]:
        if self._connection is None or self._connection.closed:
            self._connection = await psycopg.AsyncConnection.connect(
                self._database_url, autocommit=True, connect_timeout=CONNECT_TIMEOUT_S, application_name="bursar-writer"
            )
        return self._connection

    async def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(psycopg.Error, OSError):
                await connection.close()


def _is_unreachable(error: Exception) -> bool:
    if isinstance(error, psycopg.OperationalError):
        return error.sqlstate in (None, "57P03")  # no connection; or a server that is still starting
    return isinstance(error, TimeoutError | OSError)


def _resolve(record: _Record) -> None:
    if not record.committed.done():
        record.committed.set_result(None)


def _fail(batch: list[_Record], error: Exception) -> None:
    for record in batch:
        if not record.committed.done():
            record.committed.set_exception(error)

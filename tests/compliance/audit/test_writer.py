"""The group-committed writer against a real PostgreSQL that is locked, cut off, lied about and stopped."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psycopg
import pytest

from compliance.audit import writer as writers
from compliance.audit.writer import GroupWriter, RecordConflict, RecordUnavailable, Statement
from tests.services import Services, running_services

INSERT = "INSERT INTO entry (id, slot, note) VALUES (%s, %s, %s)"
# A bound on hanging, not a claim about speed.
PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def servers() -> Iterator[Services]:
    """Servers of this file alone: it stops them."""
    with running_services() as services:
        yield services


@pytest.fixture
def url(servers: Services) -> str:
    url = servers.postgres.url()
    with psycopg.connect(url) as connection:
        connection.execute("DROP TABLE IF EXISTS entry")
        connection.execute(
            "CREATE TABLE entry (place bigint GENERATED ALWAYS AS IDENTITY, id int PRIMARY KEY,"
            " slot text CONSTRAINT entry_once UNIQUE, note text CHECK (note <> 'bad'))"
        )
    return url


@asynccontextmanager
async def writing(url: str) -> AsyncIterator[GroupWriter]:
    writer = GroupWriter(url)
    writer.start()
    try:
        async with asyncio.timeout(PATIENCE_S):
            yield writer
            await writer.stop()
    finally:
        if writer._worker is not None:
            writer._worker.cancel()


def record(number: int, slot: str | None = None, note: str = "") -> list[Statement]:
    return [Statement(INSERT, (number, slot or f"slot {number}", note))]


def rows(url: str, sql: str = "SELECT id FROM entry ORDER BY id") -> list[Any]:
    with psycopg.connect(url) as connection:
        found = connection.execute(sql).fetchall()  # type: ignore[arg-type]
    return [row[0] if len(row) == 1 else row for row in found]


async def test_many_commits_share_few_transactions_and_each_is_there_when_it_returns(url: str) -> None:
    rng = random.Random(3)

    async def commit(writer: GroupWriter, number: int) -> bool:
        await asyncio.sleep(rng.random() * 0.2)
        await writer.commit(record(number))
        return number % 50 != 0 or number in await asyncio.to_thread(rows, url)

    async with writing(url) as writer:
        seen = await asyncio.gather(*(commit(writer, number) for number in range(500)))

    assert all(seen)
    assert rows(url) == list(range(500))
    (transactions,) = rows(url, "SELECT count(DISTINCT xmin::text) FROM entry")
    assert transactions < 150


async def test_records_are_written_in_the_order_in_which_they_came(url: str) -> None:
    numbers = random.Random(8).sample(range(1000), 300)
    async with writing(url) as writer:
        await asyncio.gather(*(writer.submit(record(number)) for number in numbers))

    assert rows(url, "SELECT id FROM entry ORDER BY place") == numbers


async def test_a_record_that_contradicts_another_fails_alone(url: str) -> None:
    async with writing(url) as writer:
        await writer.commit(record(1, "taken"))
        batch = [writer.submit(record(number, "taken" if number == 7 else None)) for number in range(2, 20)]
        results = await asyncio.gather(*batch, return_exceptions=True)

    assert [type(result) for result in results] == [RecordConflict if n == 7 else type(None) for n in range(2, 20)]
    assert rows(url) == [number for number in range(1, 20) if number != 7]


@pytest.mark.parametrize(
    "spoiled",
    [
        Statement(INSERT, (5, "s", "bad")),
        Statement(INSERT, (5, "s", "a\x00b")),
        Statement(INSERT, (5, "s", "a\ud800b")),
        Statement(INSERT, ("no number", "s", "")),
        Statement(INSERT, (5, "s")),
        Statement(INSERT, (5, object(), "")),
        Statement("INSERT INTO nowhere VALUES (1)", ()),
        Statement("this is no SQL", ()),
    ],
)
async def test_a_record_that_cannot_be_written_fails_alone_and_the_writer_goes_on(url: str, spoiled: Statement) -> None:
    async with writing(url) as writer:
        batch = [writer.submit(statements) for statements in (record(1), [*record(2), spoiled], record(3))]
        results = await asyncio.gather(*batch, return_exceptions=True)
        await writer.commit(record(4, note="after"))

    assert [type(result) for result in results] == [type(None), RecordUnavailable, type(None)]
    assert rows(url) == [1, 3, 4]


async def test_all_statements_of_a_record_are_written_or_none(url: str) -> None:
    async with writing(url) as writer:
        await writer.commit(record(1, "taken"))
        with pytest.raises(RecordConflict):
            await writer.commit([*record(2), *record(3, "taken"), *record(4)])

    assert rows(url) == [1]


async def test_who_stops_waiting_takes_nothing_from_the_record(url: str) -> None:
    async with writing(url) as writer:
        waiting = asyncio.create_task(writer.commit(record(1)))
        await asyncio.sleep(0)
        waiting.cancel()
        with suppress(asyncio.CancelledError):
            await waiting

    assert rows(url) == [1]


async def test_stopping_writes_what_waits(url: str) -> None:
    async with writing(url) as writer:
        futures = [writer.submit(record(number)) for number in range(50)]
    assert all(future.done() and future.exception() is None for future in futures)
    assert rows(url) == list(range(50))


@asynccontextmanager
async def locked(url: str) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
    """Nothing can be inserted while this is open."""
    async with await psycopg.AsyncConnection.connect(url) as connection:
        await connection.execute("LOCK TABLE entry IN SHARE MODE")
        yield connection


BACKENDS = "FROM pg_stat_activity WHERE application_name = 'bursar-writer' AND wait_event_type = 'Lock'"


async def writer_waits(connection: psycopg.AsyncConnection[Any]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while (await (await connection.execute(f"SELECT count(*) {BACKENDS}")).fetchone()) != (1,):
            await connection.execute("SELECT pg_stat_clear_snapshot()")
            await asyncio.sleep(0.02)


async def test_a_backend_that_ends_before_the_commit_is_tried_once_more(url: str) -> None:
    async with writing(url) as writer:
        async with locked(url) as lock:
            futures = [writer.submit(record(number)) for number in range(3)]
            await writer_waits(lock)
            await lock.execute(f"SELECT pg_terminate_backend(pid) {BACKENDS}")
        await asyncio.gather(*futures)

    assert rows(url) == [0, 1, 2]


@dataclass
class Line:
    """A way to the server that can lose what the server says, or break and lead nowhere from then on."""

    directory: Path
    lose_next_commit: bool = False
    dead: bool = False
    lost: int = 0
    open: set[asyncio.StreamWriter] = field(default_factory=set)

    def die(self) -> None:
        self.dead = True
        for writer in self.open:
            writer.close()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.dead:
            await reader.read()  # takes what comes and says nothing
            writer.close()
            return
        self.open.add(writer)
        server, to_server = await asyncio.open_unix_connection(str(self.directory / ".s.PGSQL.5432"))
        there = asyncio.create_task(self._pass_on(reader, to_server))
        with suppress(OSError):
            while data := await server.read(65_536):
                if self.lose_next_commit and b"COMMIT\x00" in data:
                    self.lose_next_commit = False
                    self.lost += 1
                    break
                writer.write(data)
        for end in (writer, to_server):
            end.close()
        there.cancel()

    async def _pass_on(self, reader: asyncio.StreamReader, to_server: asyncio.StreamWriter) -> None:
        while data := await reader.read(65_536):
            to_server.write(data)


@asynccontextmanager
async def line_to(servers: Services) -> AsyncIterator[tuple[Line, str]]:
    line = Line(servers.postgres.places.sockets)
    with TemporaryDirectory(prefix="line-") as directory:
        listening = await asyncio.start_unix_server(line.serve, path=f"{directory}/.s.PGSQL.5432")
        yield line, f"{servers.postgres.url().split('?')[0]}?host={directory}"
        listening.close()


async def test_a_commit_whose_confirmation_is_lost_is_recorded_once_and_reported_as_done(
    servers: Services, url: str
) -> None:
    async with line_to(servers) as (line, through), writing(through) as writer:
        await writer.commit(record(1))
        line.lose_next_commit = True
        await asyncio.gather(*(writer.submit(record(number)) for number in range(2, 6)))
        await writer.commit(record(6))

    assert line.lost == 1
    assert rows(url) == [1, 2, 3, 4, 5, 6]


async def test_a_server_that_says_nothing_fails_all_that_wait_together(
    servers: Services, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writers, "CONNECT_TIMEOUT_S", 2)
    async with line_to(servers) as (line, through), writing(through) as writer:
        await writer.commit(record(1))
        line.die()
        futures = [writer.submit(record(number)) for number in range(2, 60)]
        results = await asyncio.gather(*futures, return_exceptions=True)
        line.dead = False
        await writer.commit(record(60))

    assert {type(result) for result in results} == {RecordUnavailable}
    assert rows(url) == [1, 60]


async def test_a_stopped_server_is_unavailable_and_the_same_writer_goes_on_when_it_is_back(
    servers: Services, url: str
) -> None:
    async with writing(url) as writer:
        await writer.commit(record(1))
        await asyncio.to_thread(servers.stop, servers.postgres)
        results = await asyncio.gather(*(writer.submit(record(n)) for n in range(100, 200)), return_exceptions=True)
        with pytest.raises(RecordUnavailable):
            await writer.commit(record(2))
        servers.start(servers.postgres)  # not from a thread: it would end with it
        await writer.commit(record(3))

    assert {type(result) for result in results} == {RecordUnavailable}
    assert rows(url) == [1, 3]


async def test_what_cannot_be_held_is_refused_at_once(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writers, "MAX_WAITING", 10)
    async with writing(url) as writer:
        async with locked(url) as lock:
            first = writer.submit(record(0))
            await writer_waits(lock)
            futures = [writer.submit(record(number)) for number in range(1, 31)]
            refused = [future for future in futures if future.done()]
            assert len(refused) == 20
            for future in refused:
                with pytest.raises(RecordUnavailable):
                    await future
        await first

    assert rows(url) == list(range(11))

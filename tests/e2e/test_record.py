"""What is written where while answers stream: the record before the user, and nothing in clear on the way."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import threading
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import psycopg
import pytest
import redis

from compliance.audit.entries import IntentPayload, OutcomePayload
from compliance.crypto.record_key import PayloadBroken, RecordKey
from tests.client import ChatClient, text_of
from tests.e2e.people import Browser
from tests.stack import Stack, wait_for

PROMPT = "plughword says that Jane Doe, card 4111 1111 1111 1111, likes xyzzysecret"
# The beginning goes out token by token, so the first token is looked for by itself.
SAID = ["plughword", "xyzzysecret", "Jane Doe", "4111 1111", "[simulated]", "written by a model", "watched without"]
KEYS = ["BURSAR_SEAL_KEY", "BURSAR_RECORD_KEY", "BURSAR_SECRET_KEY", "BURSAR_API_KEY", "BURSAR_USER_PASSWORD"]
BASE64 = re.compile(rb"[A-Za-z0-9+/_-]{24,}={0,2}")


def unwrapped(data: bytes, depth: int = 3) -> Iterator[bytes]:
    """`data`, and what lies in it as base64, and in that."""
    yield data
    if depth:
        for found in BASE64.findall(data):
            digits = found.rstrip(b"=").replace(b"-", b"+").replace(b"_", b"/")
            digits = digits[: len(digits) - (len(digits) % 4 == 1)]
            yield from unwrapped(base64.b64decode(digits + b"=" * (-len(digits) % 4)), depth - 1)


def needles(stack: Stack) -> list[bytes]:
    secrets = [stack.environment[name] for name in KEYS]
    raw = [bytes.fromhex(secret) for secret in secrets if re.fullmatch("[0-9a-f]{64}", secret)]
    clear = [*(text.encode() for text in (*SAID, *secrets)), *raw]
    return [*clear, *(text.hex().encode() for text in clear)]


def found_in(data: bytes, stack: Stack) -> list[bytes]:
    return [needle for layer in unwrapped(data) for needle in needles(stack) if needle in layer]


READERS: dict[bytes, Any] = {
    b"string": lambda valkey, key: valkey.get(key),
    b"list": lambda valkey, key: valkey.lrange(key, 0, -1),
    b"set": lambda valkey, key: valkey.smembers(key),
    b"zset": lambda valkey, key: valkey.zrange(key, 0, -1, withscores=True),
    b"hash": lambda valkey, key: valkey.hgetall(key),
    b"stream": lambda valkey, key: valkey.xrange(key),
    b"none": lambda valkey, key: None,
}


def flat(value: Any) -> Iterator[bytes]:
    if isinstance(value, dict):
        value = [*value.keys(), *value.values()]
    if isinstance(value, list | tuple | set):
        for part in value:
            yield from flat(part)
    elif isinstance(value, bytes):
        yield value


class Watch:
    """Everything that Valkey holds, again and again, and everything that it is told."""

    def __init__(self, stack: Stack) -> None:
        self._url = stack.services.valkey.url()
        self._stop = threading.Event()
        self.seen: set[bytes] = set()
        self.kinds: set[str] = set()
        self.commands: list[bytes] = []
        self._threads = [threading.Thread(target=self._look), threading.Thread(target=self._listen)]

    def __enter__(self) -> Watch:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        with redis.Redis.from_url(self._url) as valkey:
            valkey.ping()  # so that the listener wakes up
        for thread in self._threads:
            thread.join()

    def _look(self) -> None:
        with redis.Redis.from_url(self._url) as valkey:
            while not self._stop.is_set():
                for key in valkey.scan_iter(count=1000):
                    kind = valkey.type(key)
                    self.kinds.add(key.decode(errors="replace").split(":")[1] if b":" in key else key.decode())
                    self.seen |= {key, *flat(READERS[kind](valkey, key))}

    def _listen(self) -> None:
        with redis.Redis.from_url(self._url) as valkey, valkey.monitor() as monitor:
            for command in monitor.listen():
                self.commands.append(command["command"].encode())
                if self._stop.is_set():
                    return


def on_disk(stack: Stack) -> bytes:
    with redis.Redis.from_url(stack.services.valkey.url()) as valkey:
        valkey.config_set("rdbcompression", "no")
        valkey.save()
        valkey.config_set("rdbcompression", "yes")
    files = [path for path in stack.services.valkey.data.rglob("*") if path.is_file() and path.suffix != ".conf"]
    assert {path.suffix for path in files} >= {".aof", ".rdb"}
    return b"\n".join(path.read_bytes() for path in files)


def database(stack: Stack) -> bytes:
    """Every row of every table as text; bytes as hexadecimal digits."""
    with psycopg.connect(stack.environment["BURSAR_DATABASE_URL"]) as connection:
        tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
        rows = [connection.execute(f'SELECT t::text FROM "{name}" t').fetchall() for (name,) in tables]  # noqa: S608
    assert {name for (name,) in tables} >= {"audit_entry", "inference_exchange", "chat_conversation"}
    return "\n".join(row[0] for table in rows for row in table).encode()


def logs(stack: Stack) -> bytes:
    return b"\n".join(path.read_bytes() for path in Path(stack.directory).glob("*.log"))


def one(stack: Stack, sql: str, *values: object) -> Any:
    with psycopg.connect(stack.environment["BURSAR_DATABASE_URL"]) as connection:
        return connection.execute(sql, values).fetchone()  # type: ignore[arg-type]


def count(stack: Stack, exchange: str, kind: str) -> int:
    sql = "SELECT count(*) FROM audit_entry WHERE exchange_id = %s AND kind = %s"
    return int(one(stack, sql, exchange, kind)[0])


PAYLOAD = "SELECT organisation_id, id, payload, facts FROM audit_entry WHERE exchange_id = %s AND kind = %s"


def opened(stack: Stack, exchange: str, kind: str, type_: Any) -> Any:
    organisation_id, entry_id, payload, _ = one(stack, PAYLOAD, exchange, kind)
    key = RecordKey(bytes.fromhex(stack.environment["BURSAR_RECORD_KEY"]))
    clear = key.open(payload, organisation_id=organisation_id, table="audit_entry", column="payload", row=entry_id)
    return msgspec.msgpack.decode(clear, type=type_)


def test_what_is_looked_for_would_be_found_however_deep_it_is_wrapped(live_stack: Stack) -> None:
    once = base64.b64encode(json.dumps({"messages": PROMPT}).encode())
    twice = base64.b64encode(json.dumps([once.decode()]).encode())
    for data in (PROMPT.encode(), once, twice, PROMPT.encode().hex().encode()):
        assert set(found_in(b"x " + data + b" y", live_stack)) >= {b"plughword"} or b"plughword".hex().encode() in data
    assert found_in(b"seal " + bytes.fromhex(live_stack.environment["BURSAR_SEAL_KEY"]), live_stack)
    assert found_in(b"nothing of it", live_stack) == []


async def test_while_answers_stream_neither_they_nor_their_prompts_nor_a_key_lie_anywhere_in_clear(
    live_stack: Stack, connect: Any
) -> None:
    person = await Browser.signed_in(live_stack)
    clients = [await connect(web=n % 2) for n in range(6)] + [await connect(headers=person.headers) for _ in range(2)]

    with Watch(live_stack) as watch:
        answers = await asyncio.gather(*(client.answer(PROMPT) for client in clients))
        resumed = await connect(web=1)
        await resumed.send({"type": "chat.resume", "exchange": answers[0][0]["exchange"], "after": -1})
        assert text_of(await resumed.to_the_end()) == text_of(answers[0])

    for answer in answers:
        assert text_of(answer).startswith("[simulated] this answer was not written by a model.")
    assert watch.kinds >= {"reply", "released", "exchange", "ask", "limit", "worker"}
    assert any(b"gpu_workers.generate" in layer for command in watch.commands for layer in unwrapped(command, 1))
    assert sum(b"XADD" in command for command in watch.commands) > 50
    assert found_in(b"\n".join(watch.seen), live_stack) == []
    assert found_in(b"\n".join(watch.commands), live_stack) == []
    assert found_in(await asyncio.to_thread(on_disk, live_stack), live_stack) == []
    assert found_in(database(live_stack), live_stack) == []
    written = logs(live_stack)
    assert answers[0][0]["exchange"].encode() in written
    assert found_in(written, live_stack) == []


async def test_the_intent_is_there_before_the_answer_and_the_outcome_before_its_end(
    live_stack: Stack, connect: Any
) -> None:
    client = await connect()
    for _ in range(10):
        await client.ask(parameters={"max_tokens": 6})
        first = await client.receive()
        assert first["type"] == "answer.started"
        assert count(live_stack, first["exchange"], "intent") == 1
        last = await client.until("answer.finished")
        sql = "SELECT kind, exchange_id FROM audit_entry WHERE id = %s"
        assert one(live_stack, sql, last["receipt"]) == ("outcome", uuid.UUID(first["exchange"]))


@asynccontextmanager
async def waiting_record(stack: Stack) -> AsyncIterator[None]:
    """Nothing is added to the record while this is open."""
    async with await psycopg.AsyncConnection.connect(stack.environment["BURSAR_DATABASE_URL"]) as connection:
        await connection.execute("LOCK TABLE audit_entry IN SHARE MODE")
        yield


async def heard(client: ChatClient) -> list[str]:
    """The types of the events that come until none comes for a while."""
    kinds = []
    with suppress(TimeoutError):
        while True:
            kinds.append(json.loads(await asyncio.wait_for(client.socket.recv(), 1.5))["type"])
    return kinds


async def test_while_the_record_waits_so_does_the_user(live_stack: Stack, connect: Any) -> None:
    client = await connect()

    async with waiting_record(live_stack):
        await client.ask(parameters={"max_tokens": 4})
        assert await heard(client) == []
    assert (await client.to_the_end())[-1]["type"] == "answer.finished"

    await client.ask()
    await client.until("answer.started")
    async with waiting_record(live_stack):
        assert set(await heard(client)) == {"answer.delta"}
    assert (await client.receive())["type"] == "answer.finished"


async def test_the_record_opens_with_its_key_and_says_what_was_asked_and_released(
    live_stack: Stack, connect: Any
) -> None:
    events = await (await connect()).answer(PROMPT)
    exchange = events[0]["exchange"]

    intent = opened(live_stack, exchange, "intent", IntentPayload)
    assert intent.messages == [
        {"role": "user", "content": "plughword says that <PERSON>, card <CREDIT_CARD>, likes xyzzysecret"}
    ]
    assert opened(live_stack, exchange, "outcome", OutcomePayload).answer == text_of(events)
    facts = one(live_stack, PAYLOAD, exchange, "outcome")[3]
    assert facts["usage"]["completion_tokens"] == events[-1]["usage"]["completion_tokens"]
    assert facts["cost_usd"] == events[-1]["usage"]["cost_usd"] or float(facts["cost_usd"]) == 0
    route = one(live_stack, PAYLOAD, exchange, "intent")[3]["route"]
    assert (route["rule"], route["strategy"]) == ("default", "priority_order")
    assert route["chosen"] == route["candidates"][0]["deployment"]

    organisation_id, entry_id, payload, _ = one(live_stack, PAYLOAD, exchange, "outcome")
    for key, row in (
        (RecordKey(b"x" * 32), entry_id),
        (RecordKey(bytes.fromhex(live_stack.environment["BURSAR_RECORD_KEY"])), uuid.uuid4()),
    ):
        with pytest.raises(PayloadBroken):
            key.open(payload, organisation_id=organisation_id, table="audit_entry", column="payload", row=row)


async def test_the_record_of_a_cancelled_answer_says_what_was_released_and_no_more(
    live_stack: Stack, connect: Any
) -> None:
    client = await connect()
    ask = await client.ask()
    events = [await client.until("answer.started"), await client.until("answer.delta")]
    await client.send({"type": "chat.cancel", "id": ask})
    events += await client.to_the_end()

    assert events[-1]["finish_reason"] == "cancelled"
    assert opened(live_stack, events[0]["exchange"], "outcome", OutcomePayload).answer == text_of(events)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"model": "no-such-model"}, "model_not_found"),
        ({"model": "no\x00such\x00model"}, "model_not_found"),
        ({"text": "plughword " * 6_000}, "context_length_exceeded"),
    ],
)
async def test_a_refusal_leaves_one_entry_without_content(
    live_stack: Stack, connect: Any, fields: dict[str, str], code: str
) -> None:
    before = one(live_stack, "SELECT count(*) FROM audit_entry WHERE kind = 'refusal'")[0]
    refused = (await (await connect()).answer(**{"text": "plughword", **fields}))[-1]
    assert refused["error"]["code"] == code

    def entries() -> int:
        return int(one(live_stack, "SELECT count(*) FROM audit_entry WHERE kind = 'refusal'")[0]) - int(before)

    await asyncio.to_thread(wait_for, lambda: entries() == 1, "the refusal is recorded", 10)
    last = "SELECT facts, payload FROM audit_entry WHERE kind = 'refusal' ORDER BY id DESC LIMIT 1"
    facts, payload = one(live_stack, last)
    assert facts["error_code"] == code
    assert payload is None
    assert "plughword" not in json.dumps(facts)

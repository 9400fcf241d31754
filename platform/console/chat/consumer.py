"""The chat socket: translates between frames and the pipeline's events (docs/api.md, WebSocket)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from typing import Any, TypeVar
from urllib.parse import parse_qs
from uuid import UUID

import psycopg
import structlog
from channels.consumer import AsyncConsumer, get_handler_name
from channels.exceptions import StopConsumer
from django.conf import settings
from django.http.cookie import parse_cookie
from psycopg_pool import PoolTimeout
from redis.exceptions import RedisError

from console import runtime
from console.accounts.sessions import user_of_session
from console.chat import protocol, tickets
from console.chat.conversations import CHARS_PER_TOKEN, History, read_history, touch_conversation
from console.chat.live import Control, LiveAnswer
from console.chat.outbox import Outbox
from console.chat.protocol import ChatCancel, ChatResume, ChatSend, Parameters, Ping
from console.chat.released import ExchangeNote, NeverBegan
from console.chat.sockets import Identity, identify_user
from gpu_workers.identifiers import uuid7
from gpu_workers.messages import ChatMessage
from inference.admission import broker_gone
from inference.errors import Refusal, log_unexpected
from inference.events import Ask, Caller
from inference.pipeline import audit_unavailable
from inference.rates import TokenBucket
from inference.routing import find_candidates

log = structlog.get_logger(__name__)

FRAMES_PER_SECOND = 20
MAX_REFUSED_FRAMES = 100
MAX_ANSWERS = 4
AUTHENTICATION_TIMEOUT_S = 5.0
# What a socket may have going on beside its answers: replays, and questions that are being begun.
MAX_TASKS = 32
# A close frame with one of these codes. 1005 is not among them: the server gives it for a lost connection, too.
CLEAN_CLOSES = frozenset({1000, 1001})

UNAUTHENTICATED, FOREIGN_ORIGIN, WRONG_SUBPROTOCOL, SLOW_READER, TOO_MANY_FRAMES = 4401, 4403, 4406, 4408, 4429
UNSUPPORTED_DATA = 1003


async def refuse_unknown_path(receive: Callable[[], Awaitable[Any]], send: Callable[[Any], Awaitable[None]]) -> None:
    """A handshake for a path that has no socket is answered with HTTP 403 by the server."""
    await receive()
    await send({"type": "websocket.close"})


class ChatConsumer(AsyncConsumer):  # type: ignore[misc]
    """One socket. Nothing here decides anything about an answer."""

    identity: Identity

    def __init__(self) -> None:
        self._parts = runtime.current()
        self._outbox = Outbox(self._send_text, self._drop_slow_reader)
        self._rate = TokenBucket(FRAMES_PER_SECOND)
        self._refused_frames = 0
        self._live: dict[str, LiveAnswer] = {}
        # Questions that are being begun, each with whether it was cancelled meanwhile.
        self._starting: dict[str, bool] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    async def dispatch(self, message: dict[str, Any]) -> None:
        """Channels' own closes database connections in a thread before every message; this consumer opens none."""
        await getattr(self, get_handler_name(message))(message)

    async def websocket_connect(self, message: dict[str, Any]) -> None:
        offered = protocol.SUBPROTOCOL in self.scope["subprotocols"]
        await self.send({"type": "websocket.accept", "subprotocol": protocol.SUBPROTOCOL if offered else None})
        if not offered:
            await self._close(WRONG_SUBPROTOCOL)
            return
        try:
            if not self._parts.configuration.is_current():
                raise PoolTimeout
            async with asyncio.timeout(AUTHENTICATION_TIMEOUT_S):
                self.identity = await self._authenticate()
        except _Unauthenticated as error:
            refusal = Refusal("invalid_api_key", f"The socket was closed with {error.code}.", param=str(error.code))
            self._parts.refusals.record(refusal, channel="socket", caller="unknown", organisation_id=None)
            await self._close(error.code)
        except (psycopg.Error, PoolTimeout, RedisError, OSError, TimeoutError) as error:
            log.warning("socket_not_authenticated", error=type(error).__name__)
            self._outbox.put(protocol.encode_error(audit_unavailable()))
            await self._close(1013)
        else:
            self._parts.sockets.add(self)

    async def websocket_receive(self, message: dict[str, Any]) -> None:
        text = message.get("text")
        if self._closed:
            return
        if text is None:
            await self._close(UNSUPPORTED_DATA)
            return
        ask_id = exchange = None
        try:
            self._check_frame(text)
            event = protocol.parse(text)
            ask_id = event.id if isinstance(event, ChatSend) else None
            exchange = event.exchange if isinstance(event, ChatResume) else None
            await self._handle(event)
        except Refusal as refusal:
            self._refuse(refusal, ask_id or protocol.ask_id_of(text), exchange)
        except Exception as error:
            self._fail(error)
        if self._refused_frames > MAX_REFUSED_FRAMES:
            await self._close(TOO_MANY_FRAMES)

    async def websocket_disconnect(self, message: dict[str, Any]) -> None:
        self._closed = True
        self._parts.sockets.discard(self)
        self._outbox.close()
        clean = message.get("code", 1006) in CLEAN_CLOSES
        for answer in self._live.values():
            answer.leave(clean=clean)
        for task in self._tasks:
            task.cancel()
        raise StopConsumer

    async def close_unauthenticated(self) -> None:
        await self._close(UNAUTHENTICATED)

    def _check_frame(self, text: str) -> None:
        if not self._rate.take():
            self._refused_frames += 1
            message = f"Limit of {FRAMES_PER_SECOND} frames per second for this socket is reached."
            raise Refusal("rate_limit_exceeded", message, retry_after_s=1)
        if len(text) > protocol.MAX_FRAME_BYTES or len(text.encode(errors="replace")) > protocol.MAX_FRAME_BYTES:
            raise Refusal("frame_too_large", f"A frame may have {protocol.MAX_FRAME_BYTES} bytes.")

    async def _handle(self, event: protocol.ClientEvent) -> None:
        match event:
            case Ping():
                self._outbox.put(protocol.encode_pong(event))
            case ChatSend():
                self._start(event)
            case ChatCancel():
                await self._cancel(event)
            case ChatResume():
                if len(self._tasks) >= MAX_TASKS:
                    raise Refusal("rate_limit_exceeded", f"Limit of {MAX_TASKS} resumes at once is reached.")
                note = await self._note(event.exchange)
                self._spawn(self._resume(event, note))

    # chat.send

    def _start(self, send: ChatSend) -> None:
        if not self._parts.configuration.is_current():
            raise audit_unavailable()
        if send.id in self._live or send.id in self._starting:
            raise Refusal("duplicate_id", "An answer with this id is running on this socket.", param="id")
        if len(self._live) + len(self._starting) >= MAX_ANSWERS:
            message = f"Limit of {MAX_ANSWERS} answers at once for this socket is reached."
            raise Refusal("rate_limit_exceeded", message, retry_after_s=1)
        self._starting[send.id] = False
        self._spawn(self._begin(send))

    async def _begin(self, send: ChatSend) -> None:
        """Apart from the socket's loop, so that a cancel or ping is not held up by a read of the history."""
        caller = self.identity.caller
        exchange_id = uuid7()
        findings = self._parts.pipeline.findings_in([send.text], caller)
        begun = False
        try:
            while (earlier := await self._parts.released.open(exchange_id, caller.name, send.id)) is not None:
                if await self._follow(earlier, -1, await self._note(earlier)):
                    return
            ask = await self._ask(send, exchange_id, caller)
            self._run(send, replace(ask, findings=findings), caller)
            begun = True
        except Refusal as refusal:
            self._refuse(refusal, send.id)
        except (psycopg.Error, PoolTimeout):
            self._outbox.put(protocol.encode_error(audit_unavailable(), send.id))
        except (RedisError, OSError):
            self._outbox.put(protocol.encode_error(broker_gone(), send.id))
        except Exception as error:
            self._fail(error, send.id)
        finally:
            self._starting.pop(send.id, None)
            if not begun:  # also where the connection broke meanwhile: the same id may ask again
                findings.drop()
                await self._parts.released.forget(caller.name, send.id, exchange_id)

    def _run(self, send: ChatSend, ask: Ask, caller: Caller) -> None:
        def sink(frame: bytes, final: bool) -> None:
            self._outbox.put(frame)
            if final:
                self._live.pop(send.id, None)

        answer = LiveAnswer(self._parts.live, ask, send.id, caller, send.linger_ms / 1000, sink)
        self._live[send.id] = answer
        self._parts.live.begin(answer)
        if self._starting.get(send.id):
            answer.cancel()

    async def _ask(self, send: ChatSend, exchange_id: UUID, caller: Caller) -> Ask:
        candidate = find_candidates(send.model, self._parts.pipeline.catalog)[0]
        sampling = (send.parameters or Parameters()).sampling(candidate.context_length)
        history = History()
        conversation_id = send.conversation or uuid7()
        if send.conversation is not None:
            room = max(0, candidate.context_length - sampling.max_tokens) * CHARS_PER_TOKEN - len(send.text)
            history = await read_history(self._parts.pool, send.conversation, caller, room)
        return Ask(
            exchange_id=exchange_id,
            request_id=str(exchange_id),
            channel="socket",
            model=send.model,
            messages=(ChatMessage("user", send.text),),
            sampling=sampling,
            priority=send.priority,
            conversation_id=conversation_id,
            with_intent=lambda title: [touch_conversation(conversation_id, caller, title)],
            history=history.messages,
            history_ids=history.exchange_ids,
            previous_deployment=history.deployment,
            tag=send.tag,
        )

    # chat.cancel and chat.resume

    async def _cancel(self, cancel: ChatCancel) -> None:
        if cancel.id is not None and (answer := self._live.get(cancel.id)):
            answer.cancel()
        elif cancel.id in self._starting:
            self._starting[cancel.id] = True
        elif cancel.exchange is not None:
            note = await self._note(cancel.exchange)
            await self._tell(note.owner, Control("cancel", cancel.exchange))
        else:
            raise Refusal("exchange_not_found", "No answer with this id is running on this socket.", param="id")

    async def _note(self, exchange: UUID) -> ExchangeNote:
        """What is known of an exchange, if it is the caller's. Raises `Refusal`."""
        try:
            note = await self._parts.released.note(exchange)
        except (RedisError, OSError):
            raise broker_gone() from None
        if note is None or note.caller != self.identity.caller.name:
            raise _not_found()
        return note

    async def _tell(self, owner: str, control: Control) -> None:
        try:
            await self._parts.live.tell(owner, control)
        except (RedisError, OSError):
            raise broker_gone() from None

    async def _resume(self, resume: ChatResume, note: ExchangeNote) -> None:
        if not await self._follow(resume.exchange, resume.after, note):
            self._refuse(_not_found(), note.ask_id, resume.exchange)

    async def _follow(self, exchange: UUID, after: int, note: ExchangeNote) -> bool:
        """Give the events of an exchange that another socket began; False where it ended before it began."""
        last = b""
        try:
            await self._tell(note.owner, Control("attach", exchange))
            try:
                async for frame in self._parts.released.follow(exchange, after, note):
                    self._outbox.put(frame)
                    last = frame
            except NeverBegan:
                return False
            finally:
                await self._tell(note.owner, Control("detach", exchange))
            if not protocol.is_final(last):
                raise Refusal("outcome_unknown", "The process that served this answer is gone.", param="exchange")
        except Refusal as refusal:
            self._refuse(refusal, note.ask_id, exchange)
        except (RedisError, OSError):
            self._outbox.put(protocol.encode_error(broker_gone(), note.ask_id, exchange))
        return True

    # the connection

    async def _authenticate(self) -> Identity:
        headers = dict(self.scope["headers"])
        if b"authorization" in headers:
            caller = self._parts.keyring.find(headers[b"authorization"].decode("latin-1"))
            return Identity(_known(caller))
        given = parse_qs(self.scope["query_string"].decode("latin-1")).get("ticket")
        if given:
            return await self._redeem(given[0])
        if headers.get(b"origin", b"").decode("latin-1") not in settings.SOCKET_ORIGINS:
            raise _Unauthenticated(FOREIGN_ORIGIN)
        return await self._identify(_known(_session_key(headers.get(b"cookie", b""))))

    async def _redeem(self, ticket: str) -> Identity:
        bearer = _known(await tickets.redeem(self._parts.valkey, ticket))
        if bearer.principal.api_key_id is not None:
            return Identity(_known(self._parts.keyring.get(bearer.principal.api_key_id)))
        # Since the ticket was issued the session may have ended: it is looked up as a cookie's is.
        return await self._identify(_known(bearer.session_key))

    async def _identify(self, session_key: str) -> Identity:
        user_id = _known(await user_of_session(session_key))
        return _known(await identify_user(self._parts.pool, user_id, session_key))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(error)

    def _refuse(self, refusal: Refusal, ask_id: str | None, exchange: UUID | None = None) -> None:
        """What is refused before it is an exchange; the pipeline records its own refusals."""
        caller = self.identity.caller
        self._parts.refusals.record(
            refusal, channel="socket", caller=caller.name, organisation_id=caller.organisation_id
        )
        self._outbox.put(protocol.encode_error(refusal, ask_id, exchange))

    def _fail(self, error: BaseException, ask_id: str | None = None) -> None:
        log_unexpected("socket_failed", error)
        refusal = Refusal("internal_error", "The request failed inside the platform.")
        self._outbox.put(protocol.encode_error(refusal, ask_id))

    async def _send_text(self, text: str) -> None:
        await self.send({"type": "websocket.send", "text": text})

    def _drop_slow_reader(self) -> None:
        log.info("slow_reader_dropped", caller=self.identity.caller.name)
        for answer in self._live.values():
            answer.leave(clean=True)
        self._spawn(self._close(SLOW_READER))

    async def _close(self, code: int) -> None:
        if not self._closed:
            self._closed = True
            await self.send({"type": "websocket.close", "code": code})


class _Unauthenticated(Exception):
    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def _not_found() -> Refusal:
    return Refusal("exchange_not_found", "No such exchange, or it is too long ago.", param="exchange")


T = TypeVar("T")


def _known(value: T | None) -> T:
    if value is None:
        raise _Unauthenticated(UNAUTHENTICATED)
    return value


def _session_key(cookie: bytes) -> str | None:
    """Read as Django reads it: another application's odd cookie on the same host must not hide ours."""
    return parse_cookie(cookie.decode("latin-1")).get(settings.SESSION_COOKIE_NAME)

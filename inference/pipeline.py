"""The request's way. Each step is a function of the module that bears its name; this file is their order."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from decimal import Decimal
from uuid import UUID

import msgspec
import structlog
from msgspec import structs

from compliance.audit.writer import GroupWriter, RecordConflict, RecordUnavailable, Statement
from compliance.pii.findings import Finding, InspectionUnavailable, count, mask
from compliance.pii.lanes import SHORT, InspectionLanes
from compliance.pii.release import AnswerRelease
from gpu_workers.identifiers import uuid7
from gpu_workers.messages import ChatMessage
from inference import metering, routing
from inference.admission import Admission, QuotaExceeded
from inference.attempts import AttemptRun, ending
from inference.beforehand import Beforehand, CalmCallers
from inference.budgets import BudgetBook, Stage, demand_of
from inference.cancellation import Cancellation
from inference.catalog import Candidate, Catalog
from inference.crossings import CrossingRecorder
from inference.dispatch import Dispatcher, Prompt
from inference.errors import Refusal, log_unexpected
from inference.events import Ask, Caller, Delta, Event, Finished, Refused, Started
from inference.exchanges import Exchange
from inference.generation import Generation
from inference.leases import Leases
from inference.limits import LimitBook
from inference.mirroring import Mirrors
from inference.refusals import RefusalRecorder
from inference.reservations import Claims, Reservation, Used
from inference.routing import Decision
from inference.routing.facts import facts_of
from inference.routing.live import LiveState, share

log = structlog.get_logger(__name__)

# Pauses before an outcome is tried again: about a minute together, well before it would be reconciled as unknown.
OUTCOME_RETRIES_S = (0.5, 1, 2, 4, 8, 15, 30)
FAILOVER_WAIT_S = 3.0
# Raised by `inference_check_generation`: what the exchange held its money by is not in force any more.
COUNTED_ANEW = "BR001"
# No tokenizer runs here: the engine has the last word on what fits. Far more characters than any vocabulary puts
# into a token are refused at once, before they cost an inspection.
MAX_CHARS_PER_TOKEN = 8


class Pipeline:
    """The parts that serve exchanges in one process."""

    def __init__(
        self,
        *,
        owner: str,
        admission: Admission,
        leases: Leases,
        inspector: InspectionLanes,
        dispatcher: Dispatcher,
        writer: GroupWriter,
        refusals: RefusalRecorder,
        crossings: CrossingRecorder,
        mirrors: Mirrors,
        live: LiveState,
    ) -> None:
        self.owner = owner
        self.catalog = Catalog()
        self.live = live
        share(live)
        self.limits = LimitBook()
        self.budgets = BudgetBook()
        self._admission = admission
        self._leases = leases
        self._inspector = inspector
        self._dispatcher = dispatcher
        self._writer = writer
        self._refusals = refusals
        self._crossings = crossings
        self._mirrors = mirrors
        self._calm = CalmCallers()
        self._retries: set[asyncio.Task[None]] = set()

    async def serve(self, ask: Ask, caller: Caller, cancellation: Cancellation) -> AsyncIterator[Event]:
        """Serve one exchange: Started, Deltas, then Finished; or Refused. Raises nothing to the transport."""
        exchange = Exchange(ask, caller, self.owner, self.catalog)
        findings = ask.findings or self.findings_in([message.content for message in ask.messages], caller)
        inspection = Beforehand(lambda: self._inspect_prompt(exchange, findings))
        if self._calm.is_calm(caller.name):
            inspection.start()  # while Valkey is asked whether there is room
        try:
            async with self._admitted(exchange) as reservation:
                async for event in self._serve(exchange, reservation, inspection, cancellation):
                    yield event
        except Exception as error:
            refusal = _as_refusal(error, exchange)
            self._record_refusal(exchange, refusal)
            yield Refused(refusal)
        finally:
            inspection.drop()
            findings.drop()

    def findings_in(self, texts: Sequence[str], caller: Caller) -> Beforehand[list[list[Finding]]]:
        """The findings of each text: looked for from now on where they are short, else when they are waited for."""
        findings = Beforehand(lambda: self._inspector.find_all(texts))
        if self._calm.is_calm(caller.name) and sum(map(len, texts)) <= SHORT:
            findings.start()
        return findings

    async def _serve(
        self, exchange: Exchange, reservation: Reservation, inspection: Beforehand[None], cancellation: Cancellation
    ) -> AsyncIterator[Event]:
        self._crossings.note(exchange, reservation.reached)
        await inspection.result()
        decision = await self._route(exchange, reservation)
        exchange.used = None  # from here on only the outcome says
        recorded = self._writer.submit(exchange.intent(decision, reservation))  # written while the engine works
        generation = self._generation(exchange, decision)
        cancellation.bind(generation)
        failure: Refusal | None = None
        try:
            await generation.start()
            await recorded  # nothing unrecorded reaches the user
            yield _started(exchange, decision, reservation)
            async for text in self._inspected(exchange, generation):
                if exchange.ttft_ms is None:
                    self.live.first_token(exchange.id, time.monotonic())
                exchange.release(text)
                yield Delta(text)
        except Exception as error:
            failure = _as_refusal(error, exchange)
        finally:
            await generation.close()
            self._note_end(exchange, generation.attempts)
        exchange.intent_recorded = await _is_recorded(recorded)
        if not exchange.intent_recorded:
            # Without an outcome nothing is ever billed: the money is free, whatever became of the intent.
            exchange.used = Used(tokens=reservation.claims.demand.tokens)
            raise await self._unrecorded(recorded, failure)
        last = await self._end(exchange, reservation, generation, failure)
        yield last
        if isinstance(last, Finished):
            self._mirrors.send(exchange.id, decision.mirror, _prompt(exchange, decision))

    async def _unrecorded(self, recorded: asyncio.Future[None], failure: Refusal | None) -> Refusal:
        """What the caller is told whose intent could not be recorded."""
        refused = recorded.exception()
        if isinstance(refused, RecordUnavailable) and refused.sqlstate == COUNTED_ANEW:
            return await self._admission.count_again()
        return failure or audit_unavailable()

    async def _route(self, exchange: Exchange, reservation: Reservation) -> Decision:
        """Decide, and count the request as under way. Raises `Refusal`."""
        try:
            return self._decide(exchange, reservation)
        except Refusal as refusal:
            # An engine that stands by takes over in a moment: that is no reason to send somebody away.
            if refusal.code != "overloaded" or not await self._comes_back(exchange, _model(exchange, reservation)):
                raise
            return self._decide(exchange, reservation)

    async def _comes_back(self, exchange: Exchange, model: str | None) -> bool:
        """Whether a worker that lives and has lost its engine has one again, waited for."""
        fleet = self._dispatcher.fleet
        places = {candidate.deployment for candidate in routing.find_candidates(model, exchange.catalog)}
        beats = [beat for beat in fleet.current().workers.values() if beat.deployment in places]
        coming = any(not (beat.engine_ready or beat.fault) for beat in beats)  # a fault does not go away by waiting
        return coming and await fleet.wait_ready(sorted(places), timeout_s=FAILOVER_WAIT_S) is not None

    def _decide(self, exchange: Exchange, reservation: Reservation) -> Decision:
        facts = structs.replace(
            facts_of(exchange.ask, exchange.caller, (finding.entity for finding in exchange.prompt_findings)),
            model=_model(exchange, reservation),
            budget_state=reservation.stage.name.lower(),
        )
        fleet, at_s = self._dispatcher.fleet.current(), time.monotonic()
        decision = routing.decide(exchange.ask, exchange.catalog, fleet, facts=facts, live=self.live, at_s=at_s)
        exchange.deadline_s = min(exchange.deadline_s, decision.deadline_s or exchange.deadline_s)
        chosen = decision.candidate.deployment
        self.live.begin(exchange.id, chosen, decision.prompt_tokens, decision.queue_ms, at_s)
        return decision

    def _generation(self, exchange: Exchange, decision: Decision) -> Generation:
        def moved(candidate: Candidate, lost: AttemptRun) -> None:
            self._note_end(exchange, [lost])
            self.live.begin(exchange.id, candidate.deployment, decision.prompt_tokens, 0.0, time.monotonic())

        prompt = _prompt(exchange, decision)
        return Generation(
            self._dispatcher,
            decision.candidate,
            prompt,
            worker=decision.worker,
            fallbacks=decision.fallbacks,
            moved=moved,
        )

    def _note_end(self, exchange: Exchange, attempts: Sequence[AttemptRun]) -> None:
        code, tokens = ending(attempts)
        source = attempts[-1].source if attempts else ""
        self.live.ended(exchange.id, code, tokens, time.monotonic(), source=source)

    @asynccontextmanager
    async def _admitted(self, exchange: Exchange) -> AsyncIterator[Reservation]:
        try:
            reservation = await self._admission.admit(exchange.id, self._claims(exchange))
        except Refusal as refusal:
            self._calm.disturbed(exchange.caller.name)
            if isinstance(refusal, QuotaExceeded):
                self._crossings.note(exchange, refusal.reached)
            raise
        self._leases.hold(reservation)
        try:
            yield reservation
        finally:
            await self._leases.settle(reservation, exchange.used)

    def _claims(self, exchange: Exchange) -> Claims:
        """What the exchange falls under, and what it may cost at most. Raises `Refusal`."""
        ask, caller, catalog = exchange.ask, exchange.caller, exchange.catalog
        candidates = routing.find_candidates(ask.model, catalog)
        # Where it goes is not decided yet: what is held pays for the dearest place that it may go to.
        budgets = self.budgets.for_scopes(caller.organisation_id, caller.team_id, caller.api_key_id)
        reachable = {*candidates, *routing.reachable_by_rules(catalog)}
        for budget in budgets:
            reachable.update(catalog.models.get(budget.cheaper_model, ()))
        return Claims(
            limits=self.limits.for_request(caller, candidates[0].model),
            budgets=budgets,
            demand=demand_of(ask, reachable),
            priority=ask.priority,
            at=exchange.opened_at,
        )

    async def _inspect_prompt(self, exchange: Exchange, looked_for: Beforehand[list[list[Finding]]]) -> None:
        """Mask the new messages. Raises `Refusal`, `InspectionUnavailable`: what is not inspected is not sent on."""
        ask = exchange.ask
        candidate = routing.find_candidates(ask.model, exchange.catalog)[0]
        _refuse_oversized(ask, candidate.context_length)
        await self._refuse_personal_parameters(ask)
        found = await looked_for.result()
        masked = []
        for message, findings in zip(ask.messages, found, strict=True):
            masked.append(ChatMessage(message.role, mask(message.content, findings)))
            exchange.prompt_findings += findings
        exchange.messages = tuple(masked)

    async def _refuse_personal_parameters(self, ask: Ask) -> None:
        """Text outside the messages cannot be masked without changing what it asks for: it is refused."""
        for param, text in _texts_of_parameters(ask):
            if found := await self._inspector.find(text):
                kinds = ", ".join(count(found))
                raise Refusal("content_filter", f"{param} holds personal data ({kinds}).", param=param)

    async def _inspected(self, exchange: Exchange, generation: Generation) -> AsyncIterator[str]:
        """The answer as it may be released."""
        release = AnswerRelease(self._inspector.find, exchange.answer_findings)
        async for text in generation.text():
            if ready := await release.feed(text):
                yield ready
        if rest := await release.finish():
            yield rest

    async def _end(
        self,
        exchange: Exchange,
        reservation: Reservation,
        generation: Generation,
        failure: Refusal | None,
    ) -> Event:
        """Record the outcome with its cost, settle, and only then tell the user."""
        candidate, usage = generation.candidate, generation.usage
        cost = metering.bounded(generation.cost, reservation.claims.demand)
        receipt = uuid7()
        outcome = exchange.outcome(receipt, generation, cost, failure)
        try:
            await self._writer.commit(outcome)
        except RecordUnavailable as error:
            task = asyncio.create_task(self._record_later(exchange, outcome))
            self._retries.add(task)
            task.add_done_callback(self._retries.discard)
            return Refused(_as_refusal(error, exchange))
        except RecordConflict as error:
            return Refused(_as_refusal(error, exchange))
        # After the ledger has it: what is held in between is more than what is spent, never less.
        exchange.used = metering.used(usage, cost, candidate)
        self._crossings.note(exchange, await self._leases.settle(reservation, exchange.used))
        if failure is not None:
            return Refused(failure)
        return _finished(exchange, generation, cost, receipt)

    async def _record_later(self, exchange: Exchange, outcome: list[Statement]) -> None:
        """The user was told that the record could not be written; what they had read is written when it can be."""
        for wait_s in OUTCOME_RETRIES_S:
            await asyncio.sleep(wait_s)
            try:
                await self._writer.commit(outcome)
            except RecordUnavailable:
                continue
            except RecordConflict:
                return
            log.info("outcome_recorded_late", exchange=str(exchange.id))
            return
        log.error("outcome_not_recorded", exchange=str(exchange.id))

    def _record_refusal(self, exchange: Exchange, refusal: Refusal) -> None:
        """Not waited for: a refusal is told at once, and is no promise that depends on the record."""
        if not exchange.intent_recorded and self._refusals.may_record(exchange.caller.name):
            self._writer.submit(exchange.refusal(refusal))


def _model(exchange: Exchange, reservation: Reservation) -> str | None:
    """The model asked for, or the cheaper one of a budget that is nearly spent."""
    for budget, stage in reservation.reached:
        if stage >= Stage.DEGRADED and budget.cheaper_model in exchange.catalog.models:
            return budget.cheaper_model
    return exchange.ask.model


def _prompt(exchange: Exchange, decision: Decision) -> Prompt:
    ask = exchange.ask
    return Prompt(
        exchange_id=exchange.id,
        request_id=ask.request_id,
        messages=(*ask.history, *exchange.messages),
        sampling=decision.clamped(ask.sampling),
        # Prefixes are shared inside an organisation and never across: timing would tell what others asked.
        cache_salt=str(exchange.caller.organisation_id),
        deadline_at=exchange.deadline_at,
        priority=ask.priority,
    )


def _texts_of_parameters(ask: Ask) -> list[tuple[str, str]]:
    texts = [("stop", "\n".join(ask.sampling.stop))] if ask.sampling.stop else []
    if ask.tag is not None:
        texts.append(("tag", ask.tag))
    if ask.sampling.response_format is not None:
        texts.append(("response_format", msgspec.json.encode(ask.sampling.response_format).decode()))
    return texts


def _started(exchange: Exchange, decision: Decision, reservation: Reservation) -> Started:
    candidate = decision.candidate
    return Started(candidate.model, candidate.simulated, count(exchange.prompt_findings), reservation.room)


def _finished(exchange: Exchange, generation: Generation, cost: Decimal, receipt: UUID) -> Finished:
    return Finished(
        finish_reason=generation.finish_reason,
        usage=generation.usage,
        cost=cost,
        ttft_ms=exchange.ttft_ms,
        e2e_ms=exchange.e2e_ms or exchange.elapsed_ms(),
        model=generation.candidate.model,
        simulated=generation.candidate.simulated,
        prompt_findings=count(exchange.prompt_findings),
        findings=count(exchange.answer_findings),
        receipt=receipt,
    )


def _refuse_oversized(ask: Ask, context_length: int) -> None:
    characters = sum(len(message.content) for message in (*ask.history, *ask.messages))
    if characters > context_length * MAX_CHARS_PER_TOKEN:
        message = f"The prompt is too long for the model's context of {context_length} tokens."
        raise Refusal("context_length_exceeded", message, param="messages")


def audit_unavailable() -> Refusal:
    """A new one each time: an exception that is raised again keeps the frames of all that raised it before."""
    return Refusal("audit_unavailable", "The record cannot be written now.", retry_after_s=5)


async def _is_recorded(recorded: asyncio.Future[None]) -> bool:
    try:
        await recorded
    except (RecordUnavailable, RecordConflict):
        return False
    return True


def _as_refusal(error: Exception, exchange: Exchange) -> Refusal:
    if isinstance(error, Refusal):
        return error
    if isinstance(error, InspectionUnavailable):
        return Refusal("inspection_unavailable", "Personal data cannot be looked for now.", retry_after_s=5)
    if isinstance(error, RecordConflict):
        return Refusal("outcome_unknown", "The exchange was closed by another process.")
    if isinstance(error, RecordUnavailable):
        return audit_unavailable()
    log_unexpected("exchange_failed", error, request_id=exchange.ask.request_id)
    return Refusal("internal_error", "The request failed inside the platform.")

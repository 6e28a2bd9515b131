"""Answers requests to models: who asks, who answers, what passes between them, and what is kept of it."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Sequence

import structlog

from paddock.config.llm import LlmConfig
from paddock.errors import Forbidden, NotFound, PaddockError, QuotaExceeded, TooLarge, Unauthorized, Unavailable
from paddock.llm.answering import Answering, StreamLost
from paddock.llm.archive.archive import Archive
from paddock.llm.asking import Asker, NoAnswer
from paddock.llm.budgets import Account, Budgets, BudgetSpent
from paddock.llm.callers import Callers, Holder
from paddock.llm.calls import (
    COUNT,
    GENERATE,
    Call,
    concerns,
    format_of,
    full_path,
    listing,
    meant,
    read_call,
    secret_of,
    wants_upgrade,
)
from paddock.llm.catalog import Catalog, listed_models
from paddock.llm.exchange import Exchange, ExchangeIds, Outcome
from paddock.llm.formats.counting import count, estimate_answer, estimate_request
from paddock.llm.formats.failures import kind_of
from paddock.llm.formats.models import Listed, write_model, write_models
from paddock.llm.formats.openai_responses.tools import NAME as RESPONSES
from paddock.llm.formats.registry import FORMATS
from paddock.llm.item_references import has_references, resolve_references
from paddock.llm.limits import Limits, TooMany
from paddock.llm.neutral import Failure, Usage
from paddock.llm.offload.pool import Busy, WorkerPool
from paddock.llm.offload.tasks import READ_HERE
from paddock.llm.passing import client_name, conversation_of, from_provider, trace_parent
from paddock.llm.preparing import can_count
from paddock.llm.prices import Prices
from paddock.llm.providers.replay import ReplayProvider
from paddock.llm.routes import ModelNotFound, Route, Routes
from paddock.llm.tracing import Tracer
from paddock.llm.traffic import Traffics
from paddock.llm.unserved import unserved
from paddock.llm.usage import Ledger
from paddock.llm.wire.base import Headers, HttpRequest, Reply
from paddock.llm.wire.rooms import HELD_BY_ALL, Room

JSON = (b"content-type", b"application/json")
STOP_RETRYING = (b"x-should-retry", b"false")
_STATUSES: dict[type[PaddockError], int] = {
    Unauthorized: 401,
    Forbidden: 403,
    NotFound: 404,
    BudgetSpent: 402,
    QuotaExceeded: 429,
    TooLarge: 413,
    Unavailable: 503,
}
UNPAID = ("script", "replay")
"""Kinds of providers that ask no model."""
_NAMED = 20
"""Models that an error names at most."""
log = structlog.get_logger()


class Gateway:
    """The proxy itself, a `Handler` for any door."""

    def __init__(
        self,
        *,
        settings: LlmConfig,
        routes: Routes,
        callers: Callers,
        limits: Limits,
        budgets: Budgets,
        ledger: Ledger,
        prices: Prices,
        archive: Archive,
        tracer: Tracer | None = None,
        default_model: str | None = None,
        workers: WorkerPool | None = None,
    ) -> None:
        self.settings = settings
        self.routes = routes
        self.catalog = Catalog(settings, routes, default=default_model)
        self.archive = archive
        self.ledger = ledger
        self._callers = callers
        self.budgets = budgets
        self._prices = prices
        self._tracer = tracer
        self._workers = workers or WorkerPool()
        self._asker = Asker(routes, limits, self._workers)
        self.traffics = Traffics(archive, ledger)
        self.accounts: list[Account] = []
        """Who else counts and bounds what is asked."""
        self._ids = ExchangeIds()
        self.room = Room(HELD_BY_ALL)
        """For what large requests take in memory, whichever way they come."""

    def cost(self, model: str, usage: Usage) -> float | None:
        """What an answer of a model cost in US dollars, by the name it is asked for with; `None` if that is unknown."""
        try:
            route = self.routes.resolve(model)
        except PaddockError:
            return None
        if route.provider_settings.kind in UNPAID:
            return 0.0
        return self._prices.cost(route.provider.name, route.model, usage)

    async def identify(self, request: HttpRequest) -> Holder:
        """Who asks. Raises `Unauthorized` or `Forbidden`."""
        return await self._callers.identify(secret_of(request), request.tag)

    async def __call__(self, request: HttpRequest, reply: Reply) -> None:
        path = request.path = full_path(request.path)
        if path == "/" and request.method in ("HEAD", "GET"):
            await reply.whole(200, [JSON], b"{}")
        elif not concerns(path):
            await self._refuse_path(request, reply)
        elif wants_upgrade(request):
            failure = Failure(426, "WebSocket is not spoken here; use HTTP with server-sent events", kind_of(400))
            await _tell(reply, format_of(path), failure, [STOP_RETRYING])
        elif request.method == "POST":
            await self._serve(request, reply)
        elif request.method in ("GET", "HEAD") and listing(request) is not None:
            await self._list(request, reply)
        else:
            failure = Failure(405, f"{path[:200]} does not answer {request.method}", kind_of(400))
            await _tell(reply, format_of(path), failure, [STOP_RETRYING])

    async def _refuse_path(self, request: HttpRequest, reply: Reply) -> None:
        """Answer a path that is not served, in the format of the API it belongs to."""
        path, right, beyond = request.path[:200], meant(request.path), unserved(request)
        if right is not None or beyond is None:
            hint = f" Did you mean {right[:200]}? Check the base URL of your client." if right else ""
            await self._refuse(reply, format_of(right or path), NotFound(f"There is nothing at {path}.{hint}"))
            return
        format, name = beyond
        try:
            await self.identify(request)
        except PaddockError as error:
            await self._refuse(reply, format, error)
        else:
            message = f"Paddock does not serve {name} ({path}). Ask the provider directly with a key of its own."
            await self._refuse(reply, format, NotFound(message))

    async def _list(self, request: HttpRequest, reply: Reply) -> None:
        wanted = listing(request)
        assert wanted is not None
        try:
            holder = await self.identify(request)
            if wanted.model is None:
                await self.catalog.refresh()
                body = write_models(wanted.format, self.models_of(holder))
            else:
                self._resolve(holder, wanted.model)
                body = write_model(wanted.format, Listed(wanted.model))
        except PaddockError as error:
            await self._refuse(reply, wanted.format, error)
        else:
            await reply.whole(200, [JSON], body)

    def models_of(self, holder: Holder) -> Sequence[Listed]:
        """The models a caller may ask for, with the names that patterns stand for."""
        models = [model for model in listed_models(self.catalog.models()) if holder.allows(model.id)]
        own = self.routes.own_script(holder.caller)
        return [*models, Listed(own)] if own is not None and holder.allows(own) else models

    async def _serve(self, request: HttpRequest, reply: Reply) -> None:
        """One request to a model, from who asks to what is kept."""
        format = format_of(request.path)
        at = time.time()
        started = time.perf_counter()
        try:
            holder = await self.identify(request)
            call = await self._read_call(request)
            if call.format == RESPONSES and has_references(request.body):
                request.body = await resolve_references(request.body, holder.caller, self.archive)
        except PaddockError as error:
            await self._refuse(reply, format, error)
            return
        exchange = Exchange(
            id=self._ids.new(at),
            at=at,
            caller=holder.caller,
            format=format,
            operation=call.operation,
            model=call.model,
            request=request.body,
            stream=call.stream,
            client=client_name(request),
            conversation=conversation_of(request),
            trace_parent=trace_parent(request),
        )
        answering = Answering(self.settings, self.archive, exchange, reply, started, self._settle)
        self.traffics.begin(exchange)
        try:
            await self._admit(call, request, holder, exchange, answering)
        except NoAnswer as error:
            exchange.outcome, exchange.error = Outcome.FAILED, error.failure.message
            await self._fail(reply, exchange, call, error)
        except PaddockError as error:
            exchange.outcome, exchange.error = Outcome.REFUSED, error.message
            # What is refused because it cannot be kept is not lost: nobody got it.
            answering.kept = answering.kept or (self.archive.strict and isinstance(error, Unavailable))
            exchange.status = await self._refuse(reply, format, error, exchange)
        except StreamLost as error:
            exchange.outcome, exchange.error = Outcome.CUT, str(error)
            reply.abort()
        except asyncio.CancelledError:
            raise
        except Exception as error:
            exchange.outcome, exchange.error = Outcome.FAILED, f"something went wrong here: {type(error).__name__}"
            raise
        finally:
            exchange.total = time.perf_counter() - started
            if exchange.error is not None:
                # Providers may say what no text can hold.
                exchange.error = exchange.error.encode(errors="replace").decode()
            self._close(exchange, answering)

    async def _read_call(self, request: HttpRequest) -> Call:
        if len(request.body) <= READ_HERE:
            return read_call(request)
        bare = HttpRequest(request.method, request.path, request.query, [], b"")
        call, _ = await self._workers.run("read", bare, request.body)
        assert isinstance(call, Call)
        return call

    async def _admit(
        self, call: Call, request: HttpRequest, holder: Holder, exchange: Exchange, answering: Answering
    ) -> None:
        """Ask within what the caller may, and settle what it took."""
        route = self._resolve(holder, call.model)
        exchange.route = route.name
        self.archive.check()
        if self.archive.crowded:
            await self.archive.room()
        permits = [self._asker.enter(holder, route)]
        charged = False
        try:
            for account in self.accounts:
                await account.check(holder.caller)
            await self.budgets.check(holder)
            charged = True
            if call.operation == COUNT and not can_count(route):
                await answering.estimate(call)
                return
            given = await self._asker.ask(call, request, exchange, route, permits)
            try:
                await answering.answer(call, given)
            finally:
                given.answered.close()
            if given.recorder is not None:
                await _record(given.recorder, exchange)
        except asyncio.CancelledError:
            if not answering.complete:
                exchange.outcome = Outcome.CLIENT_GONE
            raise
        finally:
            tokens = 0
            try:
                self._settle(exchange)
                tokens = exchange.usage.input + exchange.usage.output if exchange.usage else 0
            finally:
                # Whatever happens, nobody may be left waiting for a place that nobody holds.
                for permit in permits:
                    permit.leave(tokens)
                if charged:
                    self.budgets.settle(holder, tokens, exchange.cost)

    def _resolve(self, holder: Holder, model: str) -> Route:
        """Raises `ModelNotFound`, also for a model that this key may not ask for."""
        if not holder.allows(model):
            names = [model.id for model in self.models_of(holder)]
            there = ", ".join(names[:_NAMED]) + (", …" if names[_NAMED:] else "") or "none"
            raise ModelNotFound(f"This key may not ask for {model[:200]!r}. Models: {there}.")
        return self.routes.resolve(model, holder.caller)

    def _settle(self, exchange: Exchange) -> None:
        """What it took: as the provider counted it, or by a guess that is marked as one. May be called twice."""
        if exchange.usage is None and exchange.response and exchange.status == 200:
            pieces = [piece for _, piece in exchange.response]
            exchange.usage = count(exchange.format, exchange.stream, pieces)
            if exchange.usage is None and exchange.operation == GENERATE:
                exchange.usage = Usage(
                    estimate_request(exchange.format, exchange.request),
                    estimate_answer(exchange.format, exchange.stream, pieces),
                )
                exchange.estimated = True
        elif exchange.usage is None and exchange.outcome is Outcome.CLIENT_GONE and exchange.provider_format:
            # It was asked, and whoever does not wait for the answer pays for the question all the same.
            exchange.usage = Usage(estimate_request(exchange.format, exchange.request))
            exchange.estimated = True
        if exchange.provider_kind in UNPAID:
            exchange.cost = 0.0
        elif exchange.usage is not None:
            exchange.cost = self._prices.cost(exchange.provider or "", exchange.provider_model or "", exchange.usage)

    def _close(self, exchange: Exchange, answering: Answering) -> None:
        self.ledger.count(exchange)
        self.traffics.end(exchange)
        for account in self.accounts:
            account.count(exchange)
        if not answering.kept:
            self.archive.keep(exchange)
        if self._tracer is not None:
            self._tracer.record(exchange)

    async def _fail(self, reply: Reply, exchange: Exchange, call: Call, error: NoAnswer) -> None:
        """Tell the client that nobody answered, in the provider's own words where it speaks the same format."""
        headers: Headers = []
        if error.told is not None and error.told[0] == call.format:
            headers = from_provider(error.told[1])
            body = error.told[2]
        else:
            headers = [JSON]
            error.failure.wait = error.wait
            body = FORMATS[call.format].write_failure(error.failure)
        present = {name for name, _ in headers}
        if not error.passing and STOP_RETRYING[0] not in present:
            headers.append(STOP_RETRYING)
        if error.wait is not None and b"retry-after" not in present:
            headers.append((b"retry-after", b"%d" % math.ceil(error.wait)))
        exchange.status = error.failure.status
        exchange.response.append((time.time() - exchange.at, body))
        await reply.whole(exchange.status, [*headers, (b"x-paddock-exchange", exchange.id.encode())], body)

    async def _refuse(self, reply: Reply, format: str, error: PaddockError, exchange: Exchange | None = None) -> int:
        """Say no, in the client's format. Returns the status."""
        status = next((code for kind, code in _STATUSES.items() if isinstance(error, kind)), 400)
        headers: Headers = []
        if isinstance(error, TooMany):
            headers.append((b"retry-after", b"%d" % max(1, math.ceil(error.retry_after))))
        elif isinstance(error, Busy):
            headers.append((b"retry-after", b"%d" % error.retry_after))
        elif not isinstance(error, Unavailable):
            headers.append(STOP_RETRYING)
        if exchange is not None:
            headers.append((b"x-paddock-exchange", exchange.id.encode()))
        wait = error.retry_after if isinstance(error, TooMany) else None
        failure = Failure(status, error.message, kind_of(status), error.code.lower(), wait)
        if reply.started:
            reply.abort()
        else:
            await _tell(reply, format, failure, headers)
        return status


async def _record(recorder: ReplayProvider, exchange: Exchange) -> None:
    try:
        await recorder.record(exchange)
    except OSError as error:
        log.error("a recording could not be written", provider=recorder.name, error=error.strerror)


async def _tell(reply: Reply, format: str, failure: Failure, headers: Headers) -> None:
    await reply.whole(failure.status, [JSON, *headers], FORMATS[format].write_failure(failure))

"""The gateway: authenticate a model request, route it, relay the answer, and record usage and exchange."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Sequence

import structlog

from paddock.config.llm import LlmConfig
from paddock.errors import (
    Forbidden,
    NotFound,
    PaddockError,
    QuotaExceeded,
    TooLarge,
    Unauthorized,
    Unavailable,
    drop_stack_frames,
)
from paddock.llm.archive.archive import ExchangeArchive
from paddock.llm.exchange import Exchange, ExchangeIdGenerator, ExchangeOutcome
from paddock.llm.formats.model_list import ModelListEntry, write_model_list, write_model_list_entry
from paddock.llm.formats.neutral import ModelFailure, TokenUsage
from paddock.llm.formats.openai_responses.item_reference_bodies import has_item_references
from paddock.llm.formats.openai_responses.tool_conversion import RESPONSES_FORMAT_NAME
from paddock.llm.formats.provider_errors import error_kind_for_status
from paddock.llm.formats.registry import FORMATS
from paddock.llm.formats.token_counting import count_answer_tokens, estimate_answer_tokens, estimate_request_tokens
from paddock.llm.gateway.header_filter import (
    headers_for_client,
    read_client_name,
    read_conversation_id,
    read_trace_parent,
)
from paddock.llm.gateway.item_references import ItemReferenceResolver
from paddock.llm.gateway.model_catalog import ModelCatalog, to_model_list_entries
from paddock.llm.gateway.model_routes import ModelNotFound, ModelRoute, ModelRoutes
from paddock.llm.gateway.recent_answers import RecentAnswers
from paddock.llm.gateway.response_sender import AnswerInterrupted, ResponseSender
from paddock.llm.gateway.retries_and_fallbacks import NoUpstreamAnswer, UpstreamRequester
from paddock.llm.gateway.unserved_paths import detect_client_format, find_unserved_api, unserved_api_message
from paddock.llm.gateway.upstream_request import can_count_tokens, relays_item_references
from paddock.llm.metering.budgets import BudgetSpent, KeyBudgets, RequestCharge, SpendingAccount
from paddock.llm.metering.key_authentication import KeyAuthenticator, KeyHolder
from paddock.llm.metering.latency_histograms import ModelLatencyHistograms
from paddock.llm.metering.prices import PriceList
from paddock.llm.metering.rate_limits import RateLimited, RateLimits
from paddock.llm.metering.run_traffic import RunTrafficCounters
from paddock.llm.metering.span_export import SpanExporter
from paddock.llm.metering.usage_ledger import UsageLedger
from paddock.llm.offload.worker_pool import OffloadWorkerPool, WorkersBusy
from paddock.llm.offload.worker_tasks import MAX_READ_IN_PROCESS
from paddock.llm.providers.replay_provider import ReplayProvider
from paddock.llm.request_kind import (
    COUNT_OPERATION,
    GENERATE_OPERATION,
    ModelCall,
    add_api_version,
    error_format_of_path,
    is_model_path,
    is_post_model_path,
    is_upgrade_request,
    parse_model_call,
    parse_model_list_request,
    read_api_key,
    suggest_model_path,
)
from paddock.llm.wire.base import Headers, HttpRequest, ResponseWriter
from paddock.llm.wire.garbage_collection import schedule_garbage_collection
from paddock.llm.wire.memory_budget import TOTAL_MEMORY, MemoryBudget, TenantMemoryBudgets
from paddock.llm.wire.request_parser import HttpRequestRefusal

JSON_CONTENT_TYPE = (b"content-type", b"application/json")
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
UNPAID_KINDS = ("script", "replay")
"""Kinds of providers without a model, which cost nothing."""
_MAX_NAMED = 20
"""Maximum number of models listed in an error."""
log = structlog.get_logger()


class ModelGateway:
    """The model proxy: a `Handler` for any HTTP server."""

    def __init__(
        self,
        *,
        settings: LlmConfig,
        routes: ModelRoutes,
        authenticator: KeyAuthenticator,
        limits: RateLimits,
        budgets: KeyBudgets,
        ledger: UsageLedger,
        prices: PriceList,
        archive: ExchangeArchive,
        span_exporter: SpanExporter | None = None,
        default_model: str | None = None,
        workers: OffloadWorkerPool | None = None,
    ) -> None:
        self.settings = settings
        self.routes = routes
        self.catalog = ModelCatalog(settings, routes, default=default_model)
        self.archive = archive
        self.ledger = ledger
        self._authenticator = authenticator
        self.budgets = budgets
        self._prices = prices
        self._span_exporter = self.span_exporter = span_exporter
        self.workers = workers or OffloadWorkerPool()
        self._requester = UpstreamRequester(routes, limits, self.workers)
        self.latencies = ModelLatencyHistograms()
        self.run_traffic = RunTrafficCounters(archive, ledger)
        self._recent_answers = RecentAnswers()
        self._references = ItemReferenceResolver(settings.archive, archive, self._recent_answers, self.workers)
        self.spending_accounts: list[SpendingAccount] = []
        """Further accounts that count and bound requests."""
        self._ids = ExchangeIdGenerator()
        self.memory_budget = MemoryBudget(TOTAL_MEMORY)
        """Memory budget of large requests, shared by all listeners."""
        self.tenant_memory = TenantMemoryBudgets(self.memory_budget)
        """The shares of tenants in that budget."""

    def compute_cost(self, model: str, usage: TokenUsage) -> float | None:
        """Return the cost of an answer in US dollars, by the model's public name; `None` if no price is known."""
        try:
            route = self.routes.resolve(model)
        except PaddockError:
            return None
        if route.provider_settings.kind in UNPAID_KINDS:
            return 0.0
        return self._prices.cost_of(route.provider.name, route.model, usage)

    async def identify(self, request: HttpRequest) -> KeyHolder:
        """Return the holder of the request's key. Raises `Unauthorized` or `Forbidden`."""
        return await self._authenticator.identify(read_api_key(request), request.tag)

    async def admit_body(self, request: HttpRequest) -> MemoryBudget:
        """Return the memory budget of the caller's tenant. Raises `HttpRequestRefusal` in the client's format."""
        try:
            holder = await self.identify(request)
        except PaddockError as error:
            status = _status_of_error(error)
            failure = ModelFailure(status, error.message, error_kind_for_status(status), error.code.lower())
            body = FORMATS[detect_client_format(request)].write_failure(failure)
            raise HttpRequestRefusal(status, error.message, body) from None
        return self.tenant_memory.budget(holder.caller.tenant)

    async def __call__(self, request: HttpRequest, reply: ResponseWriter) -> None:
        path = request.path = add_api_version(request.path)
        if path == "/" and request.method in ("HEAD", "GET"):
            await reply.send(200, [JSON_CONTENT_TYPE], b"{}")
        elif not is_model_path(path):
            await self._refuse_path(request, reply)
        elif is_upgrade_request(request):
            failure = ModelFailure(
                426, "WebSocket is not supported; use HTTP with server-sent events", error_kind_for_status(400)
            )
            await _send_failure(reply, error_format_of_path(path), failure, [STOP_RETRYING])
        elif request.method == "POST" and is_post_model_path(path):
            await self._serve_model_call(request, reply)
        elif request.method in ("GET", "HEAD") and parse_model_list_request(request) is not None:
            await self._serve_model_list(request, reply)
        else:
            failure = ModelFailure(405, f"{path[:200]} does not support {request.method}", error_kind_for_status(400))
            await _send_failure(reply, error_format_of_path(path), failure, [STOP_RETRYING])

    async def _refuse_path(self, request: HttpRequest, reply: ResponseWriter) -> None:
        """Answer a path that is not served, in the format of the API it belongs to."""
        path, suggested_path, unserved_api = (
            request.path[:200],
            suggest_model_path(request.path),
            find_unserved_api(request),
        )
        format = detect_client_format(request)
        if suggested_path is not None or unserved_api is None:
            hint = f" Did you mean {suggested_path[:200]}? Check the base URL of your client." if suggested_path else ""
            await self._send_refusal(reply, format, NotFound(f"There is nothing at {path}.{hint}"))
            return
        format, name = unserved_api
        try:
            await self.identify(request)
        except PaddockError as error:
            await self._send_refusal(reply, format, error)
        else:
            await self._send_refusal(reply, format, NotFound(unserved_api_message(name, path)))

    async def _serve_model_list(self, request: HttpRequest, reply: ResponseWriter) -> None:
        wanted = parse_model_list_request(request)
        assert wanted is not None
        try:
            holder = await self.identify(request)
            if wanted.model is None:
                await self.catalog.refresh()
                body = write_model_list(wanted.format, self.list_models_for(holder))
            else:
                self._resolve_route(holder, wanted.model)
                body = write_model_list_entry(wanted.format, ModelListEntry(wanted.model))
        except PaddockError as error:
            await self._send_refusal(reply, wanted.format, error)
        else:
            await reply.send(200, [JSON_CONTENT_TYPE], body)

    def list_models_for(self, holder: KeyHolder) -> Sequence[ModelListEntry]:
        """Return the models a caller may use, with patterns expanded to names."""
        models = [model for model in to_model_list_entries(self.catalog.models()) if holder.allows(model.id)]
        own = self.routes.find_run_script(holder.caller)
        return [*models, ModelListEntry(own)] if own is not None and holder.allows(own) else models

    async def _serve_model_call(self, request: HttpRequest, reply: ResponseWriter) -> None:
        """Serve one model request, from authentication to the archive."""
        format = error_format_of_path(request.path)
        at = time.time()
        started = time.perf_counter()
        try:
            holder = await self.identify(request)
            call = await self._parse_call(request)
        except PaddockError as error:
            drop_stack_frames(error)
            schedule_garbage_collection(len(request.body))
            await self._send_refusal(reply, format, error)
            return
        exchange = Exchange(
            id=self._ids.new_id(at),
            at=at,
            caller=holder.caller,
            format=format,
            operation=call.operation,
            model=call.model,
            request=request.body,
            stream=call.stream,
            client=read_client_name(request),
            conversation=read_conversation_id(request),
            trace_parent=read_trace_parent(request),
        )
        charge = RequestCharge(self.budgets, self.spending_accounts, holder, exchange, self._settle_usage_and_cost)
        sender = ResponseSender(
            self.settings,
            self.archive,
            self._recent_answers,
            exchange,
            reply,
            started,
            charge.settle,
            self.workers,
        )
        self.run_traffic.begin_exchange(exchange)
        try:
            await self._answer_within_limits(call, request, holder, exchange, sender, charge)
        except NoUpstreamAnswer as error:
            drop_stack_frames(error)
            exchange.outcome, exchange.error = ExchangeOutcome.FAILED, error.cause
            await self._send_upstream_failure(reply, exchange, call, error)
        except PaddockError as error:
            drop_stack_frames(error)
            exchange.outcome, exchange.error = ExchangeOutcome.REFUSED, error.message
            # An answer refused because it cannot be archived was not delivered, so it is not lost.
            sender.archived = sender.archived or (self.archive.strict and isinstance(error, Unavailable))
            exchange.status = await self._send_refusal(reply, format, error, exchange)
        except AnswerInterrupted as error:
            exchange.outcome, exchange.error = ExchangeOutcome.CUT, str(error)
            reply.abort()
        except asyncio.CancelledError:
            raise
        except Exception as error:
            exchange.outcome, exchange.error = ExchangeOutcome.FAILED, f"internal error: {type(error).__name__}"
            raise
        finally:
            exchange.total = time.perf_counter() - started
            if exchange.error is not None:
                # Error texts of providers may contain lone surrogates.
                exchange.error = exchange.error.encode(errors="replace").decode()
            self._record_exchange(exchange, sender)
            if exchange.outcome is not ExchangeOutcome.OK:
                schedule_garbage_collection(len(request.body))

    async def _parse_call(self, request: HttpRequest) -> ModelCall:
        if len(request.body) <= MAX_READ_IN_PROCESS:
            return parse_model_call(request)
        bare = HttpRequest(request.method, request.path, request.query, [], b"")
        call, _ = await self.workers.run_task("read", bare, request.body)
        assert isinstance(call, ModelCall)
        return call

    async def _answer_within_limits(
        self,
        call: ModelCall,
        request: HttpRequest,
        holder: KeyHolder,
        exchange: Exchange,
        sender: ResponseSender,
        charge: RequestCharge,
    ) -> None:
        """Answer a request within the caller's limits and budgets, and settle its usage."""
        route = self._resolve_route(holder, call.model)
        exchange.route = route.name
        self.archive.ensure_writable()
        if self.archive.is_crowded:
            await self.archive.wait_for_capacity()
        permits = [self._requester.acquire_permit(holder, route)]
        try:
            await charge.begin()
            if call.operation == COUNT_OPERATION and not can_count_tokens(route):
                await sender.send_estimate(call)
                return
            if call.format == RESPONSES_FORMAT_NAME and has_item_references(request.body):
                exchange.request = request.body = await self._references.resolve(
                    request.body, holder.caller, provider_resolves=relays_item_references(route)
                )
            answer = await self._requester.request_answer(call, request, exchange, route, permits)
            try:
                await sender.send(call, answer)
            finally:
                answer.response.close()
            if answer.recorder is not None:
                await _record_replay_miss(answer.recorder, exchange)
        except asyncio.CancelledError:
            if not sender.complete:
                exchange.outcome = ExchangeOutcome.CLIENT_GONE
            raise
        finally:
            tokens = 0
            try:
                tokens = charge.settle()
            finally:
                # Release permits in any case: a leaked one would block later requests.
                for permit in permits:
                    permit.release(tokens)

    def _resolve_route(self, holder: KeyHolder, model: str) -> ModelRoute:
        """Resolve a model's route. Raises `ModelNotFound`, also for a model this key must not use."""
        if not holder.allows(model):
            names = [model.id for model in self.list_models_for(holder)]
            known_names = ", ".join(names[:_MAX_NAMED]) + (", …" if names[_MAX_NAMED:] else "") or "none"
            raise ModelNotFound(f"This key may not use {model[:200]!r}. Models: {known_names}.")
        return self.routes.resolve(model, holder.caller)

    def _settle_usage_and_cost(self, exchange: Exchange) -> None:
        """Set usage and cost: as reported by the provider, or estimated and marked so. Idempotent."""
        if exchange.usage is None and exchange.response and exchange.status == 200:
            pieces = [piece for _, piece in exchange.response]
            exchange.usage = count_answer_tokens(exchange.format, exchange.stream, pieces)
            if exchange.usage is None and exchange.operation == GENERATE_OPERATION:
                exchange.usage = TokenUsage(
                    estimate_request_tokens(exchange.format, exchange.request),
                    estimate_answer_tokens(exchange.format, exchange.stream, pieces),
                )
                exchange.estimated = True
        elif exchange.usage is None and exchange.outcome is ExchangeOutcome.CLIENT_GONE and exchange.provider_format:
            # The provider received the prompt, so it is charged although the client left before the answer.
            exchange.usage = TokenUsage(estimate_request_tokens(exchange.format, exchange.request))
            exchange.estimated = True
        if exchange.provider_kind in UNPAID_KINDS:
            exchange.cost = 0.0
        elif exchange.usage is not None:
            exchange.cost = self._prices.cost_of(exchange.provider or "", exchange.provider_model or "", exchange.usage)

    def _record_exchange(self, exchange: Exchange, sender: ResponseSender) -> None:
        self.ledger.count_exchange(exchange)
        self.latencies.count_exchange(exchange)
        self.run_traffic.end_exchange(exchange)
        if not sender.archived:
            self.archive.enqueue(exchange)
        if self._span_exporter is not None:
            self._span_exporter.record(exchange)

    async def _send_upstream_failure(
        self, reply: ResponseWriter, exchange: Exchange, call: ModelCall, error: NoUpstreamAnswer
    ) -> None:
        """Report that no provider answered; forward the provider's error if it is in the client's format."""
        headers: Headers = []
        if error.provider_response is not None and error.provider_response[0] == call.format:
            headers = headers_for_client(error.provider_response[1])
            body = error.provider_response[2]
        else:
            headers = [JSON_CONTENT_TYPE]
            error.failure.wait = error.retry_after
            body = FORMATS[call.format].write_failure(error.failure)
        present = {name for name, _ in headers}
        if not error.transient and STOP_RETRYING[0] not in present:
            headers.append(STOP_RETRYING)
        if error.retry_after is not None and b"retry-after" not in present:
            headers.append((b"retry-after", b"%d" % math.ceil(error.retry_after)))
        exchange.status = error.failure.status
        exchange.response.append((time.time() - exchange.at, body))
        await reply.send(exchange.status, [*headers, (b"x-paddock-exchange", exchange.id.encode())], body)

    async def _send_refusal(
        self, reply: ResponseWriter, format: str, error: PaddockError, exchange: Exchange | None = None
    ) -> int:
        """Refuse a request in the client's format, and return the status."""
        status = _status_of_error(error)
        headers: Headers = []
        if isinstance(error, RateLimited):
            headers.append((b"retry-after", b"%d" % max(1, math.ceil(error.retry_after))))
        elif isinstance(error, WorkersBusy):
            headers.append((b"retry-after", b"%d" % error.retry_after))
        elif not isinstance(error, Unavailable):
            headers.append(STOP_RETRYING)
        if exchange is not None:
            headers.append((b"x-paddock-exchange", exchange.id.encode()))
        wait = error.retry_after if isinstance(error, RateLimited) else None
        failure = ModelFailure(status, error.message, error_kind_for_status(status), error.code.lower(), wait)
        if reply.started:
            reply.abort()
        else:
            await _send_failure(reply, format, failure, headers)
        return status


def _status_of_error(error: PaddockError) -> int:
    return next((code for kind, code in _STATUSES.items() if isinstance(error, kind)), 400)


async def _record_replay_miss(recorder: ReplayProvider, exchange: Exchange) -> None:
    try:
        await recorder.record(exchange)
    except OSError as error:
        log.error("could not write recording", provider=recorder.name, error=error.strerror)


async def _send_failure(reply: ResponseWriter, format: str, failure: ModelFailure, headers: Headers) -> None:
    await reply.send(failure.status, [JSON_CONTENT_TYPE, *headers], FORMATS[format].write_failure(failure))

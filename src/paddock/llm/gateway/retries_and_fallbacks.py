"""Get an answer from a provider: retry transient failures, then try the fallbacks.

All of this happens before the client has received a byte. An answer that breaks off later is not retried.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections import deque
from dataclasses import dataclass

from paddock.errors import PaddockError
from paddock.llm.exchange import Exchange
from paddock.llm.formats.neutral import ModelFailure
from paddock.llm.formats.provider_errors import error_kind_for_status
from paddock.llm.formats.registry import FORMATS
from paddock.llm.gateway.header_filter import header_value, parse_retry_after
from paddock.llm.gateway.model_routes import ModelRoute, ModelRoutes
from paddock.llm.gateway.upstream_request import PreparedProviderRequest, prepare_provider_request
from paddock.llm.metering.key_authentication import KeyHolder
from paddock.llm.metering.rate_limits import RateLimitPermit, RateLimits
from paddock.llm.offload.worker_pool import OffloadWorkerPool
from paddock.llm.providers.base import ProviderRequest, is_bad_key_response
from paddock.llm.providers.http_providers import HttpProvider
from paddock.llm.providers.replay_provider import ReplayMiss, ReplayProvider
from paddock.llm.providers.troubleshooting import key_refusal_message, provider_address_advice
from paddock.llm.request_kind import ModelCall
from paddock.llm.wire.base import (
    Headers,
    HttpRequest,
    UpstreamBroken,
    UpstreamError,
    UpstreamProxyFailed,
    UpstreamResponse,
    UpstreamTimedOut,
    UpstreamUnreachable,
)

RETRIED_STATUSES = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 520, 522, 524, 529})
CLIENT_FAULT_STATUSES = frozenset({400, 413, 422})
"""Statuses that another provider would most likely return too."""
PROVIDER_KEY_REFUSED = "provider_key_refused"
"""Code of errors about the provider's configured key, as opposed to the client's key."""
FIRST_BACKOFF = 0.25
MAX_BACKOFF = 4.0
MAX_RETRY_AFTER = 5.0
"""Longest `retry-after` in seconds that is waited for here; longer waits are left to the client."""


class NoUpstreamAnswer(Exception):
    """No provider answered, or the last one tried returned an error."""

    def __init__(
        self,
        failure: ModelFailure,
        *,
        retry_after: float | None = None,
        transient: bool = True,
        provider_response: tuple[str, Headers, bytes] | None = None,
        cause: str = "",
    ) -> None:
        super().__init__(failure.message)
        self.failure = failure
        self.retry_after = retry_after
        """Seconds after which a retry may succeed."""
        self.transient = transient
        """Whether a retry may succeed at all."""
        self.provider_response = provider_response
        """The provider's error response, if there was one: format, headers and body."""
        self.cause = cause or failure.message
        """The failure without advice on the next attempt, for the archive."""


@dataclass(slots=True)
class UpstreamModelAnswer:
    """A provider's answer, with its whole body or the first piece of a stream."""

    route: ModelRoute
    prepared: PreparedProviderRequest
    response: UpstreamResponse
    body: bytes
    is_stream: bool
    """Whether more pieces follow `body`."""
    recorder: ReplayProvider | None = None
    """A recording without a match, to which this answer will be added."""


class UpstreamRequester:
    def __init__(self, routes: ModelRoutes, limits: RateLimits, workers: OffloadWorkerPool) -> None:
        self._workers = workers
        self._routes = routes
        self._limits = limits

    def acquire_permit(self, holder: KeyHolder | None, route: ModelRoute) -> RateLimitPermit:
        """Acquire a permit within the rate limits; no holder for fallbacks. Raises `RateLimited`."""
        return self._limits.admit(
            holder, route.name, route.settings.limits, route.provider.name, route.provider_settings.limits
        )

    async def request_answer(
        self, call: ModelCall, http: HttpRequest, exchange: Exchange, route: ModelRoute, permits: list[RateLimitPermit]
    ) -> UpstreamModelAnswer:
        """Try the route and its fallbacks. Raises `NoUpstreamAnswer`, or `PaddockError` for an untranslatable request.

        The permits of fallbacks are added to `permits`.
        """
        problem: NoUpstreamAnswer | PaddockError | None = None
        recorder: ReplayProvider | None = None
        waiting = deque([route, *self._routes.iter_fallbacks(route)])
        tried: list[tuple[str, str]] = []
        while waiting:
            candidate = waiting.popleft()
            if (candidate.name, candidate.model) in tried:
                continue  # Recordings may name each other as fallback for a miss.
            if tried:
                exchange.notes.append(f"{tried[-1][0]} did not answer; asked {candidate.name}")
            tried.append((candidate.name, candidate.model))
            exchange.route, exchange.provider = candidate.name, candidate.provider.name
            exchange.provider_kind, exchange.provider_model = candidate.provider.kind, candidate.model
            try:
                if candidate is not route:
                    permits.append(self.acquire_permit(None, candidate))
                answer = await self._request_unless_open(call, http, exchange, candidate)
            except ReplayMiss as miss:
                exchange.notes.append(f"{candidate.provider.name} has no answer: {miss.reason}")
                if isinstance(candidate.provider, ReplayProvider):
                    recorder = candidate.provider
                waiting.appendleft(self._routes.resolve(miss.model))
            except NoUpstreamAnswer as error:
                problem = error
                if error.failure.status in CLIENT_FAULT_STATUSES:
                    break
            except PaddockError as error:
                # A request that the first provider cannot express must be changed by the client, not by luck.
                problem = problem or error
                if candidate is route:
                    break
            else:
                answer.recorder = recorder
                return answer
        raise problem or NoUpstreamAnswer(
            ModelFailure(404, "no recording matches the request", error_kind_for_status(404)), transient=False
        )

    async def _request_unless_open(
        self, call: ModelCall, http: HttpRequest, exchange: Exchange, route: ModelRoute
    ) -> UpstreamModelAnswer:
        """Send the request to one provider, unless its circuit breaker is open."""
        wait = route.circuit.seconds_until_allowed()
        if wait is not None:
            cause = f"provider {route.provider.name}: {route.circuit.last_problem or 'it is failing'}"
            message = f"{cause}; the next attempt is possible in {math.ceil(wait)} s"
            exchange.notes.append(f"not sent: paused for {math.ceil(wait)} s after repeated failures")
            raise NoUpstreamAnswer(ModelFailure(503, message, "overloaded_error"), retry_after=wait, cause=cause)
        try:
            prepared = await prepare_provider_request(call, http, exchange, route, self._workers)
            exchange.provider_format = prepared.provider_request.format
            try:
                return await self._send_once(prepared, route)
            except NoUpstreamAnswer as error:
                return await self._retry(error, prepared, exchange, route)
        except NoUpstreamAnswer:
            raise
        except BaseException:
            route.circuit.record_cancellation()
            raise

    async def _retry(
        self, problem: NoUpstreamAnswer, prepared: PreparedProviderRequest, exchange: Exchange, route: ModelRoute
    ) -> UpstreamModelAnswer:
        """Retry transient failures, up to the provider's configured number of retries."""
        for attempt in range(route.provider_settings.retries):
            if not problem.transient:
                break
            pause = min(FIRST_BACKOFF * 2**attempt, MAX_BACKOFF) * random.uniform(0.5, 1.0)  # noqa: S311
            if problem.retry_after is not None:
                if problem.retry_after > MAX_RETRY_AFTER:
                    break
                pause = problem.retry_after
            exchange.retries += 1
            exchange.notes.append(f"asked {route.provider.name} again: {problem.failure.message[:200]}")
            await asyncio.sleep(pause)
            try:
                return await self._send_once(prepared, route)
            except NoUpstreamAnswer as error:
                problem = error
        raise problem

    async def _send_once(self, prepared: PreparedProviderRequest, route: ModelRoute) -> UpstreamModelAnswer:
        request = prepared.provider_request
        response: UpstreamResponse | None = None
        try:
            response = await route.provider.send(request)
            if response.status < 300:
                answer = await _receive_start(prepared, route, response)
                route.circuit.record_success()
                self._routes.key_health.record_acceptance(route.provider.name)
                self._routes.answering_providers.add(route.provider.name)
                response = None
                return answer
            body = await response.read()
            for secret in route.provider.secrets:
                body = body.replace(secret, b"[redacted]")
        except UpstreamError as error:
            route.circuit.record_failure(str(error))
            raise _connection_failure(request, route, error) from None
        finally:
            if response is not None:
                response.close()
        if response.status >= 500:
            route.circuit.record_failure(f"it answered with status {response.status}")
        else:
            route.circuit.record_success()
        if _is_key_refusal(response.status, body):
            self._routes.key_health.record_refusal(route.provider.name, response.status)
        raise _refusal_failure(request, route, response, body, self._routes.provider_key_advice(route.provider.name))


async def _receive_start(
    prepared: PreparedProviderRequest, route: ModelRoute, response: UpstreamResponse
) -> UpstreamModelAnswer:
    """Wait for the first piece of the answer, after which it is no longer retried."""
    request = prepared.provider_request
    kind = header_value(response.headers, b"content-type").lower()
    if kind.startswith(b"text/html"):
        raise UpstreamBroken(f"provider {route.provider.name} answered with a web page; check its base_url")
    streams = request.stream and (kind.startswith(b"text/event-stream") or request.array or not kind)
    if not streams:
        body = await response.read()
        response.close()
        return UpstreamModelAnswer(route, prepared, response, body, is_stream=False)
    first = await response.read_piece()
    if not first:
        raise UpstreamBroken("the answer ended before it began")
    return UpstreamModelAnswer(route, prepared, response, first, is_stream=True)


def _connection_failure(request: ProviderRequest, route: ModelRoute, error: UpstreamError) -> NoUpstreamAnswer:
    status = 504 if isinstance(error, UpstreamTimedOut) else 502
    message = f"provider {route.provider.name}: {error}"
    if isinstance(error, UpstreamUnreachable):
        message += _address_advice(request, route)
    elif isinstance(error, UpstreamProxyFailed) and request.caller.sandbox is None:
        message += f"; its address is {error.address}"
    return NoUpstreamAnswer(ModelFailure(status, message, error_kind_for_status(status)), transient=error.retryable)


def _is_key_refusal(status: int, body: bytes) -> bool:
    return status in (401, 403) or is_bad_key_response(status, body)


def _address_advice(request: ProviderRequest, route: ModelRoute) -> str:
    """Return a hint about the address; empty for sandboxes, which must not learn addresses of the server's network."""
    return provider_address_advice(route.provider_settings) if request.caller.sandbox is None else ""


def _refusal_failure(
    request: ProviderRequest, route: ModelRoute, response: UpstreamResponse, body: bytes, provider_key_advice: str
) -> NoUpstreamAnswer:
    status = response.status
    wait = parse_retry_after(response.headers)
    if _is_key_refusal(status, body):
        # Providers quote parts of the refused key, which the client must not see.
        message = key_refusal_message(route.provider.name, status, provider_key_advice)
        if route.provider_settings.key is None:
            quoted_message = FORMATS[request.format].read_failure(status, body).message
            name = route.provider.name
            message = f"provider {name} has no key (llm.providers.{name}.key): {quoted_message}"
        shown_status = 401 if status == 400 else status
        return NoUpstreamAnswer(
            ModelFailure(shown_status, message, error_kind_for_status(shown_status), PROVIDER_KEY_REFUSED),
            transient=False,
        )
    if status < 400:
        message = f"provider {route.provider.name} answered with status {status}; check its base_url"
        return NoUpstreamAnswer(ModelFailure(502, message, error_kind_for_status(502)), transient=False)
    failure = FORMATS[request.format].read_failure(status, body)
    about_model = request.model in failure.message or "model" in failure.message.lower()
    if status in (404, 405) and isinstance(route.provider, HttpProvider) and not about_model:
        # Not about a model: the path does not exist, so the base URL is wrong.
        message = (
            f"provider {route.provider.name}: {failure.message} (status {status}){_address_advice(request, route)}"
        )
        return NoUpstreamAnswer(ModelFailure(status, message, failure.kind, failure.code), transient=False)
    quoted = route.provider.secrets
    headers = [pair for pair in response.headers if not any(secret in pair[1] for secret in quoted)]
    shown = (request.format, headers, body)
    return NoUpstreamAnswer(failure, retry_after=wait, transient=status in RETRIED_STATUSES, provider_response=shown)

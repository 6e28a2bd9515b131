"""Build the request for a provider from the client's request: the same bytes if both use one format."""

from __future__ import annotations

from dataclasses import dataclass

from paddock.llm.exchange import Exchange
from paddock.llm.formats.embeddings import EmbeddingRequest
from paddock.llm.formats.neutral import ModelRequest
from paddock.llm.formats.openai_responses.tool_conversion import RESPONSES_FORMAT_NAME
from paddock.llm.gateway.header_filter import headers_for_provider
from paddock.llm.gateway.model_routes import ModelRoute
from paddock.llm.offload.worker_pool import OffloadWorkerPool
from paddock.llm.offload.worker_tasks import (
    MAX_READ_IN_PROCESS,
    RequestBuildPlan,
    build_provider_request,
    is_large_body,
)
from paddock.llm.providers.base import ProviderRequest, UnsupportedByProvider
from paddock.llm.providers.http_providers import OpenAIProvider
from paddock.llm.request_kind import COUNT_OPERATION, EMBED_OPERATION, GENERATE_OPERATION, ModelCall
from paddock.llm.wire.base import Headers, HttpRequest

IN_PROCESS_READERS = ("script", "replay")
"""Kinds of providers that parse requests in this process."""
_COUNT_FORMATS = {"anthropic": ("anthropic",), "gemini": ("gemini",), "script": ("anthropic", "gemini")}
_EMBED_FORMATS = {"openai": ("openai-chat",), "gemini": ("gemini",), "script": ("openai-chat", "gemini")}
"""Formats in which each kind of provider supports token counts and embeddings; kinds not listed do not."""


@dataclass(slots=True)
class PreparedProviderRequest:
    """A request to a provider, and its neutral form if it was translated."""

    provider_request: ProviderRequest
    model_request: ModelRequest | None = None
    embed_request: EmbeddingRequest | None = None

    @property
    def translated(self) -> bool:
        return self.model_request is not None or self.embed_request is not None


def can_count_tokens(route: ModelRoute) -> bool:
    """Return whether a route's provider can count the tokens of a prompt."""
    return route.provider.kind in _COUNT_FORMATS


def relays_item_references(route: ModelRoute) -> bool:
    """Return whether references to items reach a provider that may have stored the items itself."""
    return RESPONSES_FORMAT_NAME in route.provider.formats and route.provider.kind not in IN_PROCESS_READERS


async def prepare_provider_request(
    call: ModelCall, http: HttpRequest, exchange: Exchange, route: ModelRoute, workers: OffloadWorkerPool
) -> PreparedProviderRequest:
    """Build the request for this route's provider. Large ones are built by a worker process.

    Raises `InvalidInput` for requests that are invalid or cannot be expressed in the provider's format.
    """
    plan = _make_plan(call, exchange, route)
    if _runs_in_process(plan, http.body):
        built = build_provider_request(plan, http.body)
    else:
        built, body = await workers.run_task("make", plan, http.body)
        built.body = body
    if route.provider.kind in IN_PROCESS_READERS and is_large_body(http.body):
        await workers.run_task("check", None, http.body)
    request = _make_provider_request(call, exchange, route, plan.format, built.body)
    if not (plan.translates or plan.embeds):
        request.headers = _with_configured_headers(headers_for_provider(http.headers), route.headers)
        request.query, request.method, request.array = http.query, call.method, call.array
        return PreparedProviderRequest(request)
    request.headers = _minimal_headers(http, route)
    notes = built.request.notes if built.request is not None else built.embed.notes if built.embed is not None else []
    exchange.notes += [text for text in notes if text not in exchange.notes]
    return PreparedProviderRequest(request, model_request=built.request, embed_request=built.embed)


def _make_plan(call: ModelCall, exchange: Exchange, route: ModelRoute) -> RequestBuildPlan:
    formats = route.provider.formats
    if call.operation == EMBED_OPERATION:
        formats = _EMBED_FORMATS.get(route.provider.kind, ())
    elif call.operation == COUNT_OPERATION:
        formats = _COUNT_FORMATS.get(route.provider.kind, ())
    if not formats:
        raise UnsupportedByProvider(
            f"provider {route.provider.name} does not support {call.operation}; choose another model"
        )
    settings = route.settings
    if call.format in formats:
        return RequestBuildPlan(
            call,
            call.format,
            None if call.format == "gemini" else route.model,
            patches=call.operation == GENERATE_OPERATION and not route.passes_unchanged,
            defaults=settings.defaults,
            overrides=settings.overrides,
        )
    thinking = route.provider.thinking if isinstance(route.provider, OpenAIProvider) else None
    return RequestBuildPlan(
        call,
        formats[0],
        route.model,
        translates=call.operation != EMBED_OPERATION,
        embeds=call.operation == EMBED_OPERATION,
        defaults=settings.defaults,
        overrides=settings.overrides,
        thinking=thinking,
        exchange=exchange.id,
    )


def _runs_in_process(plan: RequestBuildPlan, body: bytes) -> bool:
    if plan.translates or plan.embeds:
        return not is_large_body(body)
    unchanged = not plan.patches and plan.model in (None, plan.call.model)
    return unchanged or len(body) <= MAX_READ_IN_PROCESS


def _minimal_headers(http: HttpRequest, route: ModelRoute) -> list[tuple[bytes, bytes]]:
    """Return the headers for a provider of another format: only the client's User-Agent and the route's own."""
    user_agent = [pair for pair in headers_for_provider(http.headers) if pair[0] == b"user-agent"]
    return _with_configured_headers(user_agent, route.headers)


def _with_configured_headers(headers: Headers, configured: Headers) -> Headers:
    """Return the headers with the configured ones, which replace headers of the same name."""
    if not configured:
        return headers
    names = {name for name, _ in configured}
    return [*(pair for pair in headers if pair[0] not in names), *configured]


def _make_provider_request(
    call: ModelCall, exchange: Exchange, route: ModelRoute, format: str, body: bytes
) -> ProviderRequest:
    return ProviderRequest(
        format=format,
        operation=call.operation,
        model=route.model,
        body=body,
        stream=call.stream,
        caller=exchange.caller,
        requested_model=call.model,
        conversation=exchange.conversation,
        exchange=exchange.id,
    )

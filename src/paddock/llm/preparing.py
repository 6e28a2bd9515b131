"""Makes the request for a provider out of a client's: the same bytes where both speak one format."""

from __future__ import annotations

from dataclasses import dataclass

from paddock.llm.calls import COUNT, EMBED, GENERATE, Call
from paddock.llm.exchange import Exchange
from paddock.llm.formats.embeddings import EmbedRequest
from paddock.llm.neutral import Request
from paddock.llm.offload.pool import WorkerPool
from paddock.llm.offload.tasks import READ_HERE, Plan, is_large, make
from paddock.llm.passing import from_client
from paddock.llm.providers.base import Ask, Unsuitable
from paddock.llm.providers.http import OpenAIProvider
from paddock.llm.routes import Route
from paddock.llm.wire.base import HttpRequest

READERS = ("script", "replay")
"""Kinds of providers that read requests in this process."""
_COUNTING = {"anthropic": ("anthropic",), "gemini": ("gemini",), "script": ("anthropic", "gemini")}
_EMBEDDING = {"openai": ("openai-chat",), "gemini": ("gemini",), "script": ("openai-chat", "gemini")}
"""In which formats the kinds of providers can do what is no conversation; those not listed cannot."""


@dataclass(slots=True)
class Prepared:
    """A request to a provider, and the neutral form it passed through if it had to be translated."""

    ask: Ask
    request: Request | None = None
    embed: EmbedRequest | None = None

    @property
    def translated(self) -> bool:
        return self.request is not None or self.embed is not None


def can_count(route: Route) -> bool:
    """Whether a route's provider can tell how many tokens a prompt has."""
    return route.provider.kind in _COUNTING


async def prepare(call: Call, http: HttpRequest, exchange: Exchange, route: Route, workers: WorkerPool) -> Prepared:
    """The request as this route's provider wants it. Large ones are read by a worker process.

    Raises `InvalidInput` for what is not valid or cannot be said to that provider.
    """
    plan = _plan(call, exchange, route)
    if _is_done_here(plan, http.body):
        made = make(plan, http.body)
    else:
        made, body = await workers.run("make", plan, http.body)
        made.body = body
    if route.provider.kind in READERS and is_large(http.body):
        await workers.run("check", None, http.body)
    ask = _ask(call, exchange, route, plan.format, made.body)
    if not (plan.translates or plan.embeds):
        ask.headers = [*from_client(http.headers), *route.headers]
        ask.query, ask.method, ask.array = http.query, call.method, call.array
        return Prepared(ask)
    ask.headers = _few(http, route)
    notes = made.request.notes if made.request is not None else made.embed.notes if made.embed is not None else []
    exchange.notes += [text for text in notes if text not in exchange.notes]
    return Prepared(ask, request=made.request, embed=made.embed)


def _plan(call: Call, exchange: Exchange, route: Route) -> Plan:
    formats = route.provider.formats
    if call.operation == EMBED:
        formats = _EMBEDDING.get(route.provider.kind, ())
    elif call.operation == COUNT:
        formats = _COUNTING.get(route.provider.kind, ())
    if not formats:
        raise Unsuitable(f"provider {route.provider.name} cannot do {call.operation}; choose another model")
    settings = route.settings
    if call.format in formats:
        return Plan(
            call,
            call.format,
            None if call.format == "gemini" else route.model,
            patches=call.operation == GENERATE and not route.plain,
            defaults=settings.defaults,
            overrides=settings.overrides,
        )
    thinking = route.provider.thinking if isinstance(route.provider, OpenAIProvider) else None
    return Plan(
        call,
        formats[0],
        route.model,
        translates=call.operation != EMBED,
        embeds=call.operation == EMBED,
        defaults=settings.defaults,
        overrides=settings.overrides,
        thinking=thinking,
        exchange=exchange.id,
    )


def _is_done_here(plan: Plan, body: bytes) -> bool:
    if plan.translates or plan.embeds:
        return not is_large(body)
    unchanged = not plan.patches and plan.model in (None, plan.call.model)
    return unchanged or len(body) <= READ_HERE


def _few(http: HttpRequest, route: Route) -> list[tuple[bytes, bytes]]:
    """A provider of another family has no use for the client's headers, but for who it is."""
    return [*(pair for pair in from_client(http.headers) if pair[0] == b"user-agent"), *route.headers]


def _ask(call: Call, exchange: Exchange, route: Route, format: str, body: bytes) -> Ask:
    return Ask(
        format=format,
        operation=call.operation,
        model=route.model,
        body=body,
        stream=call.stream,
        caller=exchange.caller,
        asked=call.model,
        conversation=exchange.conversation,
        exchange=exchange.id,
    )

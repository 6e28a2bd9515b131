"""Makes the request for a provider out of a client's: the same bytes where both speak one format."""

from __future__ import annotations

import re
from dataclasses import dataclass

from paddock.errors import TooLarge
from paddock.llm.bodies import SHARED, patched, renamed
from paddock.llm.calls import COUNT, EMBED, GENERATE, Call
from paddock.llm.exchange import Exchange
from paddock.llm.formats.embeddings import EMBED_FORMATS, EmbedRequest
from paddock.llm.formats.registry import FORMATS
from paddock.llm.neutral import Request
from paddock.llm.passing import from_client
from paddock.llm.providers.base import Ask, Unsuitable
from paddock.llm.providers.http import OpenAIProvider
from paddock.llm.routes import Route
from paddock.llm.wire.base import HttpRequest

MOST_PARTS = 50_000
_FEW_BYTES = 200_000
_OBJECT = re.compile(rb'\{\s*"')
"""Where an object begins. In texts the quotation mark would have a backslash."""
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


def check_parts(body: bytes) -> None:
    """Raise `TooLarge` for a body of so many parts that reading it would keep everybody waiting."""
    if len(body) > _FEW_BYTES and sum(1 for _ in _OBJECT.finditer(body)) > MOST_PARTS:
        raise TooLarge(f"the request has more than {MOST_PARTS} messages and parts, too many to be read one by one")


def prepare(call: Call, http: HttpRequest, exchange: Exchange, route: Route) -> Prepared:
    """The request as this route's provider wants it.

    Raises `InvalidInput` for what is not valid or cannot be said to that provider.
    """
    formats = route.provider.formats
    if call.operation == EMBED:
        formats = _EMBEDDING.get(route.provider.kind, ())
    elif call.operation == COUNT:
        formats = _COUNTING.get(route.provider.kind, ())
    if not formats:
        raise Unsuitable(f"provider {route.provider.name} cannot do {call.operation}; choose another model")
    if call.format in formats:
        return _relayed(call, http, exchange, route)
    check_parts(http.body)
    if call.operation == EMBED:
        return _embedding(call, http, exchange, route, formats[0])
    return _translated(call, http, exchange, route, formats[0])


def _relayed(call: Call, http: HttpRequest, exchange: Exchange, route: Route) -> Prepared:
    body = http.body
    model = None if call.format == "gemini" else route.model
    if call.operation == GENERATE and not route.plain:
        settings = route.settings
        body = patched(body, call.format, model=model, defaults=settings.defaults, overrides=settings.overrides)
    elif model is not None and model != call.model:
        body = renamed(body, call.format, call.model, model)
    ask = _ask(call, exchange, route, call.format, body)
    ask.headers = [*from_client(http.headers), *route.headers]
    ask.query, ask.method, ask.array = http.query, call.method, call.array
    return Prepared(ask)


def _translated(call: Call, http: HttpRequest, exchange: Exchange, route: Route, format: str) -> Prepared:
    settings = route.settings
    body = http.body
    shared = {name: value for name, value in settings.defaults.items() if name in SHARED}
    own = {name: value for name, value in settings.defaults.items() if name not in SHARED}
    if shared:
        body = patched(body, call.format, defaults=shared)
    request = FORMATS[call.format].read_request(body, model=call.model, stream=call.stream)
    request.model, request.exchange = route.model, exchange.id
    if call.array:
        request.extra["gemini_array"] = True
    if isinstance(route.provider, OpenAIProvider):
        request.extra["thinking_dialect"] = route.provider.thinking
    if call.operation == COUNT:
        body = FORMATS[format].write_count_request(request)
    else:
        body = FORMATS[format].write_request(request)
        if own or settings.overrides:
            body = patched(body, format, defaults=own, overrides=settings.overrides)
    exchange.notes += [text for text in request.notes if text not in exchange.notes]
    ask = _ask(call, exchange, route, format, body)
    ask.headers = _few(http, route)
    return Prepared(ask, request=request)


def _embedding(call: Call, http: HttpRequest, exchange: Exchange, route: Route, format: str) -> Prepared:
    request = EMBED_FORMATS[call.format].read_request(http.body, model=call.model)
    request.model = route.model
    body = EMBED_FORMATS[format].write_request(request)
    exchange.notes += request.notes
    ask = _ask(call, exchange, route, format, body)
    ask.headers = _few(http, route)
    return Prepared(ask, embed=request)


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

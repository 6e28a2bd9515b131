"""What a worker process does for the server: read, change and translate large requests to models."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from paddock.errors import TooLarge
from paddock.llm.bodies import SHARED, patched, renamed
from paddock.llm.calls import COUNT, Call, read_call
from paddock.llm.formats.embeddings import EMBED_FORMATS, EmbedRequest
from paddock.llm.formats.registry import FORMATS
from paddock.llm.json_values import ValueCounter, roughly
from paddock.llm.neutral import Request
from paddock.llm.wire.base import HttpRequest

READ_HERE = 4 * 2**20
"""Bytes of a body that the server itself looks through; larger ones are a worker's."""
TRANSLATE_HERE = 256 * 2**10
VALUES_HERE = 8000
"""Values, commas in texts among them, of a body that the server itself translates."""
MOST_VALUES = 150_000
"""Values of a request that is read one by one: to be translated, or to be answered by a script or a recording."""


@dataclass(slots=True)
class Plan:
    """How a request is made into another: for one provider, without anything of this process."""

    call: Call
    format: str
    """The provider's."""
    model: str | None
    """The provider's name for the model; `None` where the body does not name it."""
    translates: bool = False
    embeds: bool = False
    defaults: Mapping[str, Any] = field(default_factory=dict)
    overrides: Mapping[str, Any] = field(default_factory=dict)
    patches: bool = False
    """Whether fields are set or taken out."""
    thinking: str | None = None
    exchange: str | None = None
    """The id of the exchange that the request belongs to."""


@dataclass(slots=True)
class Made:
    """The body for a provider, and the request it was translated from."""

    body: bytes
    request: Request | None = None
    embed: EmbedRequest | None = None


def is_large(body: bytes) -> bool:
    """Whether to read a body value by value would keep other clients waiting."""
    return len(body) > TRANSLATE_HERE or (len(body) > VALUES_HERE and roughly(body) > VALUES_HERE)


def make(plan: Plan, body: bytes) -> Made:
    """Carry out a plan. Raises `InvalidInput` for what is not valid or cannot be said to the provider."""
    if plan.embeds:
        return _embedding(plan, body)
    return _translation(plan, body) if plan.translates else Made(_relay(plan, body))


def check_values(body: bytes) -> None:
    """Raise `TooLarge` for a request of more values than anybody has a use for."""
    if roughly(body) > MOST_VALUES and ValueCounter().feed(body) > MOST_VALUES:
        raise TooLarge(f"the request has more than {MOST_VALUES} values, too many to be read one by one")


def _relay(plan: Plan, body: bytes) -> bytes:
    call = plan.call
    if plan.patches:
        return patched(body, call.format, model=plan.model, defaults=plan.defaults, overrides=plan.overrides)
    if plan.model is not None and plan.model != call.model:
        return renamed(body, call.format, call.model, plan.model)
    return body


def _translation(plan: Plan, body: bytes) -> Made:
    call = plan.call
    shared = {name: value for name, value in plan.defaults.items() if name in SHARED}
    own = {name: value for name, value in plan.defaults.items() if name not in SHARED}
    if shared:
        body = patched(body, call.format, defaults=shared)
    request = FORMATS[call.format].read_request(body, model=call.model, stream=call.stream)
    assert plan.model is not None
    request.model, request.exchange = plan.model, plan.exchange
    if call.array:
        request.extra["gemini_array"] = True
    if plan.thinking is not None:
        request.extra["thinking_dialect"] = plan.thinking
    if call.operation == COUNT:
        return Made(FORMATS[plan.format].write_count_request(request), request)
    body = FORMATS[plan.format].write_request(request)
    if own or plan.overrides:
        body = patched(body, plan.format, defaults=own, overrides=plan.overrides)
    return Made(body, request)


def _embedding(plan: Plan, body: bytes) -> Made:
    request = EMBED_FORMATS[plan.call.format].read_request(body, model=plan.call.model)
    assert plan.model is not None
    request.model = plan.model
    return Made(EMBED_FORMATS[plan.format].write_request(request), embed=request)


# What a worker is asked by name: from an argument and a body to a result and a body.


def _read(http: HttpRequest, body: bytes) -> tuple[Call, bytes]:
    http.body = body
    return read_call(http), b""


def _make(plan: Plan, body: bytes) -> tuple[Made, bytes]:
    if plan.translates or plan.embeds:
        check_values(body)
    made = make(plan, body)
    # The answer needs the names of tools and the like, but nothing of what was said.
    request = replace(made.request, messages=[]) if made.request is not None else None
    embed = replace(made.embed, inputs=[]) if made.embed is not None else None
    return Made(b"", request, embed), made.body


def _check(_: None, body: bytes) -> tuple[None, bytes]:
    check_values(body)
    return None, b""


TASKS: Mapping[str, Callable[[Any, bytes], tuple[Any, bytes]]] = {"read": _read, "make": _make, "check": _check}

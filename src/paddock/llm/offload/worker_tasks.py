"""Tasks of worker processes: parse, patch and translate large model requests."""

from __future__ import annotations

import pickle
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from paddock.errors import InvalidInput, PaddockError, TooLarge
from paddock.llm.formats.base import BrokenModelStream, UntranslatableRequest
from paddock.llm.formats.embeddings import EMBEDDING_FORMATS, EmbeddingRequest
from paddock.llm.formats.neutral import ModelRequest
from paddock.llm.formats.openai_responses.item_reference_bodies import (
    find_answer_items,
    referenced_item_ids,
    replace_item_references,
)
from paddock.llm.formats.registry import FORMATS
from paddock.llm.offload.body_patch import SHARED_SETTINGS, patch_request_body, replace_model_in_body
from paddock.llm.request_kind import COUNT_OPERATION, GENERATE_OPERATION, ModelCall, parse_model_call
from paddock.llm.scripted_model.turn_conditions import (
    ScriptConditions,
    ScriptedConversationFacts,
    ScriptSearchTooLong,
    TurnConditionMatcher,
)
from paddock.llm.scripted_model.turn_selection import ScriptTurnChoice, choose_script_turn
from paddock.llm.wire.base import HttpRequest
from paddock.model.json_value_counter import estimate_value_count, has_more_values

MAX_READ_IN_PROCESS = 4 * 2**20
"""Bytes of a body that the server process scans itself; larger bodies go to a worker."""
MAX_TRANSLATE_IN_PROCESS = 256 * 2**10
MAX_VALUES_IN_PROCESS = 8000
"""Values (commas inside texts included) of a body that the server process translates itself."""
MAX_VALUES = 150_000
"""Maximum values of a request that is fully parsed: for translation, or for a script or replay provider."""

MAX_NON_ASCII = 8 * 2**20
"""Bytes of non-ASCII text that is decoded: taking it over from a worker takes time, unlike ASCII text."""
_ASCII = bytes(range(128))
CHOICE_SECONDS = 1.0
"""CPU seconds for choosing the turn of a script."""


@dataclass(slots=True)
class RequestBuildPlan:
    """How to build the request for one provider. Can be sent to a worker process."""

    call: ModelCall
    format: str
    """The provider's format."""
    model: str | None
    """The provider's name of the model; `None` if the body does not contain it."""
    translates: bool = False
    embeds: bool = False
    defaults: Mapping[str, Any] = field(default_factory=dict)
    overrides: Mapping[str, Any] = field(default_factory=dict)
    patches: bool = False
    """Whether fields are set or removed."""
    thinking: str | None = None
    exchange: str | None = None
    """The id of the exchange this request belongs to."""


@dataclass(slots=True)
class BuiltProviderRequest:
    """The body for a provider, and the parsed request if it was translated."""

    body: bytes
    request: ModelRequest | None = None
    embed: EmbeddingRequest | None = None


def is_large_body(body: bytes) -> bool:
    """Return whether parsing a body in this process would block other clients."""
    return len(body) > MAX_TRANSLATE_IN_PROCESS or (
        len(body) > MAX_VALUES_IN_PROCESS and estimate_value_count(body) > MAX_VALUES_IN_PROCESS
    )


def build_provider_request(plan: RequestBuildPlan, body: bytes) -> BuiltProviderRequest:
    """Build the provider's request. Raises `InvalidInput` for invalid or untranslatable requests."""
    if plan.embeds:
        return _build_embedding(plan, body)
    return _build_translated(plan, body) if plan.translates else BuiltProviderRequest(_build_relayed(plan, body))


def check_value_count(body: bytes) -> None:
    """Raise `TooLarge` for a request with too many values to parse."""
    if has_more_values(body, MAX_VALUES):
        raise TooLarge(f"the request has more than {MAX_VALUES} JSON values, which is too many; make it smaller")


@dataclass(slots=True)
class EmbeddingTranslation:
    """How to write a provider's embeddings for the client."""

    provider_format: str
    client_format: str
    model: str
    """The client's name for the model."""
    request: EmbeddingRequest


class InvalidProviderAnswer(PaddockError):
    """A provider's answer does not follow its format."""


class InvalidJson(InvalidInput):
    """A body is not valid JSON."""


def translate_embedding_answer(translation: EmbeddingTranslation, body: bytes) -> tuple[int | None, bytes]:
    """Return an answer's input tokens, and the answer in the client's format. Raises `InvalidProviderAnswer`."""
    try:
        answer = EMBEDDING_FORMATS[translation.provider_format].read_answer(body)
        answer.model = translation.model
        written = EMBEDDING_FORMATS[translation.client_format].write_answer(answer, translation.request)
        return answer.input_tokens, written
    except BrokenModelStream as error:
        raise InvalidProviderAnswer(str(error)) from None


def _build_relayed(plan: RequestBuildPlan, body: bytes) -> bytes:
    call = plan.call
    if plan.patches:
        return patch_request_body(body, call.format, model=plan.model, defaults=plan.defaults, overrides=plan.overrides)
    if plan.model is not None and plan.model != call.model:
        return replace_model_in_body(body, call.format, call.model, plan.model)
    return body


def _build_translated(plan: RequestBuildPlan, body: bytes) -> BuiltProviderRequest:
    call = plan.call
    shared = {name: value for name, value in plan.defaults.items() if name in SHARED_SETTINGS}
    own = {name: value for name, value in plan.defaults.items() if name not in SHARED_SETTINGS}
    if shared:
        body = patch_request_body(body, call.format, defaults=shared)
    request = FORMATS[call.format].read_request(body, model=call.model, stream=call.stream)
    if request.hosted_tools and not request.tools and call.operation == GENERATE_OPERATION:
        raise UntranslatableRequest(
            f"all tools of this request ({', '.join(request.hosted_tools)[:200]}) are run by the client's own provider,"
            " which this model does not have: offer a function in their place, or choose a model of that provider"
        )
    assert plan.model is not None
    request.model, request.exchange = plan.model, plan.exchange
    if call.array:
        request.extra["gemini_array"] = True
    if plan.thinking is not None:
        request.extra["thinking_dialect"] = plan.thinking
    if call.operation == COUNT_OPERATION:
        return BuiltProviderRequest(FORMATS[plan.format].write_token_count_request(request), request)
    body = FORMATS[plan.format].write_request(request)
    if own or plan.overrides:
        body = patch_request_body(body, plan.format, defaults=own, overrides=plan.overrides)
    return BuiltProviderRequest(body, request)


def _build_embedding(plan: RequestBuildPlan, body: bytes) -> BuiltProviderRequest:
    request = EMBEDDING_FORMATS[plan.call.format].read_request(body, model=plan.call.model)
    assert plan.model is not None
    request.model = plan.model
    return BuiltProviderRequest(EMBEDDING_FORMATS[plan.format].write_request(request), embed=request)


# The tasks by name: each takes an argument and a body, and returns a result and a body.


def _read_task(http: HttpRequest, body: bytes) -> tuple[ModelCall, bytes]:
    http.body = body
    return parse_model_call(http), b""


def _build_task(plan: RequestBuildPlan, body: bytes) -> tuple[BuiltProviderRequest, bytes]:
    if plan.translates or plan.embeds:
        check_value_count(body)
    built = build_provider_request(plan, body)
    # Translating the answer needs tool names and settings, but no messages.
    request = replace(built.request, messages=[]) if built.request is not None else None
    embed = replace(built.embed, inputs=[]) if built.embed is not None else None
    return BuiltProviderRequest(b"", request, embed), built.body


def _check_task(_: None, body: bytes) -> tuple[None, bytes]:
    check_value_count(body)
    return None, b""


def _decode_task(max_values: int | None, text: bytes) -> tuple[None, bytes]:
    """Decode JSON to a pickle. Raises `InvalidJson`, and `TooLarge` for more than `max_values` values."""
    if max_values is not None and has_more_values(text, max_values):
        raise TooLarge(f"there are more than {max_values} values in it")
    if not text.isascii() and len(text.translate(None, _ASCII)) > MAX_NON_ASCII:
        raise TooLarge(f"there are more than {MAX_NON_ASCII >> 20} MiB of non-ASCII text in it; send it as a file")
    try:
        # Pickling fails too if the text is nested too deeply.
        return None, pickle.dumps(msgspec.json.decode(text), protocol=pickle.HIGHEST_PROTOCOL)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidJson(str(error)) from None


def _choose_turn_task(
    task: tuple[ScriptConditions, ScriptedConversationFacts, bool], body: bytes
) -> tuple[ScriptTurnChoice | None, bytes]:
    """Choose a script's turn within a time limit: the search functions of `re` can be interrupted by signals only."""
    conditions, facts, side_call = task
    matcher = TurnConditionMatcher(facts, {}, max_steps=sys.maxsize)

    def interrupt(*_: object) -> None:
        raise ScriptSearchTooLong

    previous = signal.signal(signal.SIGVTALRM, interrupt)
    signal.setitimer(signal.ITIMER_VIRTUAL, CHOICE_SECONDS)
    try:
        return choose_script_turn(conditions, facts, matcher, side_call=side_call), b""
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, previous)


def _call_task(call: tuple[Callable[..., Any], tuple[Any, ...]], _: bytes) -> tuple[Any, bytes]:
    """Call a function of any module; long results should be bytes, which are not copied."""
    function, arguments = call
    result = function(*arguments)
    return (None, result) if isinstance(result, bytes) else (result, b"")


def _referenced_items_task(_: None, body: bytes) -> tuple[dict[str, list[str]], bytes]:
    check_value_count(body)
    return referenced_item_ids(body), b""


def _find_items_task(wanted: tuple[list[str], bool], answer: bytes) -> tuple[dict[str, bytes], bytes]:
    return find_answer_items(*wanted, answer), b""


def _replace_references_task(items: Mapping[str, bytes], body: bytes) -> tuple[None, bytes]:
    return None, replace_item_references(items, body)


TASKS: Mapping[str, Callable[[Any, bytes], tuple[Any, bytes]]] = {
    "read": _read_task,
    "make": _build_task,
    "check": _check_task,
    "decode": _decode_task,
    "referenced_items": _referenced_items_task,
    "find_items": _find_items_task,
    "replace_references": _replace_references_task,
    "translate_embeddings": translate_embedding_answer,
    "choose_turn": _choose_turn_task,
    "call": _call_task,
}

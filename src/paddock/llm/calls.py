"""Which call to a model API a request is, and what it asks for."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, unquote

import msgspec

from paddock.errors import InvalidInput
from paddock.llm.wire.base import HttpRequest

GENERATE = "generate"
COUNT = "count_tokens"
EMBED = "embed"
_FIXED = {
    "/v1/chat/completions": ("openai-chat", GENERATE),
    "/v1/responses": ("openai-responses", GENERATE),
    "/v1/messages": ("anthropic", GENERATE),
    "/v1/messages/count_tokens": ("anthropic", COUNT),
    "/v1/embeddings": ("openai-chat", EMBED),
}
POSTED = tuple(_FIXED)
"""Where all requests are sent to models, but for Gemini's format, which has the model in the path."""
_GEMINI = re.compile(r"/(?:v1|v1beta|v1alpha)/models/([^?#]{1,1000}):([A-Za-z]{1,40})")
_GEMINI_METHODS = {
    "generateContent": GENERATE,
    "streamGenerateContent": GENERATE,
    "countTokens": COUNT,
    "embedContent": EMBED,
    "batchEmbedContents": EMBED,
}
_SHORT = frozenset(path.removeprefix("/v1") for path in _FIXED)
_SHORT_GEMINI = re.compile(r"/models/[^?#]{1,1000}:[A-Za-z]{1,40}")
_SHORT_LIST = re.compile(r"/models(?:/[^?#]{1,1000})?")
_LIST = re.compile(r"/(v1|v1beta|v1alpha)/models(?:/([^?#]{1,1000}))?")
_SECRETS = (b"authorization", b"x-api-key", b"x-goog-api-key")


@dataclass(slots=True)
class Call:
    """A request to a model, as far as its address and a look at its body tell."""

    format: str
    operation: str
    model: str
    stream: bool
    array: bool = False
    """Whether a Gemini client wants its stream as one JSON array, not as server-sent events."""
    method: str = ""
    """Gemini's own name for what is asked."""


@dataclass(slots=True)
class Listing:
    """A request for the models there are, or for one of them."""

    format: str
    model: str | None


class _Head(msgspec.Struct):
    """What of a body the gateway must know; the rest is only checked to be JSON."""

    model: Any = None
    stream: Any = None


_head = msgspec.json.Decoder(_Head)


def concerns(path: str) -> bool:
    """Whether an address is one of a model API's."""
    return path in _FIXED or _LIST.fullmatch(path) is not None or _GEMINI.fullmatch(path) is not None


def full_path(path: str) -> str:
    """Return a path with the version in front that some clients leave to the base URL."""
    if path in _SHORT or _SHORT_LIST.fullmatch(path):
        return f"/v1beta{path}" if _SHORT_GEMINI.fullmatch(path) else f"/v1{path}"
    return path


def meant(path: str) -> str | None:
    """Return the path of a client whose base URL has `/v1` twice, without the second one."""
    return path.removeprefix("/v1") if path.startswith("/v1/v1") else None


def format_of(path: str) -> str:
    """The format to tell errors in."""
    if path in _FIXED:
        return _FIXED[path][0]
    return "gemini" if path.startswith(("/v1beta/", "/v1alpha/")) or _GEMINI.fullmatch(path) else "openai-chat"


def listing(request: HttpRequest) -> Listing | None:
    found = _LIST.fullmatch(request.path)
    if found is None:
        return None
    if found[1] != "v1" or request.header(b"x-goog-api-key") is not None:
        kind = "gemini"
    else:
        kind = "anthropic" if request.header(b"anthropic-version") is not None else "openai-chat"
    return Listing(kind, unquote(found[2]) if found[2] else None)


def read_call(request: HttpRequest) -> Call:
    """What a request asks for. Raises `InvalidInput` for what is no JSON object with a model."""
    fixed = _FIXED.get(request.path)
    if fixed is None:
        return _gemini(request)
    head = _read(request.body)
    if not isinstance(head.model, str) or not head.model:
        raise InvalidInput("model: give the name of a model, as text")
    if head.stream is not None and not isinstance(head.stream, bool):
        raise InvalidInput("stream: give true or false")
    return Call(*fixed, head.model, bool(head.stream) and fixed[1] == GENERATE)


def _gemini(request: HttpRequest) -> Call:
    found = _GEMINI.fullmatch(request.path)
    operation = _GEMINI_METHODS.get(found[2]) if found else None
    if found is None or operation is None:
        raise InvalidInput(f"there is no such method; known are {', '.join(_GEMINI_METHODS)}")
    _read(request.body)
    stream = found[2] == "streamGenerateContent"
    array = stream and dict(parse_qsl(request.query)).get("alt") != "sse"
    return Call("gemini", operation, unquote(found[1]), stream, array, found[2])


def _read(body: bytes) -> _Head:
    try:
        if not body.isascii():
            body.decode()
        return _head.decode(body)
    except UnicodeDecodeError:
        raise InvalidInput("the body is not UTF-8") from None
    except RecursionError:
        raise InvalidInput("the body is nested too deeply") from None
    except msgspec.ValidationError:
        raise InvalidInput("the body must be a JSON object") from None
    except msgspec.DecodeError as error:
        raise InvalidInput(f"the body is not valid JSON: {error}") from None


def secret_of(request: HttpRequest) -> str | None:
    """The key a client shows, wherever its library puts it."""
    first = request.first
    for name in _SECRETS:
        value = first.get(name)
        if value:
            text = value.decode("latin-1").strip()
            scheme, _, rest = text.partition(" ")
            return rest.strip() if rest and scheme.lower() == "bearer" else text
    return dict(parse_qsl(request.query)).get("key") if "key=" in request.query else None


def wants_upgrade(request: HttpRequest) -> bool:
    return request.first.get(b"upgrade", b"").lower() == b"websocket"

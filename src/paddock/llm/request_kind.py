"""Classify a request to a model API: format, operation, model and key."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, unquote

import msgspec

from paddock.errors import InvalidInput
from paddock.llm.wire.base import HttpRequest

GENERATE_OPERATION = "generate"
COUNT_OPERATION = "count_tokens"
EMBED_OPERATION = "embed"
_FIXED = {
    "/v1/chat/completions": ("openai-chat", GENERATE_OPERATION),
    "/v1/responses": ("openai-responses", GENERATE_OPERATION),
    "/v1/messages": ("anthropic", GENERATE_OPERATION),
    "/v1/messages/count_tokens": ("anthropic", COUNT_OPERATION),
    "/v1/embeddings": ("openai-chat", EMBED_OPERATION),
}
POST_PATHS = tuple(_FIXED)
"""Paths of model requests in all formats but Gemini's, which has the model in the path."""
_GEMINI = re.compile(r"/(?:v1|v1beta|v1alpha)/models/([^?#]{1,1000}):([A-Za-z]{1,40})")
_GEMINI_METHODS = {
    "generateContent": GENERATE_OPERATION,
    "streamGenerateContent": GENERATE_OPERATION,
    "countTokens": COUNT_OPERATION,
    "embedContent": EMBED_OPERATION,
    "batchEmbedContents": EMBED_OPERATION,
}
UNSERVED_GEMINI_METHODS = {
    "predict": "image generation",
    "predictLongRunning": "video generation",
    "batchGenerateContent": "batches",
    "asyncBatchEmbedContent": "batches of embeddings",
    "bidiGenerateContent": "live sessions",
    "generateAnswer": "grounded answers",
}
"""What Gemini's other methods of a model are for."""
_SHORT = frozenset(path.removeprefix("/v1") for path in _FIXED)
_SHORT_GEMINI = re.compile(r"/models/[^?#]{1,1000}:[A-Za-z]{1,40}")
_SHORT_LIST = re.compile(r"/models(?:/[^?#]{1,1000})?")
_LIST = re.compile(r"/(v1|v1beta|v1alpha)/models(?:/([^?#]{1,1000}))?")
_REPEATED_SLASHES = re.compile("//+")
_WRONG_PREFIXES = {
    "/v1/v1/": "/v1/",
    "/v1/v1beta/": "/v1beta/",
    "/v1beta/v1/": "/v1/",
    "/v1beta/v1beta/": "/v1beta/",
    "/v1beta/openai/": "/v1/",
    "/openai/v1/": "/v1/",
    "/anthropic/v1/": "/v1/",
}
"""Prefixes of paths from base URLs with a doubled version, or of a provider's own."""
_WRONG_STARTS = tuple(_WRONG_PREFIXES)
_SECRETS = (b"authorization", b"x-api-key", b"x-goog-api-key")


@dataclass(slots=True)
class ModelCall:
    """A request to a model: what its path and the head of its body say."""

    format: str
    operation: str
    model: str
    stream: bool
    array: bool = False
    """Whether a Gemini client wants the stream as one JSON array rather than server-sent events."""
    method: str = ""
    """Gemini's name of the method."""


@dataclass(slots=True)
class ModelListRequest:
    """A request for the list of models, or for one of them."""

    format: str
    model: str | None


class _BodyHead(msgspec.Struct):
    """The fields of a body that the gateway needs; the rest is only checked to be JSON."""

    model: Any = None
    stream: Any = None


_head = msgspec.json.Decoder(_BodyHead)


def is_model_path(path: str) -> bool:
    """Return whether a path belongs to a model API that is served."""
    if path in _FIXED:
        return True
    if _LIST.fullmatch(path) is None and _GEMINI.fullmatch(path) is None:
        return False
    return unserved_gemini_method(path) is None


def is_post_model_path(path: str) -> bool:
    """Return whether a model path takes requests to a model; the others only list models."""
    return path in _FIXED or _GEMINI.fullmatch(path) is not None


def unserved_gemini_method(path: str) -> str | None:
    """Return what a path's method of a Gemini model is for, if it is a known method that is not served."""
    found = _GEMINI.fullmatch(path)
    return UNSERVED_GEMINI_METHODS.get(found[2]) if found is not None else None


def add_api_version(path: str) -> str:
    """Add the version prefix that some clients leave out of the path."""
    if path in _FIXED:
        return path
    if path in _SHORT or _SHORT_LIST.fullmatch(path):
        return f"/v1beta{path}" if _SHORT_GEMINI.fullmatch(path) else f"/v1{path}"
    return path


def suggest_model_path(path: str) -> str | None:
    """Return the served path that a client with a wrong base URL means: one with too many slashes or prefixes."""
    if not (path.endswith("/") or "//" in path or path.startswith(_WRONG_STARTS)):
        return None
    suggested = _REPEATED_SLASHES.sub("/", path).rstrip("/")
    for wrong, prefix in _WRONG_PREFIXES.items():
        if suggested.startswith(wrong):
            suggested = prefix + suggested[len(wrong) :]
            break
    suggested = add_api_version(suggested)
    return suggested if is_model_path(suggested) else None


def error_format_of_path(path: str) -> str:
    """Return the format in which to report errors for a path."""
    if path in _FIXED:
        return _FIXED[path][0]
    return "gemini" if path.startswith(("/v1beta/", "/v1alpha/")) or _GEMINI.fullmatch(path) else "openai-chat"


def parse_model_list_request(request: HttpRequest) -> ModelListRequest | None:
    found = _LIST.fullmatch(request.path)
    if found is None:
        return None
    if found[1] != "v1" or request.header(b"x-goog-api-key") is not None:
        kind = "gemini"
    else:
        kind = "anthropic" if request.header(b"anthropic-version") is not None else "openai-chat"
    return ModelListRequest(kind, unquote(found[2]) if found[2] else None)


def parse_model_call(request: HttpRequest) -> ModelCall:
    """Parse a model request. Raises `InvalidInput` if the body is not a JSON object with a model."""
    fixed = _FIXED.get(request.path)
    if fixed is None:
        return _parse_gemini_call(request)
    head = _parse_body_head(request.body)
    if not isinstance(head.model, str) or not head.model:
        raise InvalidInput("model: must be the name of a model, as a string")
    if head.stream is not None and not isinstance(head.stream, bool):
        raise InvalidInput("stream: must be true or false")
    return ModelCall(*fixed, head.model, bool(head.stream) and fixed[1] == GENERATE_OPERATION)


def _parse_gemini_call(request: HttpRequest) -> ModelCall:
    found = _GEMINI.fullmatch(request.path)
    operation = _GEMINI_METHODS.get(found[2]) if found else None
    if found is None or operation is None:
        raise InvalidInput(f"unknown method; known methods: {', '.join(_GEMINI_METHODS)}")
    _parse_body_head(request.body)
    stream = found[2] == "streamGenerateContent"
    array = stream and dict(parse_qsl(request.query)).get("alt") != "sse"
    return ModelCall("gemini", operation, unquote(found[1]), stream, array, found[2])


def _parse_body_head(body: bytes) -> _BodyHead:
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


def read_api_key(request: HttpRequest) -> str | None:
    """Return the API key from the header or query parameter a client library uses."""
    first = request.first_values
    for name in _SECRETS:
        value = first.get(name)
        if value:
            text = value.decode("latin-1").strip()
            scheme, _, rest = text.partition(" ")
            return rest.strip() if rest and scheme.lower() == "bearer" else text
    return dict(parse_qsl(request.query)).get("key") if "key=" in request.query else None


def is_upgrade_request(request: HttpRequest) -> bool:
    return request.first_values.get(b"upgrade", b"").lower() == b"websocket"

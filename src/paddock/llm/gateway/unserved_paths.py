"""Endpoints of model APIs that the proxy does not serve; they get a readable error in their own format."""

from __future__ import annotations

import re

from paddock.llm.request_kind import (
    add_api_version,
    error_format_of_path,
    is_model_path,
    suggest_model_path,
    unserved_gemini_method,
)
from paddock.llm.wire.base import HttpRequest

_OPENAI = {
    "images/generations": "image generation",
    "images/edits": "image editing",
    "images/variations": "image variations",
    "audio": "audio",
    "moderations": "moderation",
    "completions": "legacy completions",
    "files": "files",
    "uploads": "uploads",
    "batches": "batches",
    "vector_stores": "vector stores",
    "assistants": "assistants",
    "threads": "threads",
    "realtime": "realtime sessions",
    "fine_tuning": "fine-tuning",
    "responses": "stored responses",
    "responses/compact": "compaction of responses",
    "responses/input_tokens": "token counts of responses",
    "conversations": "stored conversations",
    "chat/completions": "stored completions",
    "containers": "containers",
    "videos": "videos",
    "evals": "evaluations",
    "rerank": "reranking",
}
_ANTHROPIC = {
    "messages": "other operations on messages",
    "messages/batches": "message batches",
    "skills": "skills",
    "files": "files",
    "complete": "legacy completions",
}
"""Paths after the version, of one or two segments."""
_GEMINI_NAMES = frozenset(
    "cachedContents corpora fileSearchStores files batches generatedFiles interactions operations tunedModels".split()
)
"""Gemini's collections, which clients without a version in their base URL ask for."""
_GEMINI = re.compile(r"(?:/upload)?/v1(?:beta|alpha)\d*/([A-Za-z]{1,40})")
_GEMINI_OPENAI_PREFIX = "/v1beta/openai/"
"""Where Google serves OpenAI's API."""


def find_unserved_api(request: HttpRequest) -> tuple[str, str] | None:
    """Return the format and the name of the API a request belongs to, or None for a path of no model API.

    Only meaningful for paths that the gateway does not serve itself.
    """
    return _match_api(request.path, _format_by_headers(request))


def is_unserved_path(path: str) -> bool:
    """Return whether a path belongs to a model API that the proxy does not serve. It may lack the version."""
    return _match_api(path, None) is not None


def unserved_api_message(name: str, path: str) -> str:
    """Return the error message for a request to an API that is not served."""
    return f"Paddock does not serve {name} ({path[:200]}). Ask the provider directly with a key of its own."


def detect_client_format(request: HttpRequest) -> str:
    """Return the format in which a client expects errors, for any path: by the API it asks for, or by its headers."""
    path = add_api_version(request.path)
    path = suggest_model_path(path) or path
    if is_model_path(path):
        return error_format_of_path(path)
    api = find_unserved_api(request)
    return api[0] if api is not None else _format_by_headers(request) or error_format_of_path(path)


def _format_by_headers(request: HttpRequest) -> str | None:
    """Return the format by the headers that its clients send."""
    if request.header(b"x-goog-api-key") is not None:
        return "gemini"
    if request.header(b"anthropic-version") is not None:
        return "anthropic"
    has_key = request.header(b"x-api-key") is not None and request.header(b"authorization") is None
    return "anthropic" if has_key else None


def _match_api(path: str, format: str | None) -> tuple[str, str] | None:
    """Return the format and name of the API that a path belongs to; paths of several go by the client's format."""
    if path.startswith(_GEMINI_OPENAI_PREFIX):
        path, format = path.removeprefix("/v1beta/openai"), None
    gemini = _GEMINI.match(path)
    name = unserved_gemini_method(path) or (gemini[1] if gemini is not None else None)
    if name is not None:
        return "gemini", name
    segments = path.removeprefix("/v1").split("/", 3)
    if len(segments) < 2 or segments[0]:
        return None
    first_two_segments, first_segment = "/".join(segments[1:3]), segments[1]
    if first_segment in _GEMINI_NAMES and (
        format == "gemini" or not (first_segment in _OPENAI or first_segment in _ANTHROPIC)
    ):
        return "gemini", first_segment
    first, second = ("anthropic", "openai-chat") if format == "anthropic" else ("openai-chat", "anthropic")
    for each in (first, second):
        table = _ANTHROPIC if each == "anthropic" else _OPENAI
        name = table.get(first_two_segments) or table.get(first_segment)
        if name is not None:
            return each, name
    return None

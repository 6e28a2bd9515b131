"""Endpoints of model APIs that the proxy does not serve; they get a readable error."""

from __future__ import annotations

import re

from paddock.llm.wire.base import HttpRequest

_OPENAI = {
    "/v1/images/generations": "image generation",
    "/v1/images/edits": "image editing",
    "/v1/images/variations": "image variations",
    "/v1/audio": "audio",
    "/v1/moderations": "moderation",
    "/v1/completions": "legacy completions",
    "/v1/files": "files",
    "/v1/uploads": "uploads",
    "/v1/batches": "batches",
    "/v1/vector_stores": "vector stores",
    "/v1/assistants": "assistants",
    "/v1/threads": "threads",
    "/v1/realtime": "realtime sessions",
    "/v1/fine_tuning": "fine-tuning",
    "/v1/responses": "stored responses",
    "/v1/conversations": "stored conversations",
    "/v1/chat/completions": "stored completions",
    "/v1/containers": "containers",
    "/v1/videos": "videos",
    "/v1/evals": "evaluations",
}
_ANTHROPIC = {
    "/v1/messages": "message batches",
    "/v1/skills": "skills",
    "/v1/files": "files",
    "/v1/complete": "legacy completions",
}
_GEMINI = re.compile(r"(?:/upload)?/v1(?:beta|alpha)\d*/([A-Za-z]{1,40})")


def find_unserved_api(request: HttpRequest) -> tuple[str, str] | None:
    """Return the format and the name of the API a request belongs to, or None for a path of no model API.

    Only meaningful for paths that the gateway does not serve itself.
    """
    return _match_api(request.path, request.header(b"anthropic-version") is not None)


def is_unserved_path(path: str) -> bool:
    """Return whether a path belongs to a model API that the proxy does not serve."""
    return _match_api(path, False) is not None


def unserved_api_message(name: str, path: str) -> str:
    """Return the error message for a request to an API that is not served."""
    return f"Paddock does not serve {name} ({path[:200]}). Ask the provider directly with a key of its own."


def _match_api(path: str, anthropic: bool) -> tuple[str, str] | None:
    gemini = _GEMINI.match(path)
    if gemini is not None:
        return "gemini", gemini[1]
    first, second = (_ANTHROPIC, _OPENAI) if anthropic else (_OPENAI, _ANTHROPIC)
    for table in (first, second):
        for prefix, name in table.items():
            if path == prefix or path.startswith(f"{prefix}/"):
                return ("anthropic" if table is _ANTHROPIC else "openai-chat"), name
    return None

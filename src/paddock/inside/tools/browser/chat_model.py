"""Calls a chat model through the sandbox's model proxy, with the sandbox's key."""

from __future__ import annotations

import json
import os

from ..tool_result import ToolError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MAX_ANSWER = 4 * 1024 * 1024
NO_MODEL_MESSAGE = (
    "this sandbox has no model: OPENAI_BASE_URL and OPENAI_API_KEY are not set; a sandbox gets them if it is created "
    "while the server has models (paddock llm list) and its extension paddock.llm is on; or set them with --env"
)


class ChatModel:
    """A chat model behind an OpenAI-compatible API."""

    def __init__(self, name: str = "") -> None:
        base = os.environ.get("OPENAI_BASE_URL") or ""
        self._key = os.environ.get("OPENAI_API_KEY") or ""
        if not base and os.environ.get("PADDOCK_LLM_URL"):
            base = os.environ["PADDOCK_LLM_URL"].rstrip("/") + "/v1"
            self._key = os.environ.get("PADDOCK_LLM_KEY") or ""
        if not base:
            raise ToolError(NO_MODEL_MESSAGE)
        self._base = base.rstrip("/")
        self._name = name or self._default_name()

    def _default_name(self) -> str:
        """Return the model that the environment names. `PADDOCK_MODEL` is no model of a provider of the owner's own."""
        proxy = (os.environ.get("PADDOCK_LLM_URL") or "").rstrip("/") + "/v1"
        own_provider = self._base != proxy and "PADDOCK_RUN" not in os.environ
        names = ("OPENAI_MODEL",) if own_provider else ("PADDOCK_MODEL", "OPENAI_MODEL")
        return next((os.environ[name] for name in names if os.environ.get(name)), "")

    def ask_for_json(self, messages: list[dict[str, Any]], seconds: float) -> dict[str, Any]:
        """Return the JSON object the model replies with; another reply is corrected once."""
        conversation = list(messages)
        for _ in range(2):
            reply = self._complete(conversation, seconds)
            found = find_json_object(reply)
            if found is not None:
                return found
            conversation += [{"role": "assistant", "content": reply[:4000] or "(nothing)"}]
            conversation += [{"role": "user", "content": "Answer with one JSON object as described, and nothing else."}]
        raise ToolError(f"the model did not reply with JSON: {reply[:200]!r}")

    def _complete(self, messages: list[dict[str, Any]], seconds: float) -> str:
        document = self._call("/chat/completions", {"model": self._model_name(seconds), "messages": messages}, seconds)
        try:
            content = document["choices"][0]["message"]["content"]
        except (KeyError, IndexError, TypeError):
            raise ToolError(f"the model's reply is malformed: {json.dumps(document)[:200]}") from None
        if isinstance(content, list):
            content = "".join(part.get("text", "") for part in content if isinstance(part, dict))
        return content if isinstance(content, str) else ""

    def _model_name(self, seconds: float) -> str:
        if not self._name:
            try:
                self._name = str(self._call("/models", None, seconds)["data"][0]["id"])
            except (KeyError, IndexError, TypeError):
                raise ToolError("the proxy lists no models; name one with `model`") from None
        return self._name

    def _call(self, path: str, body: dict[str, Any] | None, seconds: float) -> Any:
        import urllib.error
        import urllib.request

        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {self._key}", "Content-Type": "application/json"}
        request = urllib.request.Request(self._base + path, data, headers)
        # Bypass HTTP proxies of the environment: the model proxy is reached directly.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=seconds) as answer:
                return json.loads(answer.read(MAX_ANSWER))
        except urllib.error.HTTPError as error:
            with error:
                raise ToolError(f"the model request failed: {_error_message(error.read(20_000), error.code)}") from None
        except (OSError, ValueError) as error:
            raise ToolError(f"the model request failed: {str(error)[:200]}") from None


def find_json_object(text: str) -> dict[str, Any] | None:
    """Find the first JSON object in a model's reply, ignoring text around it."""
    decoder = json.JSONDecoder()
    at = text.find("{")
    for _ in range(20):
        if at < 0:
            return None
        try:
            found, _end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            at = text.find("{", at + 1)
            continue
        return found if isinstance(found, dict) else None
    return None


def _error_message(body: bytes, status: int) -> str:
    try:
        reply = json.loads(body)["error"]["message"]
    except (ValueError, KeyError, TypeError):
        reply = body.decode("utf-8", "replace")[:200]
    return f"{reply} (HTTP {status})"

"""Asks a model, through the proxy and with the key that the box has for it."""

from __future__ import annotations

import json
import os

from ..results import ToolError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MAX_ANSWER = 4 * 1024 * 1024
NO_MODEL = (
    "no model can be asked from this box: it has no OPENAI_BASE_URL and OPENAI_API_KEY; boxes get them that are "
    "created while the server has models (paddock llm list), unless their extension paddock.llm is off; or set "
    "them with --env"
)


class Model:
    """A chat model behind an address that speaks OpenAI's format."""

    def __init__(self, name: str = "") -> None:
        base = os.environ.get("OPENAI_BASE_URL") or ""
        self._key = os.environ.get("OPENAI_API_KEY") or ""
        if not base and os.environ.get("PADDOCK_LLM_URL"):
            base = os.environ["PADDOCK_LLM_URL"].rstrip("/") + "/v1"
            self._key = os.environ.get("PADDOCK_LLM_KEY") or ""
        if not base:
            raise ToolError(NO_MODEL)
        self._base = base.rstrip("/")
        self._name = name or os.environ.get("PADDOCK_MODEL") or os.environ.get("OPENAI_MODEL") or ""

    def ask(self, messages: list[dict[str, Any]], seconds: float) -> dict[str, Any]:
        """Return the JSON object a model answers with; one that answers otherwise is told once."""
        talk = list(messages)
        for _ in range(2):
            said = self._say(talk, seconds)
            found = parse_object(said)
            if found is not None:
                return found
            talk += [{"role": "assistant", "content": said[:4000] or "(nothing)"}]
            talk += [{"role": "user", "content": "Answer with one JSON object as described, and nothing else."}]
        raise ToolError(f"the model did not answer in JSON, but with: {said[:200]!r}")

    def _say(self, messages: list[dict[str, Any]], seconds: float) -> str:
        document = self._call("/chat/completions", {"model": self._chosen(seconds), "messages": messages}, seconds)
        try:
            content = document["choices"][0]["message"]["content"]
        except (KeyError, IndexError, TypeError):
            raise ToolError(f"the model's answer makes no sense: {json.dumps(document)[:200]}") from None
        if isinstance(content, list):
            content = "".join(part.get("text", "") for part in content if isinstance(part, dict))
        return content if isinstance(content, str) else ""

    def _chosen(self, seconds: float) -> str:
        if not self._name:
            try:
                self._name = str(self._call("/models", None, seconds)["data"][0]["id"])
            except (KeyError, IndexError, TypeError):
                raise ToolError("the proxy offers no model; name one with `model`") from None
        return self._name

    def _call(self, path: str, body: dict[str, Any] | None, seconds: float) -> Any:
        import urllib.error
        import urllib.request

        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {self._key}", "Content-Type": "application/json"}
        request = urllib.request.Request(self._base + path, data, headers)
        # A proxy for the web, where a box has one, is not the way to the host's own.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=seconds) as answer:
                return json.loads(answer.read(MAX_ANSWER))
        except urllib.error.HTTPError as error:
            with error:
                raise ToolError(f"the model could not be asked: {_message(error.read(20_000), error.code)}") from None
        except (OSError, ValueError) as error:
            raise ToolError(f"the model could not be asked: {str(error)[:200]}") from None


def parse_object(text: str) -> dict[str, Any] | None:
    """Find the JSON object in what a model said, whatever it wrote around it."""
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


def _message(body: bytes, status: int) -> str:
    try:
        said = json.loads(body)["error"]["message"]
    except (ValueError, KeyError, TypeError):
        said = body.decode("utf-8", "replace")[:200]
    return f"{said} (HTTP {status})"

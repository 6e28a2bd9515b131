"""Client of this server's model proxy, over a private Unix socket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from paddock.agents.engines.base import ToolSpec
from paddock.errors import PaddockError
from paddock.llm.formats.base import BrokenModelStream
from paddock.llm.formats.neutral import (
    AnswerPartDelta,
    AnswerPartStarted,
    AnswerStreamFailed,
    AnswerStreamFinished,
    ModelFailure,
    ModelText,
    ModelThinking,
    ModelToolCall,
    StreamEvent,
)
from paddock.llm.formats.openai_chat.stream_reader import ChatStreamReader
from paddock.llm.formats.provider_errors import parse_provider_error
from paddock.llm.gateway.retries_and_fallbacks import PROVIDER_KEY_REFUSED
from paddock.llm.wire.base import UpstreamError, UpstreamTimeouts, UpstreamUnreachable
from paddock.llm.wire.http_client import HttpClient, HttpClientResponse, UpstreamAddress
from paddock.llm.wire.http_client_connection import HttpClientConnection

_PROXY_ADDRESS = UpstreamAddress(tls=False, host="paddock", port=80)
_TARGET = b"/v1/chat/completions"
_TIMEOUTS = UpstreamTimeouts(connect=10.0, first_byte=3600.0, stall=3600.0)
"""Upper bounds only; the proxy enforces the timeouts of providers."""
_IDLE_AGE = 50.0
_MAX_CACHED_TOOLS = 4096
_CONTEXT_ERRORS = ("context_length_exceeded", "maximum context length", "prompt is too long", "exceeds the context")


class ModelError(PaddockError):
    """The model did not answer, or its reply broke off."""

    code = "MODEL_ERROR"

    def __init__(self, message: str = "", status: int = 502, code: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        """HTTP status of the proxy; 502 for a reply that broke off."""
        self.reason = code
        """The provider's error code, if any."""

    @property
    def is_too_long(self) -> bool:
        """Return whether the conversation exceeds the model's context."""
        error_text = f"{self.reason} {self.message}".lower()
        return self.status in (400, 413) and any(words in error_text for words in _CONTEXT_ERRORS)


class UnknownModel(ModelError):
    """The session's model does not exist."""

    code = "MODEL_NOT_FOUND"


class RefusedProviderKey(ModelError):
    """The provider refused the key that the server has for it."""

    code = "PROVIDER_KEY_REFUSED"


_ERRORS_BY_REASON = {"model_not_found": UnknownModel, PROVIDER_KEY_REFUSED: RefusedProviderKey}


class LlmProxyClient(HttpClient):
    """HTTP client over the proxy's Unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__(idle_age=_IDLE_AGE)
        self._path = path
        self._json_by_tool: dict[int, tuple[ToolSpec, str]] = {}
        """JSON of tool specs by object id; sessions of the same kinds share the specs."""

    async def stream_reply(
        self, key: str, model: str, messages: Sequence[Mapping[str, Any]], tools: Sequence[ToolSpec] = ()
    ) -> AsyncGenerator[StreamEvent, None]:
        """Stream the model's reply; the last event is `AnswerStreamFinished`. Raises `ModelError`."""
        body: dict[str, Any] = {
            "model": model,
            "messages": messages,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        body_json = _json(body)
        if tools:
            body_json = f'{body_json[:-1]},"tools":[{",".join(map(self.tool_json, tools))}]}}'
        # Tool output may contain lone surrogates, which cannot be encoded.
        payload = body_json.encode(errors="replace")
        headers = [(b"authorization", f"Bearer {key}".encode()), (b"content-type", b"application/json")]
        try:
            response = await self.send(_PROXY_ADDRESS, "POST", _TARGET, headers, payload, _TIMEOUTS)
            try:
                if response.status != 200:
                    raise _to_model_error(parse_provider_error(response.status, await response.read()))
                async for event in _read_events(response):
                    if isinstance(event, AnswerStreamFailed):
                        raise _to_model_error(event.failure)
                    yield event
            finally:
                response.close()
        except UpstreamError as error:
            raise ModelError(f"the model's reply broke off: {error}") from error
        except BrokenModelStream as error:
            raise ModelError(f"the model's reply cannot be read: {error}") from error

    def tool_json(self, tool: ToolSpec) -> str:
        """Return the JSON of a tool for the model request, cached."""
        cached = self._json_by_tool.get(id(tool))
        if cached is None or cached[0] is not tool:
            if len(self._json_by_tool) >= _MAX_CACHED_TOOLS:
                self._json_by_tool.clear()
            cached = self._json_by_tool[id(tool)] = tool, _json(tool_definition(tool))
        return cached[1]

    async def _connect(self, origin: UpstreamAddress, timeout: float) -> HttpClientConnection:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(timeout):
                _, connection = await loop.create_unix_connection(
                    lambda: HttpClientConnection(self, origin.connection_key, _IDLE_AGE, loop), str(self._path)
                )
        except (OSError, TimeoutError) as error:
            raise UpstreamUnreachable(f"the server's model proxy does not answer: {error}") from None
        if self._closed:
            connection.abort()
            raise UpstreamUnreachable("the server is stopping")
        return connection


async def _read_events(response: HttpClientResponse) -> AsyncIterator[StreamEvent]:
    reader = ChatStreamReader()
    while data := await response.read_piece():
        for event in reader.feed(data):
            yield _without_surrogates(event)
            if isinstance(event, AnswerStreamFinished | AnswerStreamFailed):
                # Read the body to its end, so that the connection can be reused.
                with suppress(UpstreamError):
                    await response.read()
                return
    for event in reader.close():
        yield _without_surrogates(event)


def _without_surrogates(event: StreamEvent) -> StreamEvent:
    """Replace lone surrogates, which files and databases cannot hold."""
    match event:
        case AnswerPartDelta() if not _is_valid_unicode(event.text):
            return AnswerPartDelta(event.index, _replace_surrogates(event.text))
        case AnswerPartStarted(part=ModelToolCall() as part) if not _is_valid_unicode(part.name):
            return AnswerPartStarted(
                event.index, ModelToolCall(part.id, _replace_surrogates(part.name), part.arguments)
            )
        case AnswerPartStarted(part=ModelText() | ModelThinking() as text_part) if not _is_valid_unicode(
            text_part.text
        ):
            return AnswerPartStarted(event.index, type(text_part)(_replace_surrogates(text_part.text)))
    return event


def _is_valid_unicode(text: str) -> bool:
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)


def _replace_surrogates(text: str) -> str:
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def tool_definition(tool: ToolSpec) -> dict[str, Any]:
    """Return the tool definition for the model request."""
    function = {"name": tool.name, "description": tool.description, "parameters": tool.input_schema}
    return {"type": "function", "function": function}


def _to_model_error(failure: ModelFailure) -> ModelError:
    reason = failure.code or failure.kind
    error = _ERRORS_BY_REASON.get(reason, ModelError)
    return error(_replace_surrogates(failure.message), failure.status, reason)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_json_default)


def _json_default(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} cannot be sent to a model")

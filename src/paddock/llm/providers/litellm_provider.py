"""Providers without an API of their own here, through the LiteLLM library. Needs the extra `paddock[litellm]`."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

from paddock.config.llm import ProviderConfig
from paddock.errors import ConfigError
from paddock.llm.formats.sse import encode_server_sent_event
from paddock.llm.providers.base import Provider, ProviderRequest, UnsupportedByProvider
from paddock.llm.request_kind import GENERATE_OPERATION
from paddock.llm.wire.base import Headers, UpstreamBroken, UpstreamResponse, UpstreamTimedOut

_JSON: Headers = [(b"content-type", b"application/json")]
_EVENTS: Headers = [(b"content-type", b"text/event-stream")]


class LiteLLMProvider(Provider):
    """Sends requests through LiteLLM; models have LiteLLM's names, such as `bedrock/…` or `mistral/…`."""

    kind = "litellm"

    def __init__(self, name: str, settings: ProviderConfig) -> None:
        super().__init__(name, ("openai-chat",))
        try:
            import litellm
        except ImportError:
            raise ConfigError(
                f"llm.providers.{name}: providers of kind litellm need its library: pip install 'paddock[litellm]'"
            ) from None
        self._library: Any = litellm
        litellm.suppress_debug_info = True
        litellm.telemetry = False
        self._key = settings.key.get_secret_value() if settings.key else None
        self._base_url = settings.base_url
        self._first_byte = settings.first_byte_timeout

    async def send(self, request: ProviderRequest) -> UpstreamResponse:
        if request.operation != GENERATE_OPERATION:
            raise UnsupportedByProvider(f"provider {self.name} cannot do {request.operation}")
        fields: dict[str, Any] = json.loads(request.body)
        fields.update(model=request.model, api_key=self._key, api_base=self._base_url, timeout=self._first_byte)
        fields.update(num_retries=0, max_retries=0, drop_params=True)
        try:
            answer = await self._library.acompletion(**fields)
        except Exception as error:
            return _error_response(error)
        if request.stream:
            return _StreamedResponse(answer)
        return _WholeResponse(200, answer.model_dump_json(exclude_none=True).encode())


def _error_response(error: Exception) -> UpstreamResponse:
    """Turn LiteLLM's exception into an error response. Its text may contain keys, so it is truncated."""
    if isinstance(error, TimeoutError) or type(error).__name__ == "Timeout":
        raise UpstreamTimedOut("the provider took too long") from None
    status = getattr(error, "status_code", None)
    if not isinstance(status, int) or not 400 <= status < 600:
        raise UpstreamBroken(f"LiteLLM failed with {type(error).__name__}") from None
    message = str(getattr(error, "message", "") or type(error).__name__).partition("\n")[0][:500]
    return _WholeResponse(status, json.dumps({"error": {"message": message, "type": type(error).__name__}}).encode())


class _WholeResponse(UpstreamResponse):
    def __init__(self, status: int, body: bytes) -> None:
        self.status = status
        self.headers = _JSON
        self._body = body

    async def read(self) -> bytes:
        return self._body

    async def read_piece(self) -> bytes:
        body, self._body = self._body, b""
        return body

    def close(self) -> None:
        pass


class _StreamedResponse(UpstreamResponse):
    """LiteLLM's chunks as server-sent events."""

    status = 200

    def __init__(self, chunks: AsyncIterator[Any]) -> None:
        self.headers = _EVENTS
        self._chunks = chunks
        self._ended = False

    async def read(self) -> bytes:
        pieces = []
        while piece := await self.read_piece():
            pieces.append(piece)
        return b"".join(pieces)

    async def read_piece(self) -> bytes:
        if self._ended:
            return b""
        try:
            chunk = await anext(self._chunks)
        except StopAsyncIteration:
            self._ended = True
            return b"data: [DONE]\n\n"
        except Exception as error:
            raise UpstreamBroken(f"LiteLLM's stream failed with {type(error).__name__}") from None
        return encode_server_sent_event(chunk.model_dump_json(exclude_none=True))

    def close(self) -> None:
        self._ended = True

"""Providers reached over HTTP: any server with an API of OpenAI, Anthropic or Google."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar
from urllib.parse import parse_qsl, quote, urlencode

from paddock.config.llm import API_ADDRESSES, ProviderConfig
from paddock.config.outgoing_proxy import OutgoingProxies, ProxyAddress, parse_proxy
from paddock.llm.formats.model_list import ModelListEntry
from paddock.llm.providers.base import Provider, ProviderRequest, UnsupportedByProvider
from paddock.llm.providers.model_list_fetcher import fetch_anthropic_models, fetch_gemini_models, fetch_openai_models
from paddock.llm.request_kind import COUNT_OPERATION, EMBED_OPERATION, GENERATE_OPERATION
from paddock.llm.wire.base import Headers, UpstreamResponse, UpstreamTimeouts
from paddock.llm.wire.http_client import HttpClient, UpstreamAddress

_JSON = (b"content-type", b"application/json")
_EVENTS = (b"accept", b"text/event-stream")
_ACCEPT_JSON = (b"accept", b"application/json")
LIST_TIMEOUTS = UpstreamTimeouts(connect=5.0, first_byte=10.0, stall=5.0)
NO_PROXIES = OutgoingProxies()


class HttpProvider(Provider):
    """Common base of HTTP providers; they differ in paths and in the header of the key."""

    key_header: ClassVar[bytes]
    key_prefix: ClassVar[str] = ""

    def __init__(
        self,
        name: str,
        settings: ProviderConfig,
        client: HttpClient,
        formats: tuple[str, ...],
        proxies: OutgoingProxies = NO_PROXIES,
    ) -> None:
        super().__init__(name, formats)
        self._client = client
        address = UpstreamAddress.parse(settings.base_url or API_ADDRESSES[settings.kind], ca=settings.ca)
        self._address = replace(address, proxy=_choose_proxy(name, settings, address, proxies))
        self._timeouts = UpstreamTimeouts(settings.connect_timeout, settings.first_byte_timeout, settings.stall_timeout)
        self._own_headers: Headers = [_JSON]
        if settings.key is not None and settings.key.get_secret_value():
            self._own_headers.append((self.key_header, (self.key_prefix + settings.key.get_secret_value()).encode()))
        for header, value in settings.headers.items():
            self._own_headers.append((header.lower().encode(), value.get_secret_value().encode()))
        secret_values = [settings.key, *settings.headers.values()]
        texts = [each.get_secret_value() for each in secret_values if each is not None]
        self.secrets = tuple(text.encode() for text in texts if text)
        self._own_header_names = frozenset(name for name, _ in self._own_headers)

    async def send(self, request: ProviderRequest) -> UpstreamResponse:
        # Configured headers override the client's.
        names = self._own_header_names
        headers = [*self._own_headers, *[pair for pair in request.headers if pair[0] not in names]]
        headers += self.default_headers(request)
        return await self._client.send(
            self._address, "POST", self.request_target(request), headers, request.body, self._timeouts
        )

    async def _get(self, target: bytes, *more: tuple[bytes, bytes]) -> UpstreamResponse:
        """Send a GET request with the provider's key and configured headers."""
        headers = [*(pair for pair in self._own_headers if pair != _JSON), *more, _ACCEPT_JSON]
        return await self._client.send(self._address, "GET", target, headers, b"", LIST_TIMEOUTS)

    @abstractmethod
    def request_target(self, request: ProviderRequest) -> bytes:
        """Return path and query of a request. Raises `UnsupportedByProvider` for operations this API lacks."""

    def default_headers(self, request: ProviderRequest) -> Headers:
        """Return headers this API requires that the client did not send."""
        return [_EVENTS] if request.stream and not _has_header(request.headers, b"accept") else []


class OpenAIProvider(HttpProvider):
    """OpenAI and compatible servers."""

    kind = "openai"
    key_header = b"authorization"
    key_prefix = "Bearer "
    _PATHS: ClassVar = {
        ("openai-chat", GENERATE_OPERATION): b"/chat/completions",
        ("openai-responses", GENERATE_OPERATION): b"/responses",
        ("openai-chat", EMBED_OPERATION): b"/embeddings",
    }

    def __init__(
        self, name: str, settings: ProviderConfig, client: HttpClient, proxies: OutgoingProxies = NO_PROXIES
    ) -> None:
        formats = {
            "chat": ("openai-chat",),
            "responses": ("openai-responses",),
            "both": ("openai-chat", "openai-responses"),
        }
        super().__init__(name, settings, client, formats[settings.api], proxies)
        self.thinking = settings.thinking

    async def list_models(self) -> Sequence[ModelListEntry]:
        return await fetch_openai_models(self._get)

    def request_target(self, request: ProviderRequest) -> bytes:
        path = self._PATHS.get((request.format, request.operation))
        if path is None:
            raise UnsupportedByProvider(f"provider {self.name} cannot do {request.operation}")
        return path


class AnthropicProvider(HttpProvider):
    """Anthropic and servers with its Messages API."""

    kind = "anthropic"
    key_header = b"x-api-key"
    _VERSION = (b"anthropic-version", b"2023-06-01")

    def __init__(
        self, name: str, settings: ProviderConfig, client: HttpClient, proxies: OutgoingProxies = NO_PROXIES
    ) -> None:
        super().__init__(name, settings, client, ("anthropic",), proxies)

    async def list_models(self) -> Sequence[ModelListEntry]:
        return await fetch_anthropic_models(lambda target: self._get(target, self._VERSION))

    def request_target(self, request: ProviderRequest) -> bytes:
        if request.operation == EMBED_OPERATION:
            raise UnsupportedByProvider(f"provider {self.name} has no embeddings")
        path = b"/v1/messages/count_tokens" if request.operation == COUNT_OPERATION else b"/v1/messages"
        if "key=" in request.query:
            # Some clients put the key they authenticate with there.
            query = urlencode([(name, value) for name, value in parse_qsl(request.query) if name != "key"])
            return path + b"?" + query.encode() if query else path
        return path + b"?" + request.query.encode("latin-1") if request.query else path

    def default_headers(self, request: ProviderRequest) -> Headers:
        headers = super().default_headers(request)
        return headers if _has_header(request.headers, b"anthropic-version") else [*headers, self._VERSION]


class GeminiProvider(HttpProvider):
    """Google's Gemini API."""

    kind = "gemini"
    key_header = b"x-goog-api-key"

    def __init__(
        self, name: str, settings: ProviderConfig, client: HttpClient, proxies: OutgoingProxies = NO_PROXIES
    ) -> None:
        super().__init__(name, settings, client, ("gemini",), proxies)

    async def list_models(self) -> Sequence[ModelListEntry]:
        return await fetch_gemini_models(self._get)

    def request_target(self, request: ProviderRequest) -> bytes:
        query = [(name, value) for name, value in parse_qsl(request.query) if name not in ("key", "alt")]
        if request.stream and not request.array:
            query.append(("alt", "sse"))
        method = request.method or _METHODS[request.operation, request.stream]
        address = f"/v1beta/models/{quote(request.model, safe='')}:{method}"
        return (f"{address}?{urlencode(query)}" if query else address).encode()


_METHODS = {
    (GENERATE_OPERATION, False): "generateContent",
    (GENERATE_OPERATION, True): "streamGenerateContent",
    (COUNT_OPERATION, False): "countTokens",
    (EMBED_OPERATION, False): "batchEmbedContents",
}


def _has_header(headers: Headers, wanted: bytes) -> bool:
    return any(name == wanted for name, _ in headers)


def _choose_proxy(
    name: str, settings: ProviderConfig, address: UpstreamAddress, proxies: OutgoingProxies
) -> ProxyAddress | None:
    if settings.proxy is not None:
        return parse_proxy(settings.proxy.get_secret_value(), f"llm.providers.{name}.proxy")
    return proxies.choose("https" if address.tls else "http", address.host, address.port)


def new_http_provider(
    name: str, settings: ProviderConfig, client: HttpClient, proxies: OutgoingProxies = NO_PROXIES
) -> HttpProvider:
    """Return an HTTP provider of the configured kind."""
    if settings.kind == "anthropic":
        return AnthropicProvider(name, settings, client, proxies)
    if settings.kind == "gemini":
        return GeminiProvider(name, settings, client, proxies)
    return OpenAIProvider(name, settings, client, proxies)

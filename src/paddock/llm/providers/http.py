"""Providers that are reached over HTTP: any server that speaks OpenAI's, Anthropic's or Google's API."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar
from urllib.parse import parse_qsl, quote, urlencode

from paddock.config.llm import API_ADDRESSES, ProviderConfig
from paddock.llm.calls import COUNT, EMBED, GENERATE
from paddock.llm.formats.models import Listed
from paddock.llm.providers.base import Answered, Ask, Provider, Unsuitable
from paddock.llm.providers.model_list import anthropic_models, gemini_models, openai_models
from paddock.llm.wire.base import Headers, Timeouts
from paddock.llm.wire.client import Client, Origin

_JSON = (b"content-type", b"application/json")
_EVENTS = (b"accept", b"text/event-stream")
_ACCEPT_JSON = (b"accept", b"application/json")
LIST_TIMEOUTS = Timeouts(connect=5.0, first_byte=10.0, stall=5.0)


class HttpProvider(Provider):
    """What the three have in common; they differ in addresses and in where the key goes."""

    key_header: ClassVar[bytes]
    key_prefix: ClassVar[str] = ""

    def __init__(self, name: str, settings: ProviderConfig, client: Client, formats: tuple[str, ...]) -> None:
        super().__init__(name, formats)
        self._client = client
        self._origin = Origin.parse(settings.base_url or API_ADDRESSES[settings.kind], ca=settings.ca)
        self._timeouts = Timeouts(settings.connect_timeout, settings.first_byte_timeout, settings.stall_timeout)
        self._own: Headers = [_JSON]
        if settings.key is not None and settings.key.get_secret_value():
            self._own.append((self.key_header, (self.key_prefix + settings.key.get_secret_value()).encode()))
        for header, value in settings.headers.items():
            self._own.append((header.lower().encode(), value.get_secret_value().encode()))
        told = [settings.key, *settings.headers.values()]
        texts = [each.get_secret_value() for each in told if each is not None]
        self.secrets = tuple(text.encode() for text in texts if text)
        self._names = frozenset(name for name, _ in self._own)

    async def send(self, ask: Ask) -> Answered:
        # Ours win over the client's.
        names = self._names
        headers = [*self._own, *[pair for pair in ask.headers if pair[0] not in names]]
        headers += self.defaults(ask)
        return await self._client.send(self._origin, "POST", self.target(ask), headers, ask.body, self._timeouts)

    async def _get(self, target: bytes, *more: tuple[bytes, bytes]) -> Answered:
        """Send a GET request with this API's key and configured headers."""
        headers = [*(pair for pair in self._own if pair != _JSON), *more, _ACCEPT_JSON]
        return await self._client.send(self._origin, "GET", target, headers, b"", LIST_TIMEOUTS)

    @abstractmethod
    def target(self, ask: Ask) -> bytes:
        """The address below the origin. Raises `Unsuitable` for what this API does not have."""

    def defaults(self, ask: Ask) -> Headers:
        """Headers this API wants if the client did not send them."""
        return [_EVENTS] if ask.stream and not _has(ask.headers, b"accept") else []


class OpenAIProvider(HttpProvider):
    """OpenAI and everything compatible with it."""

    kind = "openai"
    key_header = b"authorization"
    key_prefix = "Bearer "
    _PATHS: ClassVar = {
        ("openai-chat", GENERATE): b"/chat/completions",
        ("openai-responses", GENERATE): b"/responses",
        ("openai-chat", EMBED): b"/embeddings",
    }

    def __init__(self, name: str, settings: ProviderConfig, client: Client) -> None:
        formats = {
            "chat": ("openai-chat",),
            "responses": ("openai-responses",),
            "both": ("openai-chat", "openai-responses"),
        }
        super().__init__(name, settings, client, formats[settings.api])
        self.thinking = settings.thinking

    async def list_models(self) -> Sequence[Listed]:
        return await openai_models(self._get)

    def target(self, ask: Ask) -> bytes:
        path = self._PATHS.get((ask.format, ask.operation))
        if path is None:
            raise Unsuitable(f"provider {self.name} cannot do {ask.operation}")
        return path


class AnthropicProvider(HttpProvider):
    """Anthropic, and servers that speak its Messages API."""

    kind = "anthropic"
    key_header = b"x-api-key"
    _VERSION = (b"anthropic-version", b"2023-06-01")

    def __init__(self, name: str, settings: ProviderConfig, client: Client) -> None:
        super().__init__(name, settings, client, ("anthropic",))

    async def list_models(self) -> Sequence[Listed]:
        return await anthropic_models(lambda target: self._get(target, self._VERSION))

    def target(self, ask: Ask) -> bytes:
        if ask.operation == EMBED:
            raise Unsuitable(f"provider {self.name} has no embeddings")
        path = b"/v1/messages/count_tokens" if ask.operation == COUNT else b"/v1/messages"
        if "key=" in ask.query:
            # Some clients put the key that they show us there.
            query = urlencode([(name, value) for name, value in parse_qsl(ask.query) if name != "key"])
            return path + b"?" + query.encode() if query else path
        return path + b"?" + ask.query.encode("latin-1") if ask.query else path

    def defaults(self, ask: Ask) -> Headers:
        headers = super().defaults(ask)
        return headers if _has(ask.headers, b"anthropic-version") else [*headers, self._VERSION]


class GeminiProvider(HttpProvider):
    """Google's Gemini API."""

    kind = "gemini"
    key_header = b"x-goog-api-key"

    def __init__(self, name: str, settings: ProviderConfig, client: Client) -> None:
        super().__init__(name, settings, client, ("gemini",))

    async def list_models(self) -> Sequence[Listed]:
        return await gemini_models(self._get)

    def target(self, ask: Ask) -> bytes:
        query = [(name, value) for name, value in parse_qsl(ask.query) if name not in ("key", "alt")]
        if ask.stream and not ask.array:
            query.append(("alt", "sse"))
        address = f"/v1beta/models/{quote(ask.model, safe='')}:{ask.method or _METHODS[ask.operation, ask.stream]}"
        return (f"{address}?{urlencode(query)}" if query else address).encode()


_METHODS = {
    (GENERATE, False): "generateContent",
    (GENERATE, True): "streamGenerateContent",
    (COUNT, False): "countTokens",
    (EMBED, False): "batchEmbedContents",
}


def _has(headers: Headers, wanted: bytes) -> bool:
    return any(name == wanted for name, _ in headers)


def make_http(name: str, settings: ProviderConfig, client: Client) -> HttpProvider:
    """A provider over HTTP of the configured kind."""
    if settings.kind == "anthropic":
        return AnthropicProvider(name, settings, client)
    if settings.kind == "gemini":
        return GeminiProvider(name, settings, client)
    return OpenAIProvider(name, settings, client)

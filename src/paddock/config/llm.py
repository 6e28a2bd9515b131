"""Settings of the model proxy."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, PrivateAttr, SecretStr, field_validator, model_validator

from paddock.config.outgoing import check_proxy_setting
from paddock.config.section import ConfigSection
from paddock.config.units import Bytes, Seconds

API_ADDRESSES = {
    "openai": "https://api.openai.com/v1",
    "anthropic": "https://api.anthropic.com",
    "gemini": "https://generativelanguage.googleapis.com",
}
_KINDS_BY_FIELD = {
    "base_url": {"openai", "anthropic", "gemini", "litellm"},
    "key": {"openai", "anthropic", "gemini", "litellm"},
    "headers": {"openai", "anthropic", "gemini"},
    "api": {"openai"},
    "thinking": {"openai"},
    "ca": {"openai", "anthropic", "gemini"},
    "proxy": {"openai", "anthropic", "gemini"},
    "file": {"script", "replay"},
    "match": {"replay"},
    "timing": {"replay"},
    "miss": {"replay"},
}
"""Provider kinds that support each kind-specific setting."""
_BUILT_IN_KINDS = frozenset({"openai", "anthropic", "gemini", "litellm", "script", "replay"})


class RateLimitsConfig(ConfigSection):
    """Rate limits; `null` means unlimited."""

    concurrency: int | None = Field(default=None, ge=1)
    """Maximum number of concurrent requests."""
    requests_per_minute: int | None = Field(default=None, ge=1)
    """Maximum number of requests started within any minute."""
    tokens_per_minute: int | None = Field(default=None, ge=1)
    """Maximum number of prompt and answer tokens within any minute, counted when usage is known."""


class ProviderConfig(ConfigSection):
    """A provider: an upstream that answers model requests."""

    kind: str
    """Type of the provider: `openai` (any compatible server), `anthropic`, `gemini`, `litellm`, `script`, `replay`, or
    the kind of a plugin."""
    base_url: str | None = None
    """Base URL; `null` uses the official API of the vendor."""
    key: SecretStr | None = None
    """API key. Use `${NAME}` to take it from the environment. It never leaves the server."""
    headers: Mapping[str, SecretStr] = {}
    """HTTP headers added to every request."""
    api: Literal["chat", "responses", "both"] = "chat"
    """API of an `openai` provider: Chat Completions or Responses; with `both`, either is relayed unchanged."""
    thinking: Literal["effort", "enable_thinking", "type", "none"] = "effort"
    """How reasoning is requested from an `openai` provider: OpenAI's `reasoning_effort`, DashScope's `enable_thinking`,
    GLM's `thinking.type`, or not at all."""
    ca: Path | None = None
    """PEM file with CA certificates to trust in addition to the system's."""
    proxy: SecretStr | None = None
    """HTTP proxy of this provider in place of `outgoing`; `none` connects directly, `null` uses `outgoing`."""
    file: Path | None = None
    """File of a `script` or `replay` provider: the script, or the recording. Without it, `replay` uses the archive."""
    match: Literal["exact", "sequence"] = "exact"
    """How `replay` finds an answer: `exact` matches the recorded request, `sequence` takes the next answer in order."""
    timing: Literal["instant", "recorded"] = "instant"
    """Whether `replay` answers at once or with the recorded timing."""
    miss: str | None = None
    """Model that is asked, and recorded, when `replay` has no matching answer; `null` returns an error instead."""
    connect_timeout: Seconds = Field(default=10, gt=0)
    """Time limit for connecting."""
    first_byte_timeout: Seconds = Field(default=600, gt=0)
    """Time limit until the answer starts."""
    stall_timeout: Seconds = Field(default=120, gt=0)
    """Maximum pause within an answer."""
    retries: int = Field(default=2, ge=0, le=10)
    """Number of retries after transient errors, before the next fallback is tried."""
    default_model: str | None = Field(default=None, pattern=r"^[^\s*]{1,200}$")
    """Default model for chats that resolve to this provider through a pattern, by the provider's own name; `null` picks
    a current mid-priced model from the provider's list."""
    limits: RateLimitsConfig = RateLimitsConfig()
    """How much of it may be used at a time, by all together."""
    options: Mapping[str, Any] = {}
    """Additional settings of a provider plugin."""

    @field_validator("base_url")
    @classmethod
    def _is_address(cls, url: str | None) -> str | None:
        if url is not None and not re.fullmatch(r"https?://[^\s/?#@]+(/[^\s?#]*)?", url):
            raise ValueError(f"{url!r} is not a URL; write it like https://example.com/v1")
        return url.rstrip("/") if url else None

    @field_validator("proxy")
    @classmethod
    def _is_proxy(cls, proxy: SecretStr | None) -> SecretStr | None:
        return check_proxy_setting(proxy)

    @model_validator(mode="after")
    def _fields_fit_the_kind(self) -> Self:
        for name, kinds in _KINDS_BY_FIELD.items():
            is_ours = self.kind in _BUILT_IN_KINDS
            if is_ours and name in self.model_fields_set and self.kind not in kinds and getattr(self, name) is not None:
                raise ValueError(f"providers of kind {self.kind} do not support {name}; remove it")
        if self.kind == "script" and self.file is None:
            raise ValueError("a script needs a file")
        return self


class ModelConfig(ConfigSection):
    """A model name that requests can use, and the provider that serves it. Short form: `provider/model`."""

    provider: str
    """Name of a provider in `llm.providers`."""
    model: str | None = None
    """The provider's name for the model; `null` passes the requested name unchanged. A `*` is replaced by the part that
    matched the `*` of the model name."""
    defaults: Mapping[str, Any] = {}
    """Values for omitted request fields: `temperature`, `max_tokens`, `effort`, or fields specific to the provider."""
    overrides: Mapping[str, Any] = {}
    """Values that replace request fields; `null` removes a field."""
    headers: Mapping[str, SecretStr] = {}
    """HTTP headers added to requests for this model."""
    fallbacks: tuple[str, ...] = ()
    """Model names to try, in order, when this one cannot answer."""
    limits: RateLimitsConfig = RateLimitsConfig()
    """How much of it may be used at a time, by all together."""

    def provider_model_name(self, requested: str, part: str) -> str:
        """Return the provider's model name for a requested name and the part matched by `*`."""
        return requested if self.model is None else self.model.replace("*", part)

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: object) -> object:
        if isinstance(value, str):
            provider, slash, model = value.partition("/")
            return {"provider": provider, "model": model} if slash else {"provider": provider}
        return value


class RedactionConfig(ConfigSection):
    """A rule that removes text from archived exchanges."""

    pattern: str
    """Regular expression; every match is replaced. Matches do not cross message boundaries."""
    replacement: str = "[redacted]"
    """Replacement text."""

    @field_validator("pattern")
    @classmethod
    def _compiles(cls, pattern: str) -> str:
        try:
            if re.compile(pattern).match(""):
                raise ValueError(
                    f"{pattern!r} matches the empty string, so it would match everywhere; make it more specific"
                )
        except re.error as error:
            raise ValueError(f"{pattern!r} is not a regular expression: {error}") from None
        return pattern


class ArchiveConfig(ConfigSection):
    """Archive of model requests and answers."""

    enabled: bool = True
    """Whether exchanges are archived. Usage is counted either way."""
    durability: Literal["behind", "strict"] = "behind"
    """`behind` writes in the background; `strict` completes an answer only after it is stored on disk."""
    keep: Seconds | None = Field(default=None, gt=0)
    """How long exchanges are kept; `null` keeps them forever."""
    redact_keys: bool = True
    """Whether text that looks like an API key of a known provider is removed."""
    redact: tuple[RedactionConfig, ...] = ()
    """Additional redaction rules."""
    max_waiting: Bytes = Field(default=256 * 2**20, ge=2**20)
    """Maximum size of the write queue; beyond it, exchanges are dropped and counted, or refused under `strict`."""


class TracingConfig(ConfigSection):
    """Tracing with OpenTelemetry's conventions for generative AI. Requires the extra `paddock[tracing]`."""

    endpoint: str | None = None
    """OTLP/HTTP endpoint, such as `http://127.0.0.1:4318/v1/traces`; `null` disables tracing."""
    headers: Mapping[str, SecretStr] = {}
    """HTTP headers sent to the endpoint."""
    content: bool = False
    """Whether spans include the text of prompts and answers."""
    langfuse_url: str | None = None
    """URL of a Langfuse server; sets `endpoint` and `headers` for it."""
    langfuse_public_key: str | None = None
    """Langfuse public key."""
    langfuse_secret_key: SecretStr | None = None
    """Langfuse secret key."""


class LlmConfig(ConfigSection):
    """The model proxy: providers, models, limits, archive and tracing."""

    providers: Mapping[str, ProviderConfig] = {}
    """Providers by name."""
    models: Mapping[str, ModelConfig] = {}
    """Models by name. A name may contain one `*`; the longest match wins."""
    environment: bool = True
    """Whether to configure providers from the environment (`ANTHROPIC_API_KEY`, `OPENAI_API_KEY`, `GEMINI_API_KEY`,
    `DASHSCOPE_API_KEY`, `ZHIPUAI_API_KEY`) when `providers` is empty."""
    list_models_every: Seconds | None = Field(default=3600, ge=10)
    """How long a provider's model list is cached before it is fetched again. `null` never fetches it and lists
    well-known names instead."""
    demo: bool = True
    """Whether to offer the built-in scripted model `demo` when no providers are configured."""
    direct: bool = False
    """Whether requests may also use `PROVIDER/MODEL`, bypassing the names, limits and overrides of `models`."""
    listen: str | None = Field(default=None, pattern=r"^(\[[0-9A-Fa-f:.]+\]|[^\s:\[\]]+):\d{1,5}$")
    """`HOST:PORT` of an additional listener for model requests only. It is faster than the main server."""
    sandboxes: bool = True
    """Whether sandboxes can use the proxy. Each gets its own key, which is revoked when the sandbox ends."""
    sandbox_models: tuple[str, ...] = ()
    """Models that sandboxes may use, with `*` as a wildcard; an empty list allows all."""
    sandbox_limits: RateLimitsConfig = RateLimitsConfig(concurrency=64)
    """Rate limits per sandbox."""
    tenant_limits: RateLimitsConfig = RateLimitsConfig()
    """Rate limits per tenant."""
    max_body: Bytes = Field(default=64 * 2**20, ge=1024)
    """Maximum size of a model request."""
    ping_every: Seconds = Field(default=15, gt=0)
    """Idle time after which a keep-alive is sent to the client of a translated stream."""
    prices: Path | None = None
    """Price file that extends and overrides the built-in prices."""
    archive: ArchiveConfig = ArchiveConfig()
    tracing: TracingConfig = TracingConfig()
    _found: Mapping[str, str] = PrivateAttr(default_factory=dict)
    _ignored: tuple[str, ...] = PrivateAttr(default=())

    @property
    def discovered_providers(self) -> Mapping[str, str]:
        """Providers configured from the environment, with the variable that holds the key."""
        return self._found

    @property
    def ignored_key_variables(self) -> tuple[str, ...]:
        """Variables with a provider's key that is not used, because the configuration names other providers."""
        return self._ignored

    @model_validator(mode="after")
    def _names_exist(self) -> Self:
        for name in self.providers:
            if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", name):
                raise ValueError(
                    f"{name!r} is not a valid provider name; use letters, digits, dots, dashes, underscores"
                )
        for name, model in self.models.items():
            if name.count("*") > 1 or not name:
                raise ValueError(f"models: {name!r} has more than one *" if name else "models: a name is empty")
            if model.provider not in self.providers:
                known = ", ".join(sorted(self.providers)) or "none"
                raise ValueError(f"models.{name}: there is no provider {model.provider!r}; known are: {known}")
            for fallback in model.fallbacks:
                if "*" in fallback:
                    raise ValueError(f"models.{name}.fallbacks: {fallback!r} is a pattern; name one of its models")
                if not self.has_model(fallback):
                    raise ValueError(f"models.{name}.fallbacks: there is no model {fallback!r}")
        for name, provider in self.providers.items():
            if provider.miss is not None and "*" in provider.miss:
                raise ValueError(f"providers.{name}.miss: {provider.miss!r} is a pattern; name one of its models")
            if provider.miss is not None and not self.has_model(provider.miss):
                raise ValueError(f"providers.{name}.miss: there is no model {provider.miss!r}")
        return self

    def has_model(self, name: str) -> bool:
        """Return whether a name is served by an entry, a pattern, or as `PROVIDER/MODEL` if `direct`."""
        if any(pattern == name or match_model_pattern(pattern, name) is not None for pattern in self.models):
            return True
        provider, slash, model = name.partition("/")
        return self.direct and bool(slash and model) and provider in self.providers


def match_model_pattern(pattern: str, name: str) -> str | None:
    """Return the part of a name matched by the `*` of a pattern; `None` if the name does not match."""
    head, star, tail = pattern.partition("*")
    if not star or len(name) < len(head) + len(tail) or not (name.startswith(head) and name.endswith(tail)):
        return None
    return name[len(head) : len(name) - len(tail)]

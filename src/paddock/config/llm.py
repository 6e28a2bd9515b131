"""The settings of the LLM proxy."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, PrivateAttr, SecretStr, field_validator, model_validator

from paddock.config.base import Section
from paddock.config.units import Bytes, Seconds

API_ADDRESSES = {
    "openai": "https://api.openai.com/v1",
    "anthropic": "https://api.anthropic.com",
    "gemini": "https://generativelanguage.googleapis.com",
}
_FIELDS_OF = {
    "base_url": {"openai", "anthropic", "gemini", "litellm"},
    "key": {"openai", "anthropic", "gemini", "litellm"},
    "headers": {"openai", "anthropic", "gemini"},
    "api": {"openai"},
    "thinking": {"openai"},
    "ca": {"openai", "anthropic", "gemini"},
    "file": {"script", "replay"},
    "match": {"replay"},
    "timing": {"replay"},
    "miss": {"replay"},
}
"""Which kinds of provider each setting that not all have is for."""
_KINDS = frozenset({"openai", "anthropic", "gemini", "litellm", "script", "replay"})


class RateConfig(Section):
    """How much may be asked at once and per minute; `null` sets no bound."""

    concurrency: int | None = Field(default=None, ge=1)
    """Requests under way at a time."""
    requests_per_minute: int | None = Field(default=None, ge=1)
    """Requests begun within any minute."""
    tokens_per_minute: int | None = Field(default=None, ge=1)
    """Tokens of prompts and answers within any minute, counted when they are known."""


class ProviderConfig(Section):
    """Somebody who answers requests to models."""

    kind: str
    """What it speaks: `openai` (any compatible server), `anthropic`, `gemini`, `litellm`, `script`, `replay`, or the
    kind of a plugin."""
    base_url: str | None = None
    """Its address; `null` is the maker's own."""
    key: SecretStr | None = None
    """Its key, best as `${NAME}` from the environment. It never leaves the server."""
    headers: Mapping[str, SecretStr] = {}
    """Headers added to every request to it."""
    api: Literal["chat", "responses", "both"] = "chat"
    """Which of OpenAI's two APIs an `openai` provider has; `both` relays either as it comes."""
    thinking: Literal["effort", "enable_thinking", "type", "none"] = "effort"
    """How an `openai` provider is told to think: OpenAI's `reasoning_effort`, DashScope's `enable_thinking`, GLM's
    `thinking.type`, or not at all."""
    ca: Path | None = None
    """Certificates to trust besides the system's, as a PEM file."""
    file: Path | None = None
    """The scenario of a `script`, or the recording of a `replay`, which otherwise answers from the archive."""
    match: Literal["exact", "sequence"] = "exact"
    """Whether a `replay` answers a request like a recorded one, or the next of its conversation whatever it asks."""
    timing: Literal["instant", "recorded"] = "instant"
    """Whether a `replay` takes as long as it took."""
    miss: str | None = None
    """The model that is asked, and recorded, when a `replay` knows no answer; `null` makes that an error."""
    connect_timeout: Seconds = Field(default=10, gt=0)
    """How long a connection may take."""
    first_byte_timeout: Seconds = Field(default=600, gt=0)
    """How long it may take until an answer begins."""
    stall_timeout: Seconds = Field(default=120, gt=0)
    """How long an answer that has begun may pause."""
    retries: int = Field(default=2, ge=0, le=10)
    """How often a request is sent again after passing trouble, before the next fallback."""
    default_model: str | None = Field(default=None, pattern=r"^[^\s*]{1,200}$")
    """The provider's model, by its own name, that chats use if they name none and a pattern leads to it; `null` chooses
    a current one of middle price from the provider's list."""
    limits: RateConfig = RateConfig()
    """How much of it may be used at a time, by all together."""
    options: Mapping[str, Any] = {}
    """Settings of a plugin's own."""

    @field_validator("base_url")
    @classmethod
    def _is_address(cls, url: str | None) -> str | None:
        if url is not None and not re.fullmatch(r"https?://[^\s/?#@]+(/[^\s?#]*)?", url):
            raise ValueError(f"{url!r} is not an address; write it like https://example.com/v1")
        return url.rstrip("/") if url else None

    @model_validator(mode="after")
    def _fields_fit_the_kind(self) -> Self:
        for name, kinds in _FIELDS_OF.items():
            is_ours = self.kind in _KINDS
            if is_ours and name in self.model_fields_set and self.kind not in kinds and getattr(self, name) is not None:
                raise ValueError(f"{name} is not for providers of kind {self.kind}")
        if self.kind == "script" and self.file is None:
            raise ValueError("a script needs a file")
        return self


class ModelConfig(Section):
    """A name that requests may ask for, and what answers it. `provider/model` may be written instead."""

    provider: str
    """Name of one of `llm.providers`."""
    model: str | None = None
    """The provider's name for the model; `null` is the whole name that was asked for. A `*` is what the name's own `*`
    stands for."""
    defaults: Mapping[str, Any] = {}
    """Fields of requests that leave them out: `temperature`, `max_tokens`, `effort`, or any of the provider's own."""
    overrides: Mapping[str, Any] = {}
    """Fields that are set whatever requests say; `null` takes one out."""
    headers: Mapping[str, SecretStr] = {}
    """Headers added to requests for this model."""
    fallbacks: tuple[str, ...] = ()
    """Other names to try, in this order, while this one cannot answer."""
    limits: RateConfig = RateConfig()
    """How much of it may be used at a time, by all together."""

    def provider_model(self, asked: str, part: str) -> str:
        """The provider's name for the model, for a name asked for and the part of it that the `*` of a pattern fits."""
        return asked if self.model is None else self.model.replace("*", part)

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: object) -> object:
        if isinstance(value, str):
            provider, slash, model = value.partition("/")
            return {"provider": provider, "model": model} if slash else {"provider": provider}
        return value


class RedactionConfig(Section):
    """Something that the archive must not keep."""

    pattern: str
    """A regular expression; what it finds is replaced. Not across message boundaries."""
    replacement: str = "[redacted]"
    """What stands there instead."""

    @field_validator("pattern")
    @classmethod
    def _compiles(cls, pattern: str) -> str:
        try:
            if re.compile(pattern).match(""):
                raise ValueError(f"{pattern!r} matches nothing at all, so it would match everywhere")
        except re.error as error:
            raise ValueError(f"{pattern!r} is not a regular expression: {error}") from None
        return pattern


class ArchiveConfig(Section):
    """What is kept of conversations."""

    enabled: bool = True
    """Whether exchanges are kept. Usage is counted either way."""
    durability: Literal["behind", "strict"] = "behind"
    """`behind` writes a moment later; `strict` lets no answer end before it is safely on disk."""
    keep: Seconds | None = Field(default=None, gt=0)
    """How long exchanges are kept; `null` is for ever."""
    redact_keys: bool = True
    """Whether what looks like a key of a known provider is taken out."""
    redact: tuple[RedactionConfig, ...] = ()
    """What else is taken out."""
    max_waiting: Bytes = Field(default=256 * 2**20, ge=2**20)
    """How much may wait to be written; beyond it exchanges are dropped and counted, or refused under `strict`."""


class TracingConfig(Section):
    """Spans for other tools, in OpenTelemetry's words for generative models. Needs the extra `paddock[tracing]`."""

    endpoint: str | None = None
    """OTLP over HTTP, such as `http://127.0.0.1:4318/v1/traces`; `null` traces nothing."""
    headers: Mapping[str, SecretStr] = {}
    """Headers for it."""
    content: bool = False
    """Whether spans carry what was said."""
    langfuse_url: str | None = None
    """Address of a Langfuse server, as a shorter way to set `endpoint` and `headers`."""
    langfuse_public_key: str | None = None
    """Its public key."""
    langfuse_secret_key: SecretStr | None = None
    """Its secret key."""


class LlmConfig(Section):
    """The LLM proxy: who answers for which model, and what is kept of it."""

    providers: Mapping[str, ProviderConfig] = {}
    """Providers by name."""
    models: Mapping[str, ModelConfig] = {}
    """What may be asked for; a name may hold one `*`, and the longest match wins."""
    environment: bool = True
    """Whether providers are taken from the environment (`ANTHROPIC_API_KEY`, `OPENAI_API_KEY`, `GEMINI_API_KEY`,
    `DASHSCOPE_API_KEY`, `ZHIPUAI_API_KEY`) when `providers` names none."""
    list_models_every: Seconds | None = Field(default=3600, ge=10)
    """How long a provider's list of models is kept before the provider is asked for it again. `null` never asks, and
    offers well-known names instead."""
    demo: bool = True
    """Whether a script that Paddock brings answers as the model `demo` where there are no providers."""
    direct: bool = False
    """Whether `PROVIDER/MODEL` may be asked for as well, past the names, limits and overrides of `models`."""
    listen: str | None = Field(default=None, pattern=r"^(\[[0-9A-Fa-f:.]+\]|[^\s:\[\]]+):\d{1,5}$")
    """`HOST:PORT` of a listener for models alone, faster than the main one, which serves them too."""
    sandboxes: bool = True
    """Whether sandboxes reach the proxy, each with a key of its own that dies with it."""
    sandbox_models: tuple[str, ...] = ()
    """Models that sandboxes may ask for, `*` allowed; empty allows all."""
    sandbox_limits: RateConfig = RateConfig(concurrency=64)
    """How much each sandbox may ask."""
    tenant_limits: RateConfig = RateConfig()
    """How much each tenant may ask."""
    max_body: Bytes = Field(default=64 * 2**20, ge=1024)
    """Largest request."""
    ping_every: Seconds = Field(default=15, gt=0)
    """How long a translated stream may be silent before the client is sent a sign of life."""
    prices: Path | None = None
    """A file of prices that completes and overrides the one Paddock brings."""
    archive: ArchiveConfig = ArchiveConfig()
    tracing: TracingConfig = TracingConfig()
    _found: Mapping[str, str] = PrivateAttr(default_factory=dict)

    @property
    def found(self) -> Mapping[str, str]:
        """Providers that nobody named and the environment had a key for, with the name of the variable."""
        return self._found

    @model_validator(mode="after")
    def _names_exist(self) -> Self:
        for name in self.providers:
            if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", name):
                raise ValueError(f"{name!r} is no name for a provider; use letters, digits, dots, dashes, underscores")
        for name, model in self.models.items():
            if name.count("*") > 1 or not name:
                raise ValueError(f"models: {name!r} has more than one *" if name else "models: a name is empty")
            if model.provider not in self.providers:
                known = ", ".join(sorted(self.providers)) or "none"
                raise ValueError(f"models.{name}: there is no provider {model.provider!r}; known are: {known}")
            for fallback in model.fallbacks:
                if "*" in fallback:
                    raise ValueError(f"models.{name}.fallbacks: {fallback!r} is a pattern; name one of its models")
                if not self.serves(fallback):
                    raise ValueError(f"models.{name}.fallbacks: there is no model {fallback!r}")
        for name, provider in self.providers.items():
            if provider.miss is not None and "*" in provider.miss:
                raise ValueError(f"providers.{name}.miss: {provider.miss!r} is a pattern; name one of its models")
            if provider.miss is not None and not self.serves(provider.miss):
                raise ValueError(f"providers.{name}.miss: there is no model {provider.miss!r}")
        return self

    def serves(self, name: str) -> bool:
        """Whether something answers for a name: itself, a pattern, or `PROVIDER/MODEL` where that is allowed."""
        if any(pattern == name or matched_part(pattern, name) is not None for pattern in self.models):
            return True
        provider, slash, model = name.partition("/")
        return self.direct and bool(slash and model) and provider in self.providers


def matched_part(pattern: str, name: str) -> str | None:
    """The part of a name that the one `*` of a pattern stands for; `None` if the name does not fit."""
    head, star, tail = pattern.partition("*")
    if not star or len(name) < len(head) + len(tail) or not (name.startswith(head) and name.endswith(tail)):
        return None
    return name[len(head) : len(name) - len(tail)]

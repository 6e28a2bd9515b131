"""Discover LLM providers from API keys in the environment."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from paddock.config.sources import SettingsLayer

PADDOCK_KEY_PREFIX = "pdk_"
"""Prefix of Paddock's own keys, which are skipped: they belong to a Paddock server, possibly this one."""


@dataclass(frozen=True)
class KnownProvider:
    """A known provider: the usual variables of its key and URL, and its model name patterns."""

    name: str
    keys: tuple[str, ...]
    addresses: tuple[str, ...]
    models: tuple[str, ...]
    domains: tuple[str, ...]
    """Domains of the provider's own servers; other servers may have models of any name."""
    settings: Mapping[str, Any] = field(default_factory=dict)

    def is_own_address(self, address: str) -> bool:
        """Return whether a URL belongs to the provider; an invalid URL counts as its own."""
        try:
            host = urlsplit(address).hostname or ""
        except ValueError:
            return True
        return not host or any(host == domain or host.endswith(f".{domain}") for domain in self.domains)


KNOWN_PROVIDERS = (
    KnownProvider(
        "anthropic",
        ("ANTHROPIC_API_KEY",),
        ("ANTHROPIC_BASE_URL",),
        ("claude-*",),
        ("anthropic.com",),
        {"kind": "anthropic"},
    ),
    KnownProvider(
        "openai",
        ("OPENAI_API_KEY",),
        ("OPENAI_BASE_URL",),
        ("gpt-*", "o1*", "o3*", "o4*"),
        ("openai.com",),
        {"kind": "openai", "api": "both"},
    ),
    KnownProvider(
        "google",
        ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        ("GOOGLE_GEMINI_BASE_URL",),
        ("gemini-*",),
        ("googleapis.com",),
        {"kind": "gemini"},
    ),
    KnownProvider(
        "dashscope",
        ("DASHSCOPE_API_KEY",),
        ("DASHSCOPE_BASE_URL",),
        ("qwen*",),
        ("aliyuncs.com",),
        {
            "kind": "openai",
            "base_url": "https://dashscope.aliyuncs.com/compatible-mode/v1",
            "thinking": "enable_thinking",
        },
    ),
    KnownProvider(
        "zhipu",
        ("ZHIPUAI_API_KEY", "ZHIPU_API_KEY", "GLM_API_KEY"),
        ("ZHIPUAI_BASE_URL",),
        ("glm-*",),
        ("bigmodel.cn", "z.ai"),
        {"kind": "openai", "base_url": "https://open.bigmodel.cn/api/paas/v4", "thinking": "type"},
    ),
)
PROVIDER_VARIABLES = tuple(variable for known in KNOWN_PROVIDERS for variable in (*known.keys, *known.addresses))
"""All environment variables that are read."""


def discover_providers(environ: Mapping[str, str], base: Path) -> tuple[SettingsLayer, dict[str, str]]:
    """Return settings for all providers with a key in the environment, and the variable of each key."""
    layer = SettingsLayer(base)
    found: dict[str, str] = {}
    providers: dict[str, Any] = {}
    models: dict[str, Any] = {}
    custom_addresses: dict[str, str] = {}
    for known in KNOWN_PROVIDERS:
        variable, key = _first_set_variable(environ, known.keys)
        if not key or key.startswith(PADDOCK_KEY_PREFIX):
            continue
        found[known.name] = variable
        key_path = ("llm", "providers", known.name)
        providers[known.name] = {**known.settings, "key": key}
        layer.origins[key_path] = f"environment {variable}"
        layer.origins |= {(*key_path, name): f"environment {variable}" for name in providers[known.name]}
        layer.hidden[*key_path, "key"] = key
        named, address = _first_set_variable(environ, known.addresses)
        if address:
            providers[known.name]["base_url"] = address
            layer.origins[*key_path, "base_url"] = f"environment {named}"
            if not known.is_own_address(address):
                custom_addresses[known.name] = f"environment {named}"
                if "api" in known.settings:
                    # Most compatible servers support only Chat Completions.
                    providers[known.name]["api"] = "chat"
                    layer.origins[*key_path, "api"] = f"environment {named}"
    # Only one provider can get the pattern `*`; most servers with models of many vendors use OpenAI's API.
    everything = "openai" if "openai" in custom_addresses else next(iter(custom_addresses), None)
    for known in KNOWN_PROVIDERS:
        if known.name not in found:
            continue
        origin = f"environment {found[known.name]}"
        patterns = known.models
        if known.name == everything:
            origin, patterns = custom_addresses[known.name], ("*",)
        for pattern in patterns:
            models[pattern] = {"provider": known.name, "model": pattern}
            key_path = ("llm", "models", pattern)
            layer.origins |= dict.fromkeys((key_path, (*key_path, "provider"), (*key_path, "model")), origin)
    if found:
        layer.tree = {"llm": {"providers": providers, "models": models}}
    return layer, found


def add_missing_providers(
    layer: SettingsLayer, models: Mapping[str, Any], origins: Mapping[tuple[str, ...], str]
) -> None:
    """Add known providers that models refer to without a key in the environment, marked as unset."""
    providers = layer.tree.setdefault("llm", {}).setdefault("providers", {})
    for name, model in models.items():
        named = model.get("provider") if isinstance(model, dict) else model
        provider = str(named).partition("/")[0]
        known = next((each for each in KNOWN_PROVIDERS if each.name == provider), None)
        if known is None or provider in providers:
            continue
        variable = known.keys[0]
        key_path = ("llm", "providers", provider)
        providers[provider] = {**known.settings, "key": f"${{{variable}}}"}
        layer.origins |= {(*key_path, field): f"environment {variable}" for field in ("key", *known.settings)}
        origin = origins.get(("llm", "models", name), "settings")
        layer.unset[*key_path, "key"] = f"{origin}: {'.'.join(key_path)}.key: the environment has no {variable}"


def unused_key_variables(environ: Mapping[str, str], used_keys: Collection[str]) -> tuple[str, ...]:
    """Return the variables with keys of known providers that are not among the used keys."""
    found = (_first_set_variable(environ, known.keys) for known in KNOWN_PROVIDERS)
    return tuple(
        variable for variable, key in found if key and not key.startswith(PADDOCK_KEY_PREFIX) and key not in used_keys
    )


def key_variable_for_model(model: str) -> str | None:
    """Return the key variable of the provider that a model name suggests, or `None`."""
    fits = (known for known in KNOWN_PROVIDERS if any(fnmatchcase(model, pattern) for pattern in known.models))
    return next((known.keys[0] for known in fits), None)


def model_patterns_of_provider(provider: str) -> tuple[str, ...]:
    """Return the model name patterns of a known provider; empty for other providers."""
    return next((known.models for known in KNOWN_PROVIDERS if known.name == provider), ())


def _first_set_variable(environ: Mapping[str, str], names: tuple[str, ...]) -> tuple[str, str]:
    """Return the first variable that is not empty, with its value."""
    return next(((name, value) for name in names if (value := environ.get(name, "").strip())), (names[0], ""))

"""Providers of models that the environment has keys for, where the configuration names none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from paddock.config.sources import Layer

OUR_KEYS = "pdk_"
"""How Paddock's own keys begin: whoever shows one means a server of Paddock's, and it might be this one."""


@dataclass(frozen=True)
class Known:
    """A provider, the variables that people keep its key and address in, and the names of its models."""

    name: str
    keys: tuple[str, ...]
    addresses: tuple[str, ...]
    models: tuple[str, ...]
    domains: tuple[str, ...]
    """Domains of the provider's own servers; a server elsewhere may have models of any name."""
    settings: Mapping[str, Any] = field(default_factory=dict)

    def owns(self, address: str) -> bool:
        """Whether an address is the provider's own; an address that cannot be read counts as its own."""
        try:
            host = urlsplit(address).hostname or ""
        except ValueError:
            return True
        return not host or any(host == domain or host.endswith(f".{domain}") for domain in self.domains)


KNOWN = (
    Known(
        "anthropic",
        ("ANTHROPIC_API_KEY",),
        ("ANTHROPIC_BASE_URL",),
        ("claude-*",),
        ("anthropic.com",),
        {"kind": "anthropic"},
    ),
    Known(
        "openai",
        ("OPENAI_API_KEY",),
        ("OPENAI_BASE_URL",),
        ("gpt-*", "o1*", "o3*", "o4*"),
        ("openai.com",),
        {"kind": "openai", "api": "both"},
    ),
    Known(
        "google",
        ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        ("GOOGLE_GEMINI_BASE_URL",),
        ("gemini-*",),
        ("googleapis.com",),
        {"kind": "gemini"},
    ),
    Known(
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
    Known(
        "zhipu",
        ("ZHIPUAI_API_KEY", "ZHIPU_API_KEY", "GLM_API_KEY"),
        ("ZHIPUAI_BASE_URL",),
        ("glm-*",),
        ("bigmodel.cn", "z.ai"),
        {"kind": "openai", "base_url": "https://open.bigmodel.cn/api/paas/v4", "thinking": "type"},
    ),
)
VARIABLES = tuple(variable for known in KNOWN for variable in (*known.keys, *known.addresses))
"""All that is looked at."""


def read_providers(environ: Mapping[str, str], base: Path) -> tuple[Layer, dict[str, str]]:
    """What the environment has keys for, and by which variable each provider was found."""
    layer = Layer(base)
    found: dict[str, str] = {}
    providers: dict[str, Any] = {}
    models: dict[str, Any] = {}
    elsewhere: dict[str, str] = {}
    for known in KNOWN:
        variable, key = _first(environ, known.keys)
        if not key or key.startswith(OUR_KEYS):
            continue
        found[known.name] = variable
        place = ("llm", "providers", known.name)
        providers[known.name] = {**known.settings, "key": key}
        layer.origins[place] = f"environment {variable}"
        layer.origins |= {(*place, name): f"environment {variable}" for name in providers[known.name]}
        layer.hidden[*place, "key"] = key
        named, address = _first(environ, known.addresses)
        if address:
            providers[known.name]["base_url"] = address
            layer.origins[*place, "base_url"] = f"environment {named}"
            if not known.owns(address):
                elsewhere[known.name] = f"environment {named}"
                if "api" in known.settings:
                    # Most compatible servers have Chat Completions alone.
                    providers[known.name]["api"] = "chat"
                    layer.origins[*place, "api"] = f"environment {named}"
    # One pattern can be `*`; most servers with models of many makers speak OpenAI's API.
    everything = "openai" if "openai" in elsewhere else next(iter(elsewhere), None)
    for known in KNOWN:
        if known.name not in found:
            continue
        origin = f"environment {found[known.name]}"
        patterns = known.models
        if known.name == everything:
            origin, patterns = elsewhere[known.name], ("*",)
        for pattern in patterns:
            models[pattern] = {"provider": known.name, "model": pattern}
            place = ("llm", "models", pattern)
            layer.origins |= dict.fromkeys((place, (*place, "provider"), (*place, "model")), origin)
    if found:
        layer.tree = {"llm": {"providers": providers, "models": models}}
    return layer, found


def add_missing_providers(layer: Layer, models: Mapping[str, Any], origins: Mapping[tuple[str, ...], str]) -> None:
    """Add well-known providers that models name and whose key is not set, each with its key marked as unset."""
    providers = layer.tree.setdefault("llm", {}).setdefault("providers", {})
    for name, model in models.items():
        named = model.get("provider") if isinstance(model, dict) else model
        provider = str(named).partition("/")[0]
        known = next((each for each in KNOWN if each.name == provider), None)
        if known is None or provider in providers:
            continue
        variable = known.keys[0]
        place = ("llm", "providers", provider)
        providers[provider] = {**known.settings, "key": f"${{{variable}}}"}
        layer.origins |= {(*place, field): f"environment {variable}" for field in ("key", *known.settings)}
        origin = origins.get(("llm", "models", name), "settings")
        layer.unset[*place, "key"] = f"{origin}: {'.'.join(place)}.key: the environment has no {variable}"


def key_for(model: str) -> str | None:
    """The variable that a key is kept in for a model of this name, where the name tells."""
    fits = (known for known in KNOWN if any(fnmatchcase(model, pattern) for pattern in known.models))
    return next((known.keys[0] for known in fits), None)


def patterns_of(provider: str) -> tuple[str, ...]:
    """Return the patterns that the models of a provider's maker fit; none for other providers."""
    return next((known.models for known in KNOWN if known.name == provider), ())


def _first(environ: Mapping[str, str], names: tuple[str, ...]) -> tuple[str, str]:
    """The first of some variables that says something, and what it says."""
    return next(((name, said) for name in names if (said := environ.get(name, "").strip())), (names[0], ""))

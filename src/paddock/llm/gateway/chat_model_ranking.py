"""Pick chat models from a provider's list, rank them, choose a default, and supply names for unlisted providers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from paddock.config.llm import ProviderConfig
from paddock.llm.formats.model_list import ModelListEntry

_OTHER_PURPOSE = re.compile(
    r"embed|rerank|moderation|whisper|transcri|realtime|audio|image|imagen|dall-e|sora|veo-|davinci|babbage"
    r"|deep-research|computer-use|search-(?:preview|api)|native|robotics|livetranslate|paraformer|cosyvoice|cogv"
    r"|stable-diffusion|(?:^|[-/._])(?:flux|[ti]2[iv])(?:[-._:]|$)"
    r"|minilm|(?:^|[-/._])(?:tts|asr|ocr|live|mt|omni|s2s|aqa|bge|gte|clip)(?:[-._:]|$)"
    r"|^gpt-3\.5-turbo-instruct|^(?:o\d|gpt-\d).*-(?:pro|codex)(?:-|$)",
    re.IGNORECASE,
)
"""Models for other media than text, and OpenAI models without Chat Completions."""
_SNAPSHOT = re.compile(r"-(?:20\d{2}-?\d{2}-?\d{2}|\d{4}|\d{2}-\d{2}|\d{2}-20\d{2}|00\d)$")
"""The date or number that marks a fixed version of a model."""
_PREFERRED = tuple(
    re.compile(pattern)
    for pattern in (
        r"claude-sonnet-(\d+(?:-\d{1,2})?)",
        r"claude-sonnet-(\d+(?:-\d{1,2})?)-20\d{6}",
        r"claude-(\d+-\d)-sonnet.*",
        r"gpt-(\d+(?:\.\d+)?)",
        r"gpt-(\d+(?:\.\d+)?)-mini",
        r"gpt-(\d+)o",
        r"gemini-(\d+(?:\.\d+)?)-flash",
        r"gemini-(\d+(?:\.\d+)?)-pro",
        r"gemini-(\d+(?:\.\d+)?)-flash-preview",
        r"qwen(\d+(?:\.\d+)?)-plus",
        r"qwen-plus()",
        r"glm-(\d+(?:\.\d+)?)",
    )
)
"""Current model families of medium price, the better ones first; of each, the highest version is best."""
_WELL_KNOWN = {
    "anthropic": ("claude-sonnet-4-5", "claude-opus-4-5", "claude-haiku-4-5"),
    "openai": ("gpt-5.1", "gpt-5-mini", "gpt-5-nano", "o3", "o4-mini"),
    "gemini": ("gemini-2.5-flash", "gemini-2.5-pro", "gemini-2.5-flash-lite"),
    "dashscope": ("qwen-plus", "qwen3-max", "qwen-flash", "qwen3-coder-plus"),
    "zhipu": ("glm-4.6", "glm-4.5-air"),
}
_HOSTS = {"dashscope": "dashscope", "bigmodel": "zhipu"}


def rank_chat_models(models: Iterable[ModelListEntry], default: str | None = None) -> tuple[ModelListEntry, ...]:
    """Return a provider's chat models: the default first, then the newest, dated versions last."""
    offered = {model.id: model for model in models if not _OTHER_PURPOSE.search(model.id)}
    if default is not None and default not in offered:
        offered[default] = ModelListEntry(default)
    best = default or _best_default(list(offered))

    def rank(model: ModelListEntry) -> tuple[bool, bool, int, str]:
        dated = _SNAPSHOT.sub("", model.id)
        return model.id != best, dated != model.id and dated in offered, -model.created, model.id

    return tuple(sorted(offered.values(), key=rank))


def list_well_known_models(settings: ProviderConfig, patterns: Sequence[str]) -> tuple[ModelListEntry, ...]:
    """Return names for a provider without a list: the vendor's, or names that match the prefixes of its patterns."""
    family = settings.kind
    if settings.base_url is not None:
        family = next((name for part, name in _HOSTS.items() if part in settings.base_url), "")
    names = list(_WELL_KNOWN.get(family, ()))
    all_names = [name for names in _WELL_KNOWN.values() for name in names]
    for pattern in patterns:
        head = pattern.partition("*")[0]
        names += [name for name in all_names if head and name.startswith(head) and name not in names]
    if settings.default_model is not None:
        names = [settings.default_model, *(name for name in names if name != settings.default_model)]
    return tuple(ModelListEntry(name) for name in names)


def _best_default(names: Sequence[str]) -> str | None:
    """Return the best default: the highest version of the first family in the list."""
    for family in _PREFERRED:
        found = [(_version(match[1]), name) for name in names if (match := family.fullmatch(name.rpartition("/")[2]))]
        if found:
            return max(found)[1]
    return None


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.split(r"[.-]", text) if part)

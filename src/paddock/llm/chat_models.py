"""Which of a provider's models chat, which of them is a good default, and names for providers that cannot be asked."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from paddock.config.llm import ProviderConfig
from paddock.llm.formats.models import Listed

_OTHER_PURPOSE = re.compile(
    r"embed|rerank|moderation|whisper|transcri|realtime|audio|image|imagen|dall-e|sora|veo-|davinci|babbage"
    r"|deep-research|computer-use|search-(?:preview|api)|native|robotics|livetranslate|paraformer|cosyvoice|cogv"
    r"|stable-diffusion|(?:^|[-/._])(?:flux|[ti]2[iv])(?:[-._:]|$)"
    r"|minilm|(?:^|[-/._])(?:tts|asr|ocr|live|mt|omni|s2s|aqa|bge|gte|clip)(?:[-._:]|$)"
    r"|^gpt-3\.5-turbo-instruct|^(?:o\d|gpt-\d).*-(?:pro|codex)(?:-|$)",
    re.IGNORECASE,
)
"""Models that make or read something other than text, and OpenAI's that have no Chat Completions."""
_SNAPSHOT = re.compile(r"-(?:20\d{2}-?\d{2}-?\d{2}|\d{4}|\d{2}-\d{2}|\d{2}-20\d{2}|00\d)$")
"""The date or number that makes a name one fixed version of a model."""
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
"""Families of current models of middle price, the better ones first; of each, the highest version is best."""
_WELL_KNOWN = {
    "anthropic": ("claude-sonnet-4-5", "claude-opus-4-5", "claude-haiku-4-5"),
    "openai": ("gpt-5.1", "gpt-5-mini", "gpt-5-nano", "o3", "o4-mini"),
    "gemini": ("gemini-2.5-flash", "gemini-2.5-pro", "gemini-2.5-flash-lite"),
    "dashscope": ("qwen-plus", "qwen3-max", "qwen-flash", "qwen3-coder-plus"),
    "zhipu": ("glm-4.6", "glm-4.5-air"),
}
_HOSTS = {"dashscope": "dashscope", "bigmodel": "zhipu"}


def chat_models(models: Iterable[Listed], default: str | None = None) -> tuple[Listed, ...]:
    """Those of a provider's models that chat: the default one first, then the newest, dated versions last."""
    offered = {model.id: model for model in models if not _OTHER_PURPOSE.search(model.id)}
    if default is not None and default not in offered:
        offered[default] = Listed(default)
    best = default or _best(list(offered))

    def rank(model: Listed) -> tuple[bool, bool, int, str]:
        dated = _SNAPSHOT.sub("", model.id)
        return model.id != best, dated != model.id and dated in offered, -model.created, model.id

    return tuple(sorted(offered.values(), key=rank))


def well_known(settings: ProviderConfig, patterns: Sequence[str]) -> tuple[Listed, ...]:
    """Names to offer for a provider that cannot be asked: of its maker, or of those that its patterns begin like."""
    family = settings.kind
    if settings.base_url is not None:
        family = next((name for part, name in _HOSTS.items() if part in settings.base_url), "")
    names = list(_WELL_KNOWN.get(family, ()))
    everything = [name for names in _WELL_KNOWN.values() for name in names]
    for pattern in patterns:
        head = pattern.partition("*")[0]
        names += [name for name in everything if head and name.startswith(head) and name not in names]
    if settings.default_model is not None:
        names = [settings.default_model, *(name for name in names if name != settings.default_model)]
    return tuple(Listed(name) for name in names)


def _best(names: Sequence[str]) -> str | None:
    """The best default: the highest version of the first family that is there."""
    for family in _PREFERRED:
        found = [(_version(match[1]), name) for name in names if (match := family.fullmatch(name.rpartition("/")[2]))]
        if found:
            return max(found)[1]
    return None


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.split(r"[.-]", text) if part)

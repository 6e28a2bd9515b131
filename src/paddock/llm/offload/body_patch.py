"""Change single fields of a request body without touching the bytes of other values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from paddock.errors import InvalidInput

_members = msgspec.json.Decoder(dict[str, msgspec.Raw])
_SETTING_PATHS: dict[str, dict[str, tuple[str, ...]]] = {
    "openai-chat": {"max_tokens": ("max_tokens",), "effort": ("reasoning_effort",)},
    "openai-responses": {"max_tokens": ("max_output_tokens",), "effort": ("reasoning", "effort")},
    "anthropic": {"stop": ("stop_sequences",), "effort": ("output_config", "effort")},
    "gemini": {
        "temperature": ("generationConfig", "temperature"),
        "top_p": ("generationConfig", "topP"),
        "top_k": ("generationConfig", "topK"),
        "max_tokens": ("generationConfig", "maxOutputTokens"),
        "stop": ("generationConfig", "stopSequences"),
        "seed": ("generationConfig", "seed"),
        "effort": ("generationConfig", "thinkingConfig", "thinkingLevel"),
    },
}
"""Path of each shared setting in each format; settings not listed have the same name."""
SHARED_SETTINGS = frozenset({"temperature", "top_p", "top_k", "max_tokens", "stop", "seed", "effort"})
_ALTERNATIVE_NAMES = {("openai-chat", "max_tokens"): "max_completion_tokens"}
"""Alternative field names of a setting."""


_MODEL_FIRST = re.compile(rb'\s*\{\s*"model"\s*:\s*("[^"\\]*")')


def replace_model_in_body(body: bytes, format: str, requested: str, model: str) -> bytes:
    """Replace the model's name in a body. Raises `InvalidInput` as `patch_request_body` does.

    Most clients put the model first. Then the rest is not parsed, unless the field may occur again.
    """
    found = _MODEL_FIRST.match(body)
    if found is not None and found[1] == _encode(requested):
        begin, end = found.span(1)
        if body.find(b'"model"', end) < 0 and body.find(b"\\u", end) < 0:
            return b"%s%s%s" % (body[:begin], _encode(model), body[end:])
    return patch_request_body(body, format, model=model)


def patch_request_body(
    body: bytes,
    format: str,
    *,
    model: str | None = None,
    defaults: Mapping[str, Any] | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> bytes:
    """Set the model, apply defaults to missing fields, and apply overrides unconditionally.

    An override of `None` removes the field. Raises `InvalidInput` for a body that is not a JSON object.
    """
    try:
        return _patch_members(body, format, model, defaults or {}, overrides or {})
    except msgspec.MsgspecError as error:
        raise InvalidInput(f"the body cannot be parsed: {error}") from None


def _patch_members(
    body: bytes, format: str, model: str | None, defaults: Mapping[str, Any], overrides: Mapping[str, Any]
) -> bytes:
    members = _members.decode(body)
    changes: dict[str, Any] = {}
    if model is not None:
        changes["model"] = model
    for name, value in defaults.items():
        if not _has_setting(members, format, name):
            _set_setting(members, changes, _setting_path(format, name), value)
    for name, value in overrides.items():
        also = _ALTERNATIVE_NAMES.get((format, name))
        if also:
            members.pop(also, None)
        _set_setting(members, changes, _setting_path(format, name), value)
    pieces = []
    for name, raw in members.items():
        if name not in changes:
            pieces.append(b"%s:%s" % (_encode(name), bytes(raw)))
    for name, value in changes.items():
        if value is not None:
            pieces.append(b"%s:%s" % (_encode(name), _encode(value)))
    return b"{" + b",".join(pieces) + b"}"


def _setting_path(format: str, name: str) -> tuple[str, ...]:
    return _SETTING_PATHS.get(format, {}).get(name, (name,))


def _has_setting(members: Mapping[str, msgspec.Raw], format: str, name: str) -> bool:
    first, *inner = _setting_path(format, name)
    if _ALTERNATIVE_NAMES.get((format, name)) in members:
        return True
    value: Any = msgspec.json.decode(members[first]) if first in members else None
    for step in inner:
        value = value.get(step) if isinstance(value, dict) else None
    return value is not None


def _set_setting(
    members: Mapping[str, msgspec.Raw], changes: dict[str, Any], path: tuple[str, ...], value: Any
) -> None:
    first, *inner = path
    if not inner:
        changes[first] = value
        return
    top = changes.get(first)
    if not isinstance(top, dict):
        known = msgspec.json.decode(members[first]) if first in members else None
        top = known if isinstance(known, dict) else {}
    changes[first] = at = top
    for step in inner[:-1]:
        below = at.get(step)
        at[step] = at = below if isinstance(below, dict) else {}
    if value is None:
        at.pop(inner[-1], None)
    else:
        at[inner[-1]] = value


_encode = msgspec.json.encode

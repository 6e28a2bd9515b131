"""Changes single fields of a request's body and leaves every other byte of its values as it came."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from paddock.errors import InvalidInput

_members = msgspec.json.Decoder(dict[str, msgspec.Raw])
_PLACES: dict[str, dict[str, tuple[str, ...]]] = {
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
"""Where the settings that every format has stand in each; those not listed have the same name there."""
SHARED = frozenset({"temperature", "top_p", "top_k", "max_tokens", "stop", "seed", "effort"})
_ALSO = {("openai-chat", "max_tokens"): "max_completion_tokens"}
"""Another name under which a format may have it."""


_FIRST = re.compile(rb'\s*\{\s*"model"\s*:\s*("[^"\\]*")')


def renamed(body: bytes, format: str, asked: str, model: str) -> bytes:
    """The body with another model in place of the one that was asked for. Raises `InvalidInput` as `patched` does.

    Most clients name the model first. Then, unless it may be named once more further on, the rest is not looked at.
    """
    found = _FIRST.match(body)
    if found is not None and found[1] == _text(asked):
        begin, end = found.span(1)
        if body.find(b'"model"', end) < 0 and body.find(b"\\u", end) < 0:
            return b"%s%s%s" % (body[:begin], _text(model), body[end:])
    return patched(body, format, model=model)


def patched(
    body: bytes,
    format: str,
    *,
    model: str | None = None,
    defaults: Mapping[str, Any] | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> bytes:
    """The body with another model, with defaults where it says nothing, and with overrides whatever it says.

    An override of `None` takes the field out. Raises `InvalidInput` for a body that is no JSON object.
    """
    try:
        return _patched(body, format, model, defaults or {}, overrides or {})
    except msgspec.MsgspecError as error:
        raise InvalidInput(f"the body cannot be read: {error}") from None


def _patched(
    body: bytes, format: str, model: str | None, defaults: Mapping[str, Any], overrides: Mapping[str, Any]
) -> bytes:
    members = _members.decode(body)
    changes: dict[str, Any] = {}
    if model is not None:
        changes["model"] = model
    for name, value in defaults.items():
        if not _has(members, format, name):
            _put(members, changes, _place(format, name), value)
    for name, value in overrides.items():
        also = _ALSO.get((format, name))
        if also:
            members.pop(also, None)
        _put(members, changes, _place(format, name), value)
    pieces = []
    for name, raw in members.items():
        if name not in changes:
            pieces.append(b"%s:%s" % (_text(name), bytes(raw)))
    for name, value in changes.items():
        if value is not None:
            pieces.append(b"%s:%s" % (_text(name), _text(value)))
    return b"{" + b",".join(pieces) + b"}"


def _place(format: str, name: str) -> tuple[str, ...]:
    return _PLACES.get(format, {}).get(name, (name,))


def _has(members: Mapping[str, msgspec.Raw], format: str, name: str) -> bool:
    first, *inner = _place(format, name)
    if _ALSO.get((format, name)) in members:
        return True
    value: Any = msgspec.json.decode(members[first]) if first in members else None
    for step in inner:
        value = value.get(step) if isinstance(value, dict) else None
    return value is not None


def _put(members: Mapping[str, msgspec.Raw], changes: dict[str, Any], place: tuple[str, ...], value: Any) -> None:
    first, *inner = place
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


_text = msgspec.json.encode

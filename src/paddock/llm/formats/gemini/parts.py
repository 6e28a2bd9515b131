"""What a part of Gemini's contents says, in requests and answers alike."""

from __future__ import annotations

import json
import re
from typing import Any

from paddock.llm.formats.base import Untranslatable
from paddock.llm.formats.fields import Fields
from paddock.llm.formats.turns import arguments_object
from paddock.llm.neutral import Media, Part, Refusal, Text, Thinking, ToolCall

_OPAQUE = {"args", "response", "parameters", "parametersJsonSchema", "responseSchema", "responseJsonSchema", "labels"}
_DEEPEST = 16
"""No field of the API itself lies deeper."""


def camel(value: Any, depth: int = 0) -> Any:
    """The same JSON with `snake_case` names of fields, which the API takes too, as `camelCase`."""
    if isinstance(value, list) and depth < _DEEPEST:
        return [camel(item, depth + 1) for item in value]
    if not isinstance(value, dict) or depth == _DEEPEST:
        return value
    named = {re.sub(r"_([a-z])", lambda found: found[1].upper(), key): item for key, item in value.items()}
    return {key: item if key in _OPAQUE else camel(item, depth + 1) for key, item in named.items()}


def generation(model: str) -> int:
    """Which Gemini it is: 2 for `gemini-2.5-pro`. Names that do not say count as the newest."""
    match = re.search(r"gemini-(\d+)", model)
    return int(match[1]) if match else 3


def read_media(part: Fields) -> Media:
    inline = part.object_or("inlineData")
    if inline is not None:
        media_type = inline.text("mimeType")
        return Media(_kind(media_type, part), media_type, data=inline.text("data"), name=inline.text_or("displayName"))
    file = part.object("fileData")
    media_type_or_none = file.text_or("mimeType")
    return Media(
        _kind(media_type_or_none or "application/octet-stream", part),
        media_type_or_none,
        url=file.text("fileUri"),
        name=file.text_or("displayName"),
    )


def _kind(media_type: str, part: Fields) -> Any:
    family = media_type.partition("/")[0]
    if family == "video":
        raise Untranslatable(f"{part.path} is a video, which only Gemini takes")
    return family if family in ("image", "audio") else "document"


def read_thought(part: Fields) -> Thinking:
    return Thinking(part.text_or("text") or "", part.text_or("thoughtSignature") or None)


def read_call(part: Fields, call_id: str) -> ToolCall:
    call = part.object("functionCall")
    return ToolCall(
        id=call.text_or("id") or call_id,
        name=call.text("name"),
        arguments=json.dumps(call.mapping_or("args") or {}, ensure_ascii=False, separators=(",", ":")),
        signature=part.text_or("thoughtSignature") or None,
    )


def write_call(call: ToolCall, *, with_id: bool) -> dict[str, Any]:
    written: dict[str, Any] = {"name": call.name, "args": arguments_object(call.arguments)}
    if with_id and call.id:
        written["id"] = call.id
    part: dict[str, Any] = {"functionCall": written}
    if call.signature:
        part["thoughtSignature"] = call.signature
    return part


def write_thought(thought: Thinking) -> dict[str, Any] | None:
    """A thought; a signature alone is the seal of the text before it. None for what another provider sealed."""
    if thought.redacted is not None or not (thought.text or thought.signature):
        return None
    part: dict[str, Any] = {"text": thought.text}
    if thought.text:
        part["thought"] = True
    if thought.signature:
        part["thoughtSignature"] = thought.signature
    return part


def write_media(media: Media) -> dict[str, Any]:
    if media.data is not None:
        default = {"image": "image/png", "document": "application/pdf", "audio": "audio/wav"}[media.kind]
        return {"inlineData": {"mimeType": media.media_type or default, "data": media.data}}
    if media.url is None:
        raise Untranslatable(f"a {media.kind} has neither data nor an address")
    file = {"fileUri": media.url}
    if media.media_type:
        file["mimeType"] = media.media_type
    return {"fileData": file}


def write_answer_part(part: Part) -> dict[str, Any] | None:
    if isinstance(part, Text | Refusal):
        return {"text": part.text}
    if isinstance(part, Thinking):
        return write_thought(part)
    if isinstance(part, ToolCall):
        return write_call(part, with_id=True)
    return write_media(part) if isinstance(part, Media) else None

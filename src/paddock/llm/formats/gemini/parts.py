"""What a part of Gemini's contents says, in requests and answers alike."""

from __future__ import annotations

import re
from typing import Any

from paddock.llm.formats.base import Untranslatable
from paddock.llm.formats.fields import Fields
from paddock.llm.formats.gemini.envelope import enveloped, needs_envelope, opened
from paddock.llm.formats.seals import GEMINI, foreign, signature, thought
from paddock.llm.formats.turns import arguments_object, arguments_text
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
    named = {_camel_name(key) if "_" in key else key: item for key, item in value.items()}
    return {
        key: camel(item, depth + 1) if isinstance(item, dict | list) and key not in _OPAQUE else item
        for key, item in named.items()
    }


def _camel_name(name: str) -> str:
    return re.sub(r"_([a-z])", lambda found: found[1].upper(), name)


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
    return thought(part.text_or("text") or "", part.text_or("thoughtSignature"), GEMINI)


def read_call(part: Fields, call_id: str) -> ToolCall:
    call = part.object("functionCall")
    return ToolCall(
        id=call.text_or("id") or call_id,
        name=call.text("name"),
        arguments=arguments_text(call.mapping_or("args") or {}),
        signature=signature(part.text_or("thoughtSignature"), GEMINI),
    )


def write_call(call: ToolCall, *, with_id: bool) -> dict[str, Any]:
    said: dict[str, Any] = {"name": call.name, "args": arguments_object(call.arguments)}
    if with_id and call.id:
        said["id"] = call.id
    part: dict[str, Any] = {"functionCall": said}
    if call.signature and not foreign(call.signature, GEMINI):
        part["thoughtSignature"] = call.signature
    return part


def write_thought(thinking: Thinking) -> dict[str, Any] | None:
    """A thought; a signature alone is the seal of the text before it."""
    if thinking.redacted is not None or not (thinking.text or thinking.signature):
        return None
    part: dict[str, Any] = {"text": thinking.text}
    if thinking.text:
        part["thought"] = True
    if thinking.signature:
        part["thoughtSignature"] = thinking.signature
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


def write_answer_parts(parts: list[Part]) -> list[dict[str, Any]]:
    """An answer's parts; sealed thoughts of other providers ride on the part after them."""
    said: list[dict[str, Any]] = []
    waiting: list[Thinking] = []
    for part in parts:
        if isinstance(part, Thinking) and needs_envelope(part):
            waiting.append(part)
            part = Thinking(part.text)
        written = write_answer_part(part)
        if written is None:
            continue
        if waiting and not isinstance(part, Thinking) and "thoughtSignature" not in written:
            written["thoughtSignature"] = enveloped(waiting)
            waiting = []
        said.append(written)
    if waiting:
        said.append({"text": "", "thoughtSignature": enveloped(waiting)})
    return said


def write_answer_part(part: Part) -> dict[str, Any] | None:
    if isinstance(part, Text | Refusal):
        return {"text": part.text}
    if isinstance(part, Thinking):
        return write_thought(part)
    if isinstance(part, ToolCall):
        return write_call(part, with_id=True)
    return write_media(part) if isinstance(part, Media) else None


def carried_thoughts(part: Fields) -> list[Thinking] | None:
    """Other providers' thoughts that ride on this part, whose signature is then not its own."""
    thoughts = opened(part.text_or("thoughtSignature"))
    if thoughts is not None:
        part.value = {name: value for name, value in part.value.items() if name != "thoughtSignature"}
    return thoughts


def without_told(parts: list[Part], sealed: dict[str, int]) -> list[Part]:
    """The parts without the unsealed copies of thoughts that come sealed after them, at the last of these places."""
    if not sealed:
        return parts
    return [
        part
        for place, part in enumerate(parts)
        if not (
            isinstance(part, Thinking)
            and part.signature is None
            and part.redacted is None
            and place < sealed.get(part.text, 0)
        )
    ]

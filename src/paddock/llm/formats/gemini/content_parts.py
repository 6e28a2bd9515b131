"""Parse and write content parts of the Gemini API, which requests and answers share."""

from __future__ import annotations

import re
from typing import Any

from paddock.llm.formats.base import UntranslatableRequest
from paddock.llm.formats.call_arguments import call_arguments_text, parse_call_arguments
from paddock.llm.formats.gemini.foreign_thoughts import (
    has_foreign_signature,
    pack_thoughts_in_signature,
    unpack_thoughts_from_signature,
)
from paddock.llm.formats.json_fields import JsonFields
from paddock.llm.formats.neutral import MessagePart, ModelMedia, ModelRefusal, ModelText, ModelThinking, ModelToolCall
from paddock.llm.formats.thought_signatures import (
    GEMINI_FAMILY,
    is_foreign_signature,
    parse_call_thought_signature,
    parse_signed_thought,
)

_USER_DATA_FIELDS = {
    "args",
    "response",
    "parameters",
    "parametersJsonSchema",
    "responseSchema",
    "responseJsonSchema",
    "labels",
}
_MAX_DEPTH = 16
"""No field of the API is nested deeper."""


def camel_case_keys(value: Any, depth: int = 0) -> Any:
    """Convert `snake_case` field names, which the API also accepts, to `camelCase`."""
    if isinstance(value, list) and depth < _MAX_DEPTH:
        return [camel_case_keys(item, depth + 1) for item in value]
    if not isinstance(value, dict) or depth == _MAX_DEPTH:
        return value
    named = {_camel_name(key) if "_" in key else key: item for key, item in value.items()}
    return {
        key: camel_case_keys(item, depth + 1)
        if isinstance(item, dict | list) and key not in _USER_DATA_FIELDS
        else item
        for key, item in named.items()
    }


def _camel_name(name: str) -> str:
    return re.sub(r"_([a-z])", lambda found: found[1].upper(), name)


def gemini_generation(model: str) -> int:
    """Return the Gemini generation: 2 for `gemini-2.5-pro`. Other names count as the newest."""
    match = re.search(r"gemini-(\d+)", model)
    return int(match[1]) if match else 3


def read_gemini_media(part: JsonFields) -> ModelMedia:
    inline = part.optional_object("inlineData")
    if inline is not None:
        media_type = inline.text("mimeType")
        return ModelMedia(
            _media_kind(media_type, part),
            media_type,
            data=inline.text("data"),
            name=inline.optional_text("displayName"),
        )
    file = part.object("fileData")
    media_type_or_none = file.optional_text("mimeType")
    return ModelMedia(
        _media_kind(media_type_or_none or "application/octet-stream", part),
        media_type_or_none,
        url=file.text("fileUri"),
        name=file.optional_text("displayName"),
    )


def _media_kind(media_type: str, part: JsonFields) -> Any:
    family = media_type.partition("/")[0]
    if family == "video":
        raise UntranslatableRequest(f"{part.path} is a video, which only Gemini takes")
    return family if family in ("image", "audio") else "document"


def read_gemini_thought(part: JsonFields) -> ModelThinking:
    return parse_signed_thought(part.optional_text("text") or "", part.optional_text("thoughtSignature"), GEMINI_FAMILY)


def read_gemini_tool_call(part: JsonFields, call_id: str) -> ModelToolCall:
    call = part.object("functionCall")
    return ModelToolCall(
        id=call.optional_text("id") or call_id,
        name=call.text("name"),
        arguments=call_arguments_text(call.optional_mapping("args") or {}),
        signature=parse_call_thought_signature(part.optional_text("thoughtSignature"), GEMINI_FAMILY),
    )


def write_gemini_tool_call(call: ModelToolCall, *, with_id: bool) -> dict[str, Any]:
    encoded: dict[str, Any] = {"name": call.name, "args": parse_call_arguments(call.arguments)}
    if with_id and call.id:
        encoded["id"] = call.id
    part: dict[str, Any] = {"functionCall": encoded}
    if call.signature and not is_foreign_signature(call.signature, GEMINI_FAMILY):
        part["thoughtSignature"] = call.signature
    return part


def write_gemini_thought(thinking: ModelThinking) -> dict[str, Any] | None:
    """Write a thought. A signature without text belongs to the text before it."""
    if thinking.redacted is not None or not (thinking.text or thinking.signature):
        return None
    part: dict[str, Any] = {"text": thinking.text}
    if thinking.text:
        part["thought"] = True
    if thinking.signature:
        part["thoughtSignature"] = thinking.signature
    return part


def write_gemini_media(media: ModelMedia) -> dict[str, Any]:
    if media.data is not None:
        default = {"image": "image/png", "document": "application/pdf", "audio": "audio/wav"}[media.kind]
        return {"inlineData": {"mimeType": media.media_type or default, "data": media.data}}
    if media.url is None:
        raise UntranslatableRequest(f"a {media.kind} has neither data nor a URL")
    file = {"fileUri": media.url}
    if media.media_type:
        file["mimeType"] = media.media_type
    return {"fileData": file}


def write_gemini_answer_parts(parts: list[MessagePart]) -> list[dict[str, Any]]:
    """Write the parts of an answer, packing foreign signed thoughts into the part after them."""
    encoded: list[dict[str, Any]] = []
    waiting: list[ModelThinking] = []
    for part in parts:
        if isinstance(part, ModelThinking) and has_foreign_signature(part):
            waiting.append(part)
            part = ModelThinking(part.text)
        written = write_gemini_answer_part(part)
        if written is None:
            continue
        if waiting and not isinstance(part, ModelThinking) and "thoughtSignature" not in written:
            written["thoughtSignature"] = pack_thoughts_in_signature(waiting)
            waiting = []
        encoded.append(written)
    if waiting:
        encoded.append({"text": "", "thoughtSignature": pack_thoughts_in_signature(waiting)})
    return encoded


def write_gemini_answer_part(part: MessagePart) -> dict[str, Any] | None:
    if isinstance(part, ModelText | ModelRefusal):
        return {"text": part.text}
    if isinstance(part, ModelThinking):
        return write_gemini_thought(part)
    if isinstance(part, ModelToolCall):
        return write_gemini_tool_call(part, with_id=True)
    return write_gemini_media(part) if isinstance(part, ModelMedia) else None


def unpack_foreign_thoughts(part: JsonFields) -> list[ModelThinking] | None:
    """Unpack and remove foreign thoughts from the signature of a part; `None` if there are none."""
    thoughts = unpack_thoughts_from_signature(part.optional_text("thoughtSignature"))
    if thoughts is not None:
        part.value = {name: value for name, value in part.value.items() if name != "thoughtSignature"}
    return thoughts


def drop_unsigned_thought_copies(parts: list[MessagePart], last_signed: dict[str, int]) -> list[MessagePart]:
    """Drop unsigned thoughts that are signed later; `last_signed` has the last index by text."""
    if not last_signed:
        return parts
    return [
        part
        for index, part in enumerate(parts)
        if not (
            isinstance(part, ModelThinking)
            and part.signature is None
            and part.redacted is None
            and index < last_signed.get(part.text, 0)
        )
    ]

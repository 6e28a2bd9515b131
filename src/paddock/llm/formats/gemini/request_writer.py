"""Write requests to the Gemini API."""

from __future__ import annotations

import mimetypes
from typing import Any

from paddock.llm.formats.alternating_turns import to_alternating_turns
from paddock.llm.formats.base import UntranslatableRequest
from paddock.llm.formats.gemini.content_parts import (
    gemini_generation,
    write_gemini_media,
    write_gemini_thought,
    write_gemini_tool_call,
)
from paddock.llm.formats.gemini.schema_conversion import GeminiSchemaWriter
from paddock.llm.formats.neutral import (
    MessagePart,
    MessageRole,
    ModelMedia,
    ModelMessage,
    ModelRequest,
    ModelText,
    ModelThinking,
    ModelToolCall,
    ModelToolResult,
    ReasoningEffort,
    ToolChoice,
)
from paddock.llm.formats.thought_signatures import GEMINI_FAMILY, drop_foreign_signatures
from paddock.llm.formats.tool_names import to_provider_tool_name
from paddock.llm.formats.translation_notes import add_translation_note

_BUDGETS = {
    ReasoningEffort.NONE: 0,
    ReasoningEffort.MINIMAL: 512,
    ReasoningEffort.LOW: 1024,
    ReasoningEffort.MEDIUM: 8192,
    ReasoningEffort.HIGH: 24_576,
    ReasoningEffort.XHIGH: 32_768,
    ReasoningEffort.MAX: 32_768,
}
_SKIP_SIGNATURE_CHECK = "skip_thought_signature_validator"
"""Documented signature for calls of another model; Gemini 3 rejects calls without a signature."""


def write_gemini_token_count_request(request: ModelRequest) -> dict[str, Any]:
    body = write_gemini_request(request)
    return {"generateContentRequest": {"model": f"models/{request.model.removeprefix('models/')}", **body}}


def write_gemini_request(request: ModelRequest) -> dict[str, Any]:
    system, turns = to_alternating_turns(drop_foreign_signatures(request, GEMINI_FAMILY), request.notes)
    body: dict[str, Any] = dict(request.extra.get("gemini") or {})
    if system:
        body["systemInstruction"] = {"parts": [{"text": part.text} for part in system]}
    names = {part.id: part.name for turn in turns for part in turn.parts if isinstance(part, ModelToolCall)}
    contents = [_write_content(turn, names, request) for turn in turns]
    body["contents"] = [content for content in contents if content["parts"]]
    if not body["contents"]:
        raise UntranslatableRequest("the Gemini API needs at least one message that is not empty")
    schemas = GeminiSchemaWriter()
    _write_tools(request, body, schemas)
    settings = _write_settings(request, schemas)
    if settings:
        body["generationConfig"] = settings
    if schemas.dropped:
        add_translation_note(
            request.notes,
            f"schema keywords that Gemini does not support were removed: {', '.join(sorted(schemas.dropped))}",
        )
    if request.parallel_tools is False:
        request.notes.append("parallel calls could not be turned off: Gemini has no such setting")
    if request.user is not None:
        request.notes.append("`user` was left out: Gemini has none")
    return body


def _write_content(turn: ModelMessage, names: dict[str, str], request: ModelRequest) -> dict[str, Any]:
    parts: list[dict[str, Any]] = []
    source = _move_signatures_to_calls(turn.parts, request)
    for part in source:
        if isinstance(part, ModelText):
            parts.append({"text": part.text})
        elif isinstance(part, ModelMedia):
            parts.append(_write_media_part(part, request))
        elif isinstance(part, ModelThinking):
            thought = write_gemini_thought(part)
            if thought is not None:
                parts.append(thought)
        elif isinstance(part, ModelToolCall):
            parts.append(write_gemini_tool_call(part, with_id=False))
        elif isinstance(part, ModelToolResult):
            parts += _write_result(part, names, request)
    # Results first: the API requires them right after the calls, before images that belong to them.
    parts.sort(key=lambda part: "functionResponse" not in part)
    return {"role": "model" if turn.role is MessageRole.ASSISTANT else "user", "parts": parts}


def _move_signatures_to_calls(parts: list[MessagePart], request: ModelRequest) -> list[MessagePart]:
    """Move the signature of a thought to the first call after it, where Gemini expects it."""
    moved: list[MessagePart] = []
    pending: str | None = None
    has_call = False
    for index, part in enumerate(parts):
        following = parts[index + 1] if index + 1 < len(parts) else None
        if isinstance(part, ModelThinking) and part.signature and isinstance(following, ModelToolCall):
            if not following.signature:
                pending = part.signature
                part = ModelThinking(part.text)
        elif isinstance(part, ModelToolCall):
            signature = part.signature or pending
            if signature is None and not has_call and gemini_generation(request.model) >= 3:
                signature = _SKIP_SIGNATURE_CHECK
            part = ModelToolCall(part.id, to_provider_tool_name(part.name), part.arguments, signature)
            pending, has_call = None, True
        moved.append(part)
    return moved


def _write_media_part(media: ModelMedia, request: ModelRequest) -> dict[str, Any]:
    url = media.url
    if media.data is None and url is not None:
        if media.media_type is None:
            media = ModelMedia(media.kind, _guess_media_type(url), url=url)
        if not url.startswith(("gs://", "https://generativelanguage.googleapis.com/")):
            add_translation_note(request.notes, f"a {media.kind} is sent by URL, which not every Gemini model fetches")
    return write_gemini_media(media)


def _guess_media_type(url: str) -> str | None:
    return mimetypes.guess_type(url.partition("?")[0].rpartition("/")[2])[0]


def _write_result(part: ModelToolResult, names: dict[str, str], request: ModelRequest) -> list[dict[str, Any]]:
    name = names.get(part.call_id) or part.name
    if name is None:
        raise UntranslatableRequest(
            f"the result for `{part.call_id}` follows no call with that ID, and Gemini needs the name of the tool"
        )
    text = "\n".join(item.text for item in part.content if isinstance(item, ModelText))
    media = [_write_media_part(item, request) for item in part.content if isinstance(item, ModelMedia)]
    response: dict[str, Any] = {
        "name": to_provider_tool_name(name),
        "response": {"error" if part.is_error else "output": text},
    }
    if media and gemini_generation(request.model) >= 3:
        response["parts"] = media
        media = []
    return [{"functionResponse": response}, *media]


def _write_tools(request: ModelRequest, body: dict[str, Any], schemas: GeminiSchemaWriter) -> None:
    if not request.tools:
        return
    declarations: list[dict[str, Any]] = []
    for tool in request.tools:
        declaration: dict[str, Any] = {"name": to_provider_tool_name(tool.name), "description": tool.description or ""}
        parameters = schemas.write(tool.parameters or {})
        # The API rejects an object without properties, but accepts missing parameters.
        if parameters.get("properties"):
            declaration["parameters"] = {"type": "OBJECT"} | parameters
        declarations.append(declaration)
    body["tools"] = [{"functionDeclarations": declarations}]
    choice = request.tool_choice
    if choice is None:
        return
    calling: dict[str, Any] = {"mode": "ANY" if choice is ToolChoice.NAMED else choice.value.upper()}
    if choice is ToolChoice.NAMED:
        calling["allowedFunctionNames"] = [to_provider_tool_name(request.tool_name or "")]
    body["toolConfig"] = {"functionCallingConfig": calling}


def _write_settings(request: ModelRequest, schemas: GeminiSchemaWriter) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "maxOutputTokens": request.max_tokens,
        "temperature": request.temperature,
        "topP": request.top_p,
        "topK": request.top_k,
        "stopSequences": request.stop[:5] or None,
        "seed": request.seed,
        "thinkingConfig": _write_thinking(request),
    }
    if len(request.stop) > 5:
        request.notes.append("only the first five stop sequences were kept: Gemini takes no more")
    if request.json_schema is not None:
        settings["responseMimeType"] = "application/json"
        settings["responseSchema"] = schemas.write(request.json_schema)
    elif request.json_mode:
        settings["responseMimeType"] = "application/json"
    return {name: value for name, value in settings.items() if value is not None}


def _write_thinking(request: ModelRequest) -> dict[str, Any] | None:
    effort, budget = request.effort, request.thinking_budget
    if effort is None and budget is None:
        return None
    is_pro = "pro" in request.model
    if effort is not None and gemini_generation(request.model) >= 3:
        if effort is ReasoningEffort.NONE or (is_pro and effort is ReasoningEffort.MINIMAL):
            lowest = ReasoningEffort.LOW if is_pro else ReasoningEffort.MINIMAL
            request.notes.append(f"effort `{effort}` became `{lowest}`, the least this model takes")
            effort = lowest
        elif effort in (ReasoningEffort.XHIGH, ReasoningEffort.MAX):
            request.notes.append(f"effort `{effort}` became `high`, the most this model takes")
            effort = ReasoningEffort.HIGH
        return {"thinkingLevel": effort.value, "includeThoughts": True}
    if budget is None:
        assert effort is not None
        budget = _BUDGETS[effort]
    limits = (128, 32_768) if is_pro else (0, 24_576)
    allowed_budget = min(max(budget, limits[0]), limits[1])
    if allowed_budget != budget:
        request.notes.append(f"the thinking budget became {allowed_budget}, the nearest this model takes")
    return {"thinkingBudget": allowed_budget, "includeThoughts": allowed_budget > 0}

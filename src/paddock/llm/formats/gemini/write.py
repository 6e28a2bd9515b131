"""Writes requests to the Gemini API."""

from __future__ import annotations

import mimetypes
from typing import Any

from paddock.llm.formats.base import Untranslatable
from paddock.llm.formats.gemini.parts import generation, write_call, write_media, write_thought
from paddock.llm.formats.gemini.schema import SchemaWriter
from paddock.llm.formats.names import provider_name
from paddock.llm.formats.notes import note
from paddock.llm.formats.seals import GEMINI, own_messages
from paddock.llm.formats.turns import alternating
from paddock.llm.neutral import (
    Effort,
    Media,
    Message,
    Part,
    Request,
    Role,
    Text,
    Thinking,
    ToolCall,
    ToolChoice,
    ToolResult,
)

_BUDGETS = {
    Effort.NONE: 0,
    Effort.MINIMAL: 512,
    Effort.LOW: 1024,
    Effort.MEDIUM: 8192,
    Effort.HIGH: 24_576,
    Effort.XHIGH: 32_768,
    Effort.MAX: 32_768,
}
_UNSIGNED = "skip_thought_signature_validator"
"""What Google documents for calls in a history that another model made; Gemini 3 refuses calls with nothing."""


def write_count_request(request: Request) -> dict[str, Any]:
    body = write_request(request)
    return {"generateContentRequest": {"model": f"models/{request.model.removeprefix('models/')}", **body}}


def write_request(request: Request) -> dict[str, Any]:
    system, turns = alternating(own_messages(request, GEMINI), request.notes)
    body: dict[str, Any] = dict(request.extra.get("gemini") or {})
    if system:
        body["systemInstruction"] = {"parts": [{"text": part.text} for part in system]}
    names = {part.id: part.name for turn in turns for part in turn.parts if isinstance(part, ToolCall)}
    contents = [_content(turn, names, request) for turn in turns]
    body["contents"] = [content for content in contents if content["parts"]]
    if not body["contents"]:
        raise Untranslatable("the Gemini API wants at least one message that is not empty")
    schemas = SchemaWriter()
    _tools(request, body, schemas)
    settings = _settings(request, schemas)
    if settings:
        body["generationConfig"] = settings
    if schemas.dropped:
        note(request.notes, f"schemas lost what Gemini's have no word for: {', '.join(sorted(schemas.dropped))}")
    if request.parallel_tools is False:
        request.notes.append("parallel calls could not be turned off: Gemini has no such setting")
    if request.user is not None:
        request.notes.append("`user` was left out: Gemini has none")
    return body


def _content(turn: Message, names: dict[str, str], request: Request) -> dict[str, Any]:
    parts: list[dict[str, Any]] = []
    source = _sealed(turn.parts, request)
    for part in source:
        if isinstance(part, Text):
            parts.append({"text": part.text})
        elif isinstance(part, Media):
            parts.append(_media(part, request))
        elif isinstance(part, Thinking):
            thought = write_thought(part)
            if thought is not None:
                parts.append(thought)
        elif isinstance(part, ToolCall):
            parts.append(write_call(part, with_id=False))
        elif isinstance(part, ToolResult):
            parts += _result(part, names, request)
    # Results first: the API wants them right after the calls, and before pictures that came with them.
    parts.sort(key=lambda part: "functionResponse" not in part)
    return {"role": "model" if turn.role is Role.ASSISTANT else "user", "parts": parts}


def _sealed(parts: list[Part], request: Request) -> list[Part]:
    """The parts with signatures where Gemini looks for them: on the first call after the thought."""
    sealed: list[Part] = []
    pending: str | None = None
    has_call = False
    for index, part in enumerate(parts):
        following = parts[index + 1] if index + 1 < len(parts) else None
        if isinstance(part, Thinking) and part.signature and isinstance(following, ToolCall):
            if not following.signature:
                pending = part.signature
                part = Thinking(part.text)
        elif isinstance(part, ToolCall):
            signature = part.signature or pending
            if signature is None and not has_call and generation(request.model) >= 3:
                signature = _UNSIGNED
            part = ToolCall(part.id, provider_name(part.name), part.arguments, signature)
            pending, has_call = None, True
        sealed.append(part)
    return sealed


def _media(media: Media, request: Request) -> dict[str, Any]:
    url = media.url
    if media.data is None and url is not None:
        if media.media_type is None:
            media = Media(media.kind, _guessed(url), url=url)
        if not url.startswith(("gs://", "https://generativelanguage.googleapis.com/")):
            note(request.notes, f"a {media.kind} is sent by its address, which not every Gemini fetches")
    return write_media(media)


def _guessed(url: str) -> str | None:
    return mimetypes.guess_type(url.partition("?")[0].rpartition("/")[2])[0]


def _result(part: ToolResult, names: dict[str, str], request: Request) -> list[dict[str, Any]]:
    name = names.get(part.call_id) or part.name
    if name is None:
        raise Untranslatable(f"the result for `{part.call_id}` follows no call of that id, and Gemini goes by name")
    text = "\n".join(item.text for item in part.content if isinstance(item, Text))
    media = [_media(item, request) for item in part.content if isinstance(item, Media)]
    response: dict[str, Any] = {"name": provider_name(name), "response": {"error" if part.is_error else "output": text}}
    if media and generation(request.model) >= 3:
        response["parts"] = media
        media = []
    return [{"functionResponse": response}, *media]


def _tools(request: Request, body: dict[str, Any], schemas: SchemaWriter) -> None:
    if not request.tools:
        return
    declarations: list[dict[str, Any]] = []
    for tool in request.tools:
        declaration: dict[str, Any] = {"name": provider_name(tool.name), "description": tool.description or ""}
        parameters = schemas.write(tool.parameters or {})
        # An object without properties is refused; no parameters at all are not.
        if parameters.get("properties"):
            declaration["parameters"] = {"type": "OBJECT"} | parameters
        declarations.append(declaration)
    body["tools"] = [{"functionDeclarations": declarations}]
    choice = request.tool_choice
    if choice is None:
        return
    calling: dict[str, Any] = {"mode": "ANY" if choice is ToolChoice.NAMED else choice.value.upper()}
    if choice is ToolChoice.NAMED:
        calling["allowedFunctionNames"] = [provider_name(request.tool_name or "")]
    body["toolConfig"] = {"functionCallingConfig": calling}


def _settings(request: Request, schemas: SchemaWriter) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "maxOutputTokens": request.max_tokens,
        "temperature": request.temperature,
        "topP": request.top_p,
        "topK": request.top_k,
        "stopSequences": request.stop[:5] or None,
        "seed": request.seed,
        "thinkingConfig": _thinking(request),
    }
    if len(request.stop) > 5:
        request.notes.append("only the first five stop sequences were kept: Gemini takes no more")
    if request.json_schema is not None:
        settings["responseMimeType"] = "application/json"
        settings["responseSchema"] = schemas.write(request.json_schema)
    elif request.json_mode:
        settings["responseMimeType"] = "application/json"
    return {name: value for name, value in settings.items() if value is not None}


def _thinking(request: Request) -> dict[str, Any] | None:
    effort, budget = request.effort, request.thinking_budget
    if effort is None and budget is None:
        return None
    is_pro = "pro" in request.model
    if effort is not None and generation(request.model) >= 3:
        if effort is Effort.NONE or (is_pro and effort is Effort.MINIMAL):
            lowest = Effort.LOW if is_pro else Effort.MINIMAL
            request.notes.append(f"effort `{effort}` became `{lowest}`, the least this model takes")
            effort = lowest
        elif effort in (Effort.XHIGH, Effort.MAX):
            request.notes.append(f"effort `{effort}` became `high`, the most this model takes")
            effort = Effort.HIGH
        return {"thinkingLevel": effort.value, "includeThoughts": True}
    if budget is None:
        assert effort is not None
        budget = _BUDGETS[effort]
    limits = (128, 32_768) if is_pro else (0, 24_576)
    kept = min(max(budget, limits[0]), limits[1])
    if kept != budget:
        request.notes.append(f"the thinking budget became {kept}, the nearest this model takes")
    return {"thinkingBudget": kept, "includeThoughts": kept > 0}

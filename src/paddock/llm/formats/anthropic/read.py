"""Reads requests to Anthropic's Messages API."""

from __future__ import annotations

import base64

from paddock.llm.formats.anthropic.client_tools import client_tool
from paddock.llm.formats.base import Untranslatable
from paddock.llm.formats.fields import Fields, request_fields
from paddock.llm.formats.notes import note
from paddock.llm.formats.seals import ANTHROPIC, thought
from paddock.llm.formats.turns import arguments_text
from paddock.llm.neutral import (
    Effort,
    Media,
    Message,
    Part,
    Request,
    Role,
    Signature,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolChoice,
    ToolResult,
)

_KNOWN = {
    "model", "messages", "system", "stream", "tools", "tool_choice", "max_tokens", "temperature", "top_p", "top_k",
    "stop_sequences", "thinking", "output_config", "output_format", "metadata", "cache_control",
}  # fmt: skip
_ROLES = frozenset(Role)
_CHOICES = {
    "auto": ToolChoice.AUTO,
    "any": ToolChoice.ANY,
    "tool": ToolChoice.NAMED,
    "none": ToolChoice.NONE,
}


def read_request(body: bytes, *, model: str | None = None, stream: bool | None = None) -> Request:
    fields = request_fields(body)
    request = Request(
        model=model or fields.text("model"),
        messages=[],
        stream=bool(fields.flag_or("stream")) if stream is None else stream,
        max_tokens=fields.integer_or("max_tokens"),
        temperature=fields.number_or("temperature"),
        top_p=fields.number_or("top_p"),
        top_k=fields.integer_or("top_k"),
        stop=list(fields.texts("stop_sequences")),
    )
    if "system" in fields:
        parts = _content(fields, "system", request)
        if parts:
            request.messages.append(Message(Role.SYSTEM, parts))
    if not fields.items("messages"):
        raise fields.error("should have at least one message", "messages")
    request.messages += [_message(message, request) for message in fields.objects("messages")]
    _tools(fields, request)
    _thinking(fields, request)
    metadata = fields.object_or("metadata")
    if metadata is not None:
        request.user = metadata.text_or("user_id")
    others = {name: value for name, value in fields.value.items() if name not in _KNOWN and value is not None}
    if others:
        request.extra["anthropic"] = others
        for name in sorted(others):
            note(request.notes, f"`{name}` means something only to Anthropic's API")
    return request


def _message(fields: Fields, request: Request) -> Message:
    role = fields.text("role")
    if role not in _ROLES:
        raise fields.error("should be user, assistant or system", "role")
    fields.need("content")
    return Message(Role(role), _content(fields, "content", request))


def _content(fields: Fields, name: str, request: Request) -> list[Part]:
    if isinstance(fields.get(name), str):
        return [Text(fields.text(name))]
    parts: list[Part] = []
    for block in fields.objects(name):
        parts += read_block(block, request.notes)
    return parts


def read_block(block: Fields, notes: list[str]) -> list[Part]:
    """The parts that a content block of a request or answer amounts to; none, with a note, when it is unknown."""
    kind = block.text("type")
    cached = "cache_control" in block
    if kind == "thinking":
        return [thought(block.text_or("thinking") or "", block.text_or("signature"), ANTHROPIC)]
    if kind == "redacted_thinking":
        return [Thinking(redacted=Signature(block.text("data"), ANTHROPIC))]
    if kind == "tool_use":
        return [
            ToolCall(block.text("id"), block.text("name"), arguments_text(block.get("input")) or "{}", cached=cached)
        ]
    if kind == "tool_result":
        return [_tool_result(block, cached, notes)]
    return [*_plain_block(block, kind, cached, notes)]


def _plain_block(block: Fields, kind: str, cached: bool, notes: list[str]) -> list[Text | Media]:
    if kind == "text":
        return [Text(block.text("text"), cached)]
    if kind == "image":
        return [_media(block, "image", cached)]
    if kind == "document":
        source = block.object("source")
        if source.get("type") == "content":
            return _texts(source, "content", notes)
        return [_media(block, "document", cached)]
    if kind == "search_result":
        head = f"{block.text_or('title') or ''}\n{block.text_or('source') or ''}".strip()
        return [Text(head), *_texts(block, "content", notes)]
    if kind == "tool_reference":
        return [Text(block.text("tool_name"))]
    if kind == "compaction":
        return [Text(block.text_or("content") or "")]
    note(notes, f"blocks of type `{kind}` were left out: only Anthropic's API knows them")
    return []


def _texts(fields: Fields, name: str, notes: list[str]) -> list[Text | Media]:
    value = fields.get(name)
    if isinstance(value, str):
        return [Text(value)]
    parts: list[Text | Media] = []
    for block in fields.objects(name):
        parts += _plain_block(block, block.text("type"), "cache_control" in block, notes)
    return parts


def _tool_result(block: Fields, cached: bool, notes: list[str]) -> ToolResult:
    return ToolResult(
        call_id=block.text("tool_use_id"),
        content=_texts(block, "content", notes),
        is_error=bool(block.flag_or("is_error")),
        cached=cached,
    )


def _media(block: Fields, kind: str, cached: bool) -> Media:
    source = block.object("source")
    form = source.text("type")
    media = Media("image" if kind == "image" else "document", name=block.text_or("title"), cached=cached)
    if form == "base64":
        media.media_type = source.text("media_type")
        media.data = source.text("data")
    elif form == "text":
        media.media_type = source.text_or("media_type") or "text/plain"
        media.data = base64.b64encode(source.text("data").encode(errors="replace")).decode()
    elif form == "url":
        media.url = source.text("url")
    else:
        raise Untranslatable(
            f"{source.path} is of type `{form}`, which only Anthropic's API can look up; send it as base64 or url"
        )
    return media


def _tools(fields: Fields, request: Request) -> None:
    served: set[str] = set()
    for tool in fields.objects("tools"):
        kind = tool.text_or("type") or "custom"
        if kind != "custom" and (known := client_tool(tool)) is not None:
            request.tools.append(known)
            continue
        if kind != "custom":
            served.add(tool.text_or("name") or kind)
            note(request.notes, f"the tool `{kind}` was left out: only Anthropic's API has it")
            continue
        request.tools.append(
            Tool(
                name=tool.text("name"),
                description=tool.text_or("description"),
                parameters=tool.mapping_or("input_schema"),
                strict=tool.flag_or("strict"),
                cached="cache_control" in tool,
            )
        )
    choice = fields.object_or("tool_choice")
    if choice is None:
        return
    kind = choice.text("type")
    if kind not in _CHOICES:
        raise choice.error("should be auto, any, tool or none", "type")
    request.tool_choice = _CHOICES[kind]
    if "disable_parallel_tool_use" in choice:
        request.parallel_tools = not choice.flag("disable_parallel_tool_use")
    if request.tool_choice is ToolChoice.NAMED:
        request.tool_name = choice.text("name")
        if request.tool_name in served:
            raise Untranslatable(f"tool_choice forces `{request.tool_name}`, a tool that only Anthropic's API has")
    elif served and not request.tools:
        if request.tool_choice is ToolChoice.ANY:
            raise Untranslatable("tool_choice forces a tool, and all tools are ones that only Anthropic's API has")
        request.tool_choice = None


def _thinking(fields: Fields, request: Request) -> None:
    output = fields.object_or("output_config") or Fields({})
    effort = output.text_or("effort")
    if effort is not None:
        if effort not in list(Effort):
            note(request.notes, f"effort `{effort}` was taken as `high`")
        request.effort = Effort(effort) if effort in list(Effort) else Effort.HIGH
    thinking = fields.object_or("thinking")
    if thinking is not None:
        kind = thinking.text("type")
        if kind == "enabled":
            request.thinking_budget = thinking.integer("budget_tokens")
        elif kind == "disabled":
            request.effort = Effort.NONE
        elif kind == "adaptive":
            # Anthropic documents `high` as what adaptive thinking does when no effort is named.
            request.effort = request.effort or Effort.HIGH
        else:
            note(request.notes, f"thinking of type `{kind}` was taken as `adaptive`")
            request.effort = request.effort or Effort.HIGH
    form = output.object_or("format") or fields.object_or("output_format")
    if form is not None and form.text("type") == "json_schema":
        request.json_schema = form.mapping("schema")

"""Parse requests of Anthropic's Messages API."""

from __future__ import annotations

import base64

from paddock.llm.formats.anthropic.client_tools import anthropic_client_tool_as_function
from paddock.llm.formats.base import UntranslatableRequest
from paddock.llm.formats.call_arguments import call_arguments_text
from paddock.llm.formats.json_fields import JsonFields, parse_request_body
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
    ProviderSignature,
    ReasoningEffort,
    ToolChoice,
    ToolDefinition,
)
from paddock.llm.formats.thought_signatures import ANTHROPIC_FAMILY, parse_signed_thought
from paddock.llm.formats.translation_notes import add_translation_note

_KNOWN_FIELDS = {
    "model", "messages", "system", "stream", "tools", "tool_choice", "max_tokens", "temperature", "top_p", "top_k",
    "stop_sequences", "thinking", "output_config", "output_format", "metadata", "cache_control",
}  # fmt: skip
_ROLES = frozenset(MessageRole)
_TOOL_CHOICES = {
    "auto": ToolChoice.AUTO,
    "any": ToolChoice.ANY,
    "tool": ToolChoice.NAMED,
    "none": ToolChoice.NONE,
}


def read_anthropic_request(body: bytes, *, model: str | None = None, stream: bool | None = None) -> ModelRequest:
    fields = parse_request_body(body)
    request = ModelRequest(
        model=model or fields.text("model"),
        messages=[],
        stream=bool(fields.optional_boolean("stream")) if stream is None else stream,
        max_tokens=fields.optional_integer("max_tokens"),
        temperature=fields.optional_number("temperature"),
        top_p=fields.optional_number("top_p"),
        top_k=fields.optional_integer("top_k"),
        stop=list(fields.texts("stop_sequences")),
    )
    if "system" in fields:
        parts = _read_content(fields, "system", request)
        if parts:
            request.messages.append(ModelMessage(MessageRole.SYSTEM, parts))
    if not fields.items("messages"):
        raise fields.error("should have at least one message", "messages")
    request.messages += [_read_message(message, request) for message in fields.objects("messages")]
    _read_tools(fields, request)
    _read_thinking(fields, request)
    metadata = fields.optional_object("metadata")
    if metadata is not None:
        request.user = metadata.optional_text("user_id")
    other_fields = {
        name: value for name, value in fields.value.items() if name not in _KNOWN_FIELDS and value is not None
    }
    if other_fields:
        request.extra["anthropic"] = other_fields
        for name in sorted(other_fields):
            add_translation_note(request.notes, f"`{name}` is supported only by Anthropic's API")
    return request


def _read_message(fields: JsonFields, request: ModelRequest) -> ModelMessage:
    role = fields.text("role")
    if role not in _ROLES:
        raise fields.error("should be user, assistant or system", "role")
    fields.required("content")
    return ModelMessage(MessageRole(role), _read_content(fields, "content", request))


def _read_content(fields: JsonFields, name: str, request: ModelRequest) -> list[MessagePart]:
    if isinstance(fields.get(name), str):
        return [ModelText(fields.text(name))]
    parts: list[MessagePart] = []
    for block in fields.objects(name):
        parts += read_anthropic_content_block(block, request.notes)
    return parts


def read_anthropic_content_block(block: JsonFields, notes: list[str]) -> list[MessagePart]:
    """Convert a content block of a request or answer to parts; none, with a note, if its type is unknown."""
    kind = block.text("type")
    cached = "cache_control" in block
    if kind == "thinking":
        return [
            parse_signed_thought(
                block.optional_text("thinking") or "", block.optional_text("signature"), ANTHROPIC_FAMILY
            )
        ]
    if kind == "redacted_thinking":
        return [ModelThinking(redacted=ProviderSignature(block.text("data"), ANTHROPIC_FAMILY))]
    if kind == "tool_use":
        return [
            ModelToolCall(
                block.text("id"), block.text("name"), call_arguments_text(block.get("input")) or "{}", cached=cached
            )
        ]
    if kind == "tool_result":
        return [_read_tool_result(block, cached, notes)]
    return [*_read_text_or_media_block(block, kind, cached, notes)]


def _read_text_or_media_block(
    block: JsonFields, kind: str, cached: bool, notes: list[str]
) -> list[ModelText | ModelMedia]:
    if kind == "text":
        return [ModelText(block.text("text"), cached)]
    if kind == "image":
        return [_read_media(block, "image", cached)]
    if kind == "document":
        source = block.object("source")
        if source.get("type") == "content":
            return _read_nested_content(source, "content", notes)
        return [_read_media(block, "document", cached)]
    if kind == "search_result":
        head = f"{block.optional_text('title') or ''}\n{block.optional_text('source') or ''}".strip()
        return [ModelText(head), *_read_nested_content(block, "content", notes)]
    if kind == "tool_reference":
        return [ModelText(block.text("tool_name"))]
    if kind == "compaction":
        return [ModelText(block.optional_text("content") or "")]
    add_translation_note(notes, f"blocks of type `{kind}` were left out: only Anthropic's API supports them")
    return []


def _read_nested_content(fields: JsonFields, name: str, notes: list[str]) -> list[ModelText | ModelMedia]:
    value = fields.get(name)
    if isinstance(value, str):
        return [ModelText(value)]
    parts: list[ModelText | ModelMedia] = []
    for block in fields.objects(name):
        parts += _read_text_or_media_block(block, block.text("type"), "cache_control" in block, notes)
    return parts


def _read_tool_result(block: JsonFields, cached: bool, notes: list[str]) -> ModelToolResult:
    return ModelToolResult(
        call_id=block.text("tool_use_id"),
        content=_read_nested_content(block, "content", notes),
        is_error=bool(block.optional_boolean("is_error")),
        cached=cached,
    )


def _read_media(block: JsonFields, kind: str, cached: bool) -> ModelMedia:
    source = block.object("source")
    form = source.text("type")
    media = ModelMedia("image" if kind == "image" else "document", name=block.optional_text("title"), cached=cached)
    if form == "base64":
        media.media_type = source.text("media_type")
        media.data = source.text("data")
    elif form == "text":
        media.media_type = source.optional_text("media_type") or "text/plain"
        media.data = base64.b64encode(source.text("data").encode(errors="replace")).decode()
    elif form == "url":
        media.url = source.text("url")
    else:
        raise UntranslatableRequest(
            f"{source.path} is of type `{form}`, which only Anthropic's API can look up; send it as base64 or url"
        )
    return media


def _read_tools(fields: JsonFields, request: ModelRequest) -> None:
    served: set[str] = set()
    for tool in fields.objects("tools"):
        kind = tool.optional_text("type") or "custom"
        if kind != "custom" and (known := anthropic_client_tool_as_function(tool)) is not None:
            request.tools.append(known)
            continue
        if kind != "custom":
            served.add(tool.optional_text("name") or kind)
            request.hosted_tools.append(kind)
            add_translation_note(request.notes, f"the tool `{kind}` was left out: only Anthropic's API has it")
            continue
        request.tools.append(
            ToolDefinition(
                name=tool.text("name"),
                description=tool.optional_text("description"),
                parameters=tool.optional_mapping("input_schema"),
                strict=tool.optional_boolean("strict"),
                cached="cache_control" in tool,
            )
        )
    choice = fields.optional_object("tool_choice")
    if choice is None:
        return
    kind = choice.text("type")
    if kind not in _TOOL_CHOICES:
        raise choice.error("should be auto, any, tool or none", "type")
    request.tool_choice = _TOOL_CHOICES[kind]
    if "disable_parallel_tool_use" in choice:
        request.parallel_tools = not choice.boolean("disable_parallel_tool_use")
    if request.tool_choice is ToolChoice.NAMED:
        request.tool_name = choice.text("name")
        if request.tool_name in served:
            raise UntranslatableRequest(
                f"tool_choice forces `{request.tool_name}`, a tool that only Anthropic's API has"
            )
    elif served and not request.tools:
        if request.tool_choice is ToolChoice.ANY:
            raise UntranslatableRequest(
                "tool_choice forces a tool, and all tools are ones that only Anthropic's API has"
            )
        request.tool_choice = None


def _read_thinking(fields: JsonFields, request: ModelRequest) -> None:
    output = fields.optional_object("output_config") or JsonFields({})
    effort = output.optional_text("effort")
    if effort is not None:
        if effort not in list(ReasoningEffort):
            add_translation_note(request.notes, f"effort `{effort}` was taken as `high`")
        request.effort = ReasoningEffort(effort) if effort in list(ReasoningEffort) else ReasoningEffort.HIGH
    thinking = fields.optional_object("thinking")
    if thinking is not None:
        kind = thinking.text("type")
        if kind == "enabled":
            request.thinking_budget = thinking.integer("budget_tokens")
        elif kind == "disabled":
            request.effort = ReasoningEffort.NONE
        elif kind == "adaptive":
            # Anthropic documents `high` as what adaptive thinking does when no effort is named.
            request.effort = request.effort or ReasoningEffort.HIGH
        else:
            add_translation_note(request.notes, f"thinking of type `{kind}` was taken as `adaptive`")
            request.effort = request.effort or ReasoningEffort.HIGH
    form = output.optional_object("format") or fields.optional_object("output_format")
    if form is not None and form.text("type") == "json_schema":
        request.json_schema = form.mapping("schema")

"""Write requests to Anthropic's Messages API."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import replace
from typing import Any

from paddock.llm.formats.alternating_turns import to_alternating_turns
from paddock.llm.formats.base import UntranslatableRequest
from paddock.llm.formats.call_arguments import parse_call_arguments
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
    ToolDefinition,
)
from paddock.llm.formats.thought_signatures import ANTHROPIC_FAMILY, drop_foreign_signatures
from paddock.llm.formats.tool_names import to_provider_tool_name
from paddock.llm.formats.translation_notes import add_translation_note

_COUNT_REQUEST_FIELDS = {"model", "messages", "system", "tools", "tool_choice", "thinking", "output_config"}
_CACHE_MARK = {"type": "ephemeral"}
_BUDGETS = {
    ReasoningEffort.MINIMAL: 1024,
    ReasoningEffort.LOW: 4096,
    ReasoningEffort.MEDIUM: 10_000,
    ReasoningEffort.HIGH: 24_000,
    ReasoningEffort.XHIGH: 31_000,
    ReasoningEffort.MAX: 60_000,
}
_LITERAL_KEYWORDS = {"enum", "const", "default", "examples", "required"}
_MAX_DEPTH = 64
_MIN_BUDGET = 1024
_DEFAULT_MAX_TOKENS = 32_000
"""Answer limit that every model since Claude 4 supports; the API requires a value."""


def write_anthropic_token_count_request(request: ModelRequest) -> dict[str, Any]:
    """Write a token-counting request: the conversation without the fields that only affect the answer."""
    body = write_anthropic_request(replace(request, max_tokens=request.max_tokens or _DEFAULT_MAX_TOKENS))
    return {name: value for name, value in body.items() if name in _COUNT_REQUEST_FIELDS}


def write_anthropic_request(request: ModelRequest) -> dict[str, Any]:
    system, turns = to_alternating_turns(drop_foreign_signatures(request, ANTHROPIC_FAMILY), request.notes)
    body: dict[str, Any] = dict(request.extra.get("anthropic") or {})
    body["model"] = request.model
    body["max_tokens"] = _max_tokens(request)
    if request.json_schema is not None and not _supports_json_schema(request.model):
        request.notes.append("the JSON schema was added to the system prompt: this model has no field for it")
        schema = json.dumps(request.json_schema, ensure_ascii=False)
        system.append(ModelText(f"Answer with nothing but JSON that is valid under this JSON Schema:\n{schema}"))
    if system:
        plain = len(system) == 1 and not system[0].cached
        body["system"] = system[0].text if plain else [_write_text(part) for part in system]
    body["messages"] = [written for turn in turns if (written := _write_message(turn, request.notes))["content"]]
    if not body["messages"]:
        raise UntranslatableRequest("Anthropic's API needs at least one message that is not empty")
    if request.stream:
        body["stream"] = True
    _write_tools(request, body)
    _write_thinking(request, turns, body)
    _write_sampling(request, body)
    if request.stop:
        stop_sequences = [stop for stop in request.stop if stop.strip()]
        if len(stop_sequences) < len(request.stop):
            request.notes.append("stop sequences of only whitespace were left out")
        if stop_sequences:
            body["stop_sequences"] = stop_sequences
    if request.json_schema is not None and _supports_json_schema(request.model):
        body.setdefault("output_config", {})["format"] = {
            "type": "json_schema",
            "schema": forbid_additional_properties(request.json_schema),
        }
    if request.json_mode and request.json_schema is None:
        request.notes.append("JSON mode was left out: Anthropic's API has none without a schema")
    if request.seed is not None:
        request.notes.append("`seed` was left out: Anthropic's API has none")
    if request.user is not None:
        body["metadata"] = {"user_id": request.user}
    return body


def _write_message(turn: ModelMessage, notes: list[str]) -> dict[str, Any]:
    blocks = [block for part in turn.parts if (block := _write_block(part, notes)) is not None]
    role = "assistant" if turn.role is MessageRole.ASSISTANT else "user"
    return {"role": role, "content": blocks}


def _write_block(part: MessagePart, notes: list[str]) -> dict[str, Any] | None:
    if isinstance(part, ModelText):
        # The API rejects texts of only whitespace.
        return _write_text(part) if part.text.strip() else None
    if isinstance(part, ModelMedia):
        return _write_media(part)
    if isinstance(part, ModelThinking):
        if part.redacted is not None:
            return {"type": "redacted_thinking", "data": part.redacted}
        if part.signature is None:
            add_translation_note(notes, "thinking without a signature was left out: Anthropic's API would refuse it")
            return None
        return {"type": "thinking", "thinking": part.text, "signature": part.signature}
    if isinstance(part, ModelToolCall):
        block: dict[str, Any] = {
            "type": "tool_use",
            "id": _valid_call_id(part.id),
            "name": to_provider_tool_name(part.name),
        }
        block["input"] = parse_call_arguments(part.arguments)
        return _with_cache_mark(block, part.cached)
    if isinstance(part, ModelToolResult):
        return _write_tool_result(part)
    return None


def _write_text(part: ModelText) -> dict[str, Any]:
    return _with_cache_mark({"type": "text", "text": part.text}, part.cached)


def _with_cache_mark(block: dict[str, Any], cached: bool) -> dict[str, Any]:
    return block | {"cache_control": _CACHE_MARK} if cached else block


def _valid_call_id(call_id: str) -> str:
    """Replace characters that Anthropic's API rejects in call IDs; some models generate them."""
    return re.sub(r"[^a-zA-Z0-9_-]", "_", call_id) or "_"


def _write_tool_result(part: ModelToolResult) -> dict[str, Any]:
    block: dict[str, Any] = {"type": "tool_result", "tool_use_id": _valid_call_id(part.call_id)}
    content = [item for item in part.content if not isinstance(item, ModelText) or item.text]
    if content:
        block["content"] = [
            _write_text(item) if isinstance(item, ModelText) else _write_media(item) for item in content
        ]
    if part.is_error:
        block["is_error"] = True
    return _with_cache_mark(block, part.cached)


def _write_media(part: ModelMedia) -> dict[str, Any]:
    if part.kind == "audio":
        raise UntranslatableRequest("Anthropic's API does not accept audio")
    source: dict[str, Any]
    if part.url is not None:
        source = {"type": "url", "url": part.url}
    elif part.data is None:
        raise UntranslatableRequest(f"a {part.kind} has neither data nor a URL")
    elif part.kind == "document" and (part.media_type or "").startswith("text/"):
        source = {"type": "text", "media_type": "text/plain", "data": _decode_text(part.data)}
    elif part.kind == "document" and part.media_type not in (None, "application/pdf"):
        raise UntranslatableRequest(f"Anthropic's API takes PDF and text, not {part.media_type}")
    else:
        default = "image/png" if part.kind == "image" else "application/pdf"
        source = {"type": "base64", "media_type": part.media_type or default, "data": part.data}
    block: dict[str, Any] = {"type": part.kind, "source": source}
    if part.kind == "document" and part.name:
        block["title"] = part.name
    return _with_cache_mark(block, part.cached)


def _decode_text(data: str) -> str:
    try:
        return base64.b64decode(data).decode(errors="replace")
    except ValueError as error:
        raise UntranslatableRequest("a document's data is not base64") from error


def _write_tools(request: ModelRequest, body: dict[str, Any]) -> None:
    if not request.tools:
        return
    body["tools"] = [_write_tool(tool) for tool in request.tools]
    choice = request.tool_choice
    written: dict[str, Any] | None = None
    if choice is ToolChoice.NAMED:
        written = {"type": "tool", "name": to_provider_tool_name(request.tool_name or "")}
    elif choice is not None:
        written = {"type": choice.value}
    elif request.parallel_tools is False:
        written = {"type": "auto"}
    if written is not None:
        if request.parallel_tools is False and choice is not ToolChoice.NONE:
            written["disable_parallel_tool_use"] = True
        body["tool_choice"] = written


def _write_tool(tool: ToolDefinition) -> dict[str, Any]:
    written: dict[str, Any] = {"name": to_provider_tool_name(tool.name)}
    if tool.description:
        written["description"] = tool.description
    written["input_schema"] = {"type": "object", "properties": {}, **(tool.parameters or {})}
    if tool.strict:
        written["strict"] = True
        written["input_schema"] = forbid_additional_properties(written["input_schema"])
    return _with_cache_mark(written, tool.cached)


def forbid_additional_properties(schema: Any, depth: int = 0) -> Any:
    """Add `additionalProperties: false` to every object of a schema, as Anthropic's API requires."""
    if depth > _MAX_DEPTH:
        return schema
    if isinstance(schema, list):
        return [forbid_additional_properties(inner, depth + 1) for inner in schema]
    if not isinstance(schema, dict):
        return schema
    written = {
        name: forbid_additional_properties(inner, depth + 1) if name not in _LITERAL_KEYWORDS else inner
        for name, inner in schema.items()
    }
    if schema.get("type") == "object" and "additionalProperties" not in schema:
        written["additionalProperties"] = False
    return written


def _claude_version(model: str) -> tuple[int, int] | None:
    """Return the Claude version: (4, 6) for `claude-opus-4-6`, None for models that are not Claude."""
    match = re.search(r"claude-(?:[a-z]+-)?(\d{1,2})(?:[-.](\d{1,2}))?(?!\d)", model)
    return (int(match[1]), int(match[2] or 0)) if match else None


def _has_adaptive_thinking(model: str) -> bool:
    """Return whether the model decides itself how long to think and rejects a budget."""
    version = _claude_version(model)
    return version is not None and version >= (4, 6)


def _refuses_sampling(model: str) -> bool:
    """Return whether the model rejects sampling settings and any thinking mode but `adaptive`."""
    version = _claude_version(model)
    return version is not None and version >= (4, 7)


def _supports_json_schema(model: str) -> bool:
    version = _claude_version(model)
    return version is None or version >= (4, 5)


def _max_answer_tokens(model: str) -> int | None:
    """Return the maximum answer length of the model, or `None` if unknown."""
    version = _claude_version(model)
    if version is None:
        return None
    if version < (3, 7):
        return 4096 if version < (3, 5) else 8192
    return 32_000 if "opus" in model and version < (4, 5) else None


def _max_tokens(request: ModelRequest) -> int:
    most = _max_answer_tokens(request.model)
    if request.max_tokens is None:
        tokens = min(_DEFAULT_MAX_TOKENS, most or _DEFAULT_MAX_TOKENS)
        request.notes.append(f"`max_tokens` was set to {tokens}: Anthropic's API needs a number")
        return tokens
    if most is not None and request.max_tokens > most:
        request.notes.append(f"`max_tokens` became {most}, the most this model takes")
        return most
    return max(1, request.max_tokens)


def _write_thinking(request: ModelRequest, turns: list[ModelMessage], body: dict[str, Any]) -> None:
    effort, budget = request.effort, request.thinking_budget
    if effort is ReasoningEffort.NONE or budget == 0:
        if _refuses_sampling(request.model):
            request.notes.append("thinking was not disabled explicitly: this model thinks only on request")
        else:
            body["thinking"] = {"type": "disabled"}
        return
    if effort is None and budget is None:
        return
    if request.tool_choice in (ToolChoice.ANY, ToolChoice.NAMED):
        request.notes.append("thinking was left out: Anthropic's API refuses it together with a forced tool")
        return
    if _has_adaptive_thinking(request.model):
        if effort is None:
            most = budget or 0
            effort = next((level for level, tokens in _BUDGETS.items() if most <= tokens), ReasoningEffort.HIGH)
            request.notes.append(f"a thinking budget of {budget} became the effort `{effort}`")
        body["thinking"] = {"type": "adaptive"}
        body.setdefault("output_config", {})["effort"] = _supported_effort(effort, request).value
        return
    if _lacks_signed_thought(turns):
        request.notes.append("thinking was left out: the calls being answered came without a signed thought")
        return
    if budget is None:
        assert effort is not None
        budget = _BUDGETS[effort]
    wanted, budget = budget, min(max(budget, _MIN_BUDGET), body["max_tokens"] - 1)
    if budget < _MIN_BUDGET:
        request.notes.append("thinking was left out: max_tokens leaves no room for it")
        return
    if budget != wanted:
        request.notes.append(f"the thinking budget became {budget}, to be at least 1024 and less than max_tokens")
    body["thinking"] = {"type": "enabled", "budget_tokens": budget}


def _supported_effort(effort: ReasoningEffort, request: ModelRequest) -> ReasoningEffort:
    written = ReasoningEffort.LOW if effort is ReasoningEffort.MINIMAL else effort
    takes_max = "opus" in request.model
    if not _refuses_sampling(request.model) and (
        effort is ReasoningEffort.XHIGH or (effort is ReasoningEffort.MAX and not takes_max)
    ):
        written = ReasoningEffort.HIGH
    if written is not effort:
        request.notes.append(f"effort `{effort}` became `{written}`, the nearest this model takes")
    return written


def _lacks_signed_thought(turns: list[ModelMessage]) -> bool:
    """Return whether the last turn answers calls without a signed thought; budgeted thinking rejects it."""
    if len(turns) < 2 or not any(isinstance(part, ModelToolResult) for part in turns[-1].parts):
        return False
    first = turns[-2].parts[0]
    return not (isinstance(first, ModelThinking) and (first.signature or first.redacted))


def _write_sampling(request: ModelRequest, body: dict[str, Any]) -> None:
    is_thinking = body.get("thinking", {}).get("type") in ("enabled", "adaptive")
    temperature, top_p, top_k = request.temperature, request.top_p, request.top_k
    if _refuses_sampling(request.model):
        if (temperature, top_p, top_k) != (None, None, None):
            request.notes.append("`temperature`, `top_p` and `top_k` were left out: this model refuses them")
        return
    if is_thinking and (top_k is not None or temperature not in (None, 1)):
        request.notes.append("`temperature` and `top_k` were left out: Anthropic's API refuses them with thinking")
        temperature = top_k = None
    if is_thinking and top_p is not None and top_p < 0.95:
        request.notes.append("`top_p` was left out: with thinking Anthropic's API takes only 0.95 and more")
        top_p = None
    if temperature is not None and temperature > 1:
        request.notes.append(f"temperature {temperature} became 1, the most Anthropic's API takes")
        temperature = 1
    if temperature is not None and top_p is not None and (_claude_version(request.model) or (0, 0)) >= (4, 1):
        request.notes.append("`top_p` was left out: this model takes either it or `temperature`")
        top_p = None
    for name, value in (("temperature", temperature), ("top_p", top_p), ("top_k", top_k)):
        if value is not None:
            body[name] = value

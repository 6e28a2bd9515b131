"""Writes requests to Anthropic's Messages API."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import replace
from typing import Any

from paddock.llm.formats.base import Untranslatable
from paddock.llm.formats.names import provider_name
from paddock.llm.formats.notes import note
from paddock.llm.formats.seals import ANTHROPIC, own_messages
from paddock.llm.formats.turns import alternating, arguments_object
from paddock.llm.neutral import (
    Effort,
    Media,
    Message,
    Part,
    Request,
    Role,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolChoice,
    ToolResult,
)

_COUNTED = {"model", "messages", "system", "tools", "tool_choice", "thinking", "output_config"}
_MARK = {"type": "ephemeral"}
_BUDGETS = {
    Effort.MINIMAL: 1024,
    Effort.LOW: 4096,
    Effort.MEDIUM: 10_000,
    Effort.HIGH: 24_000,
    Effort.XHIGH: 31_000,
    Effort.MAX: 60_000,
}
_LITERAL = {"enum", "const", "default", "examples", "required"}
_DEEPEST = 64
_SMALLEST_BUDGET = 1024
_DEFAULT_TOKENS = 32_000
"""The most that every model since Claude 4 may answer; leaving it out is an error there."""


def write_count_request(request: Request) -> dict[str, Any]:
    """The same conversation without what only matters to its answer, which this question refuses."""
    body = write_request(replace(request, max_tokens=request.max_tokens or _DEFAULT_TOKENS))
    return {name: value for name, value in body.items() if name in _COUNTED}


def write_request(request: Request) -> dict[str, Any]:
    system, turns = alternating(own_messages(request, ANTHROPIC), request.notes)
    body: dict[str, Any] = dict(request.extra.get("anthropic") or {})
    body["model"] = request.model
    body["max_tokens"] = _max_tokens(request)
    if request.json_schema is not None and not _has_schemas(request.model):
        request.notes.append("the JSON schema is asked for in words: this model has no field for it")
        schema = json.dumps(request.json_schema, ensure_ascii=False)
        system.append(Text(f"Answer with nothing but JSON that is valid under this JSON Schema:\n{schema}"))
    if system:
        plain = len(system) == 1 and not system[0].cached
        body["system"] = system[0].text if plain else [_text(part) for part in system]
    body["messages"] = [written for turn in turns if (written := _message(turn, request.notes))["content"]]
    if not body["messages"]:
        raise Untranslatable("Anthropic's API wants at least one message that is not empty")
    if request.stream:
        body["stream"] = True
    _tools(request, body)
    _thinking(request, turns, body)
    _sampling(request, body)
    if request.stop:
        kept = [stop for stop in request.stop if stop.strip()]
        if len(kept) < len(request.stop):
            request.notes.append("stop sequences of nothing but space were left out")
        if kept:
            body["stop_sequences"] = kept
    if request.json_schema is not None and _has_schemas(request.model):
        body.setdefault("output_config", {})["format"] = {
            "type": "json_schema",
            "schema": closed(request.json_schema),
        }
    if request.json_mode and request.json_schema is None:
        request.notes.append("JSON mode was left out: Anthropic's API has none without a schema")
    if request.seed is not None:
        request.notes.append("`seed` was left out: Anthropic's API has none")
    if request.user is not None:
        body["metadata"] = {"user_id": request.user}
    return body


def _message(turn: Message, notes: list[str]) -> dict[str, Any]:
    blocks = [block for part in turn.parts if (block := _block(part, notes)) is not None]
    role = "assistant" if turn.role is Role.ASSISTANT else "user"
    return {"role": role, "content": blocks}


def _block(part: Part, notes: list[str]) -> dict[str, Any] | None:
    if isinstance(part, Text):
        # A text of nothing but space is refused.
        return _text(part) if part.text.strip() else None
    if isinstance(part, Media):
        return _media(part)
    if isinstance(part, Thinking):
        if part.redacted is not None:
            return {"type": "redacted_thinking", "data": part.redacted}
        if part.signature is None:
            note(notes, "thinking without a signature was left out: Anthropic's API would refuse it")
            return None
        return {"type": "thinking", "thinking": part.text, "signature": part.signature}
    if isinstance(part, ToolCall):
        block: dict[str, Any] = {"type": "tool_use", "id": _id(part.id), "name": provider_name(part.name)}
        block["input"] = arguments_object(part.arguments)
        return _marked(block, part.cached)
    if isinstance(part, ToolResult):
        return _tool_result(part)
    return None


def _text(part: Text) -> dict[str, Any]:
    return _marked({"type": "text", "text": part.text}, part.cached)


def _marked(block: dict[str, Any], cached: bool) -> dict[str, Any]:
    return block | {"cache_control": _MARK} if cached else block


def _id(call_id: str) -> str:
    """Anthropic's API refuses ids with other characters, which some models write."""
    return re.sub(r"[^a-zA-Z0-9_-]", "_", call_id) or "_"


def _tool_result(part: ToolResult) -> dict[str, Any]:
    block: dict[str, Any] = {"type": "tool_result", "tool_use_id": _id(part.call_id)}
    content = [item for item in part.content if not isinstance(item, Text) or item.text]
    if content:
        block["content"] = [_text(item) if isinstance(item, Text) else _media(item) for item in content]
    if part.is_error:
        block["is_error"] = True
    return _marked(block, part.cached)


def _media(part: Media) -> dict[str, Any]:
    if part.kind == "audio":
        raise Untranslatable("Anthropic's API takes no sound")
    source: dict[str, Any]
    if part.url is not None:
        source = {"type": "url", "url": part.url}
    elif part.data is None:
        raise Untranslatable(f"a {part.kind} has neither data nor an address")
    elif part.kind == "document" and (part.media_type or "").startswith("text/"):
        source = {"type": "text", "media_type": "text/plain", "data": _decoded(part.data)}
    elif part.kind == "document" and part.media_type not in (None, "application/pdf"):
        raise Untranslatable(f"Anthropic's API takes PDF and text, not {part.media_type}")
    else:
        default = "image/png" if part.kind == "image" else "application/pdf"
        source = {"type": "base64", "media_type": part.media_type or default, "data": part.data}
    block: dict[str, Any] = {"type": part.kind, "source": source}
    if part.kind == "document" and part.name:
        block["title"] = part.name
    return _marked(block, part.cached)


def _decoded(data: str) -> str:
    try:
        return base64.b64decode(data).decode(errors="replace")
    except ValueError as error:
        raise Untranslatable("a document's data is not base64") from error


def _tools(request: Request, body: dict[str, Any]) -> None:
    if not request.tools:
        return
    body["tools"] = [_tool(tool) for tool in request.tools]
    choice = request.tool_choice
    written: dict[str, Any] | None = None
    if choice is ToolChoice.NAMED:
        written = {"type": "tool", "name": provider_name(request.tool_name or "")}
    elif choice is not None:
        written = {"type": choice.value}
    elif request.parallel_tools is False:
        written = {"type": "auto"}
    if written is not None:
        if request.parallel_tools is False and choice is not ToolChoice.NONE:
            written["disable_parallel_tool_use"] = True
        body["tool_choice"] = written


def _tool(tool: Tool) -> dict[str, Any]:
    written: dict[str, Any] = {"name": provider_name(tool.name)}
    if tool.description:
        written["description"] = tool.description
    written["input_schema"] = {"type": "object", "properties": {}, **(tool.parameters or {})}
    if tool.strict:
        written["strict"] = True
        written["input_schema"] = closed(written["input_schema"])
    return _marked(written, tool.cached)


def closed(schema: Any, depth: int = 0) -> Any:
    """The schema with every object closed to other properties, which Anthropic's API wants said of each."""
    if depth > _DEEPEST:
        return schema
    if isinstance(schema, list):
        return [closed(inner, depth + 1) for inner in schema]
    if not isinstance(schema, dict):
        return schema
    written = {name: closed(inner, depth + 1) if name not in _LITERAL else inner for name, inner in schema.items()}
    if schema.get("type") == "object" and "additionalProperties" not in schema:
        written["additionalProperties"] = False
    return written


def _version(model: str) -> tuple[int, int] | None:
    """Which Claude it is: (4, 6) for `claude-opus-4-6`, None for models that are not Claude."""
    match = re.search(r"claude-(?:[a-z]+-)?(\d{1,2})(?:[-.](\d{1,2}))?(?!\d)", model)
    return (int(match[1]), int(match[2] or 0)) if match else None


def _is_adaptive(model: str) -> bool:
    """Whether the model decides itself how long to think, so that a budget is refused."""
    version = _version(model)
    return version is not None and version >= (4, 6)


def _is_fixed(model: str) -> bool:
    """Whether the model refuses sampling settings, and thinking other than adaptive, `disabled` included."""
    version = _version(model)
    return version is not None and version >= (4, 7)


def _has_schemas(model: str) -> bool:
    version = _version(model)
    return version is None or version >= (4, 5)


def _most_tokens(model: str) -> int | None:
    """The longest answer that the model may be asked for, where it is known."""
    version = _version(model)
    if version is None:
        return None
    if version < (3, 7):
        return 4096 if version < (3, 5) else 8192
    return 32_000 if "opus" in model and version < (4, 5) else None


def _max_tokens(request: Request) -> int:
    most = _most_tokens(request.model)
    if request.max_tokens is None:
        tokens = min(_DEFAULT_TOKENS, most or _DEFAULT_TOKENS)
        request.notes.append(f"`max_tokens` was set to {tokens}: Anthropic's API needs a number")
        return tokens
    if most is not None and request.max_tokens > most:
        request.notes.append(f"`max_tokens` became {most}, the most this model takes")
        return most
    return max(1, request.max_tokens)


def _thinking(request: Request, turns: list[Message], body: dict[str, Any]) -> None:
    effort, budget = request.effort, request.thinking_budget
    if effort is Effort.NONE or budget == 0:
        if _is_fixed(request.model):
            request.notes.append("thinking was not turned off in words: this model only thinks when asked to")
        else:
            body["thinking"] = {"type": "disabled"}
        return
    if effort is None and budget is None:
        return
    if request.tool_choice in (ToolChoice.ANY, ToolChoice.NAMED):
        request.notes.append("thinking was left out: Anthropic's API refuses it together with a forced tool")
        return
    if _is_adaptive(request.model):
        if effort is None:
            most = budget or 0
            effort = next((level for level, tokens in _BUDGETS.items() if most <= tokens), Effort.HIGH)
            request.notes.append(f"a thinking budget of {budget} became the effort `{effort}`")
        body["thinking"] = {"type": "adaptive"}
        body.setdefault("output_config", {})["effort"] = _effort_word(effort, request).value
        return
    if _unthought_loop(turns):
        request.notes.append("thinking was left out: the calls being answered came without a signed thought")
        return
    if budget is None:
        assert effort is not None
        budget = _BUDGETS[effort]
    wanted, budget = budget, min(max(budget, _SMALLEST_BUDGET), body["max_tokens"] - 1)
    if budget < _SMALLEST_BUDGET:
        request.notes.append("thinking was left out: max_tokens leaves no room for it")
        return
    if budget != wanted:
        request.notes.append(f"the thinking budget became {budget}, to be at least 1024 and less than max_tokens")
    body["thinking"] = {"type": "enabled", "budget_tokens": budget}


def _effort_word(effort: Effort, request: Request) -> Effort:
    written = Effort.LOW if effort is Effort.MINIMAL else effort
    takes_max = "opus" in request.model
    if not _is_fixed(request.model) and (effort is Effort.XHIGH or (effort is Effort.MAX and not takes_max)):
        written = Effort.HIGH
    if written is not effort:
        request.notes.append(f"effort `{effort}` became `{written}`, the nearest this model takes")
    return written


def _unthought_loop(turns: list[Message]) -> bool:
    """Whether the last turn answers calls made without a signed thought, which classic thinking refuses."""
    if len(turns) < 2 or not any(isinstance(part, ToolResult) for part in turns[-1].parts):
        return False
    first = turns[-2].parts[0]
    return not (isinstance(first, Thinking) and (first.signature or first.redacted))


def _sampling(request: Request, body: dict[str, Any]) -> None:
    thinks = body.get("thinking", {}).get("type") in ("enabled", "adaptive")
    temperature, top_p, top_k = request.temperature, request.top_p, request.top_k
    if _is_fixed(request.model):
        if (temperature, top_p, top_k) != (None, None, None):
            request.notes.append("`temperature`, `top_p` and `top_k` were left out: this model refuses them")
        return
    if thinks and (top_k is not None or temperature not in (None, 1)):
        request.notes.append("`temperature` and `top_k` were left out: Anthropic's API refuses them with thinking")
        temperature = top_k = None
    if thinks and top_p is not None and top_p < 0.95:
        request.notes.append("`top_p` was left out: with thinking Anthropic's API takes only 0.95 and more")
        top_p = None
    if temperature is not None and temperature > 1:
        request.notes.append(f"temperature {temperature} became 1, the most Anthropic's API takes")
        temperature = 1
    if temperature is not None and top_p is not None and (_version(request.model) or (0, 0)) >= (4, 1):
        request.notes.append("`top_p` was left out: this model takes either it or `temperature`")
        top_p = None
    for name, value in (("temperature", temperature), ("top_p", top_p), ("top_k", top_k)):
        if value is not None:
            body[name] = value

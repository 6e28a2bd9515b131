"""Answers that follow a request's tool choice: a forced call, which clients use for structured output, or no call."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from paddock.errors import InvalidInput
from paddock.llm.formats.neutral import (
    FinishReason,
    ModelFailure,
    ModelRequest,
    ModelText,
    ModelToolCall,
    ToolChoice,
    ToolDefinition,
)
from paddock.llm.scripted_model.answer_rendering import (
    RenderedAnswer,
    RenderedConnectionBreak,
    estimate_scripted_usage,
    render_scripted_answer,
)
from paddock.llm.scripted_model.conversation_parsing import ScriptedConversation
from paddock.llm.scripted_model.sample_arguments import sample_schema_value, schema_properties
from paddock.llm.scripted_model.script_schema import (
    CallToolAction,
    FinishReasonAction,
    ReadFileAction,
    ShellAction,
    UsageAction,
    WriteFileAction,
)
from paddock.llm.scripted_model.tool_matching import NoMatchingTool
from paddock.llm.scripted_model.turn_selection import ScriptTurnDecision

_CALLS = (ShellAction, WriteFileAction, ReadFileAction, CallToolAction)


def find_forced_tools(request: ModelRequest) -> Sequence[ToolDefinition]:
    """Return the tools of which a request demands one; none if it leaves the choice to the model.

    Raises `InvalidInput` if it names a tool that it does not offer.
    """
    if request.tool_choice is ToolChoice.NAMED:
        named = [tool for tool in request.tools if tool.name == request.tool_name]
        if not named:
            offered = ", ".join(tool.name[:80] for tool in request.tools[:60]) or "no tools"
            raise InvalidInput(
                f"the tool choice names {(request.tool_name or '')[:80]!r}, which the request does not offer; "
                f"it offers: {offered}"
            )
        return named
    return request.tools if request.tool_choice is ToolChoice.ANY else ()


def render_forced_tool_call(
    conversation: ScriptedConversation,
    decision: ScriptTurnDecision | None,
    tools: Sequence[ToolDefinition],
    pace: float,
) -> RenderedAnswer:
    """Render the script's call of one of the tools, else a call with its JSON text or sample arguments."""
    try:
        rendering = render_scripted_answer(conversation, decision or ScriptTurnDecision(()), pace)
    except NoMatchingTool:
        rendering = render_scripted_answer(conversation, ScriptTurnDecision(()), pace)
    names = {tool.name for tool in tools}
    for item in rendering.items:
        if isinstance(item, ModelFailure | RenderedConnectionBreak) or (
            isinstance(item, ModelToolCall) and item.name in names
        ):
            return rendering
    values = _parse_object("".join(item.text for item in rendering.items if isinstance(item, ModelText)))
    tool = _choose_tool(tools, values)
    arguments = values if values is not None else sample_schema_value(tool.parameters) or {}
    call = ModelToolCall(f"{rendering.id}-0", tool.name, json.dumps(arguments, ensure_ascii=False))
    rendering.items, rendering.finish = [call], FinishReason.TOOLS
    rendering.usage = estimate_scripted_usage(conversation, [call])
    return rendering


def without_tool_calls(decision: ScriptTurnDecision) -> ScriptTurnDecision | None:
    """Return a turn without its tool calls, for a request that forbids them; `None` if nothing else is in it."""
    other_actions = tuple(action for action in decision.actions if not isinstance(action, _CALLS))
    if len(other_actions) == len(decision.actions):
        return decision
    other_actions = tuple(action for action in other_actions if not isinstance(action, FinishReasonAction))
    return (
        replace(decision, actions=other_actions)
        if any(not isinstance(action, UsageAction) for action in other_actions)
        else None
    )


def _choose_tool(tools: Sequence[ToolDefinition], values: dict[str, Any] | None) -> ToolDefinition:
    """Return the first tool that takes these arguments, else the first."""
    if values:
        for tool in tools:
            if values.keys() <= schema_properties(tool.parameters).keys():
                return tool
    return tools[0]


def _parse_object(text: str) -> dict[str, Any] | None:
    try:
        parsed = json.loads(text)
    except ValueError:
        return None
    return parsed if isinstance(parsed, dict) else None

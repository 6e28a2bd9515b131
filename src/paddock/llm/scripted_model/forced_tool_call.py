"""Answers to requests that force a tool call, which clients use for structured output."""

from __future__ import annotations

import json

from paddock.llm.formats.neutral import (
    FinishReason,
    ModelFailure,
    ModelRequest,
    ModelText,
    ModelToolCall,
    ToolChoice,
    ToolDefinition,
)
from paddock.llm.scripted_model.answer_rendering import ConnectionBreak, RenderedAnswer, estimate_usage, render_answer
from paddock.llm.scripted_model.conversation import ScriptedConversation
from paddock.llm.scripted_model.sample_arguments import sample_value
from paddock.llm.scripted_model.tool_matching import NoMatchingTool
from paddock.llm.scripted_model.turn_selection import TurnDecision


def find_forced_tool(request: ModelRequest) -> ToolDefinition | None:
    """Return the one tool a request allows as an answer, or None if it leaves a choice."""
    if request.tool_choice is ToolChoice.NAMED:
        return next((tool for tool in request.tools if tool.name == request.tool_name), None)
    if request.tool_choice is ToolChoice.ANY and len(request.tools) == 1:
        return request.tools[0]
    return None


def render_forced_call(
    conversation: ScriptedConversation, decision: TurnDecision | None, tool: ToolDefinition, pace: float
) -> RenderedAnswer:
    """Render the script's call of the tool, else a call with its JSON text or sample arguments."""
    try:
        rendering = render_answer(conversation, decision or TurnDecision(()), pace)
    except NoMatchingTool:
        rendering = render_answer(conversation, TurnDecision(()), pace)
    for item in rendering.items:
        if isinstance(item, ModelFailure | ConnectionBreak) or (
            isinstance(item, ModelToolCall) and item.name == tool.name
        ):
            return rendering
    text = "".join(item.text for item in rendering.items if isinstance(item, ModelText))
    call = ModelToolCall(f"{rendering.id}-0", tool.name, _choose_arguments(text, tool))
    rendering.items, rendering.finish = [call], FinishReason.TOOLS
    rendering.usage = estimate_usage(conversation, [call])
    return rendering


def _choose_arguments(text: str, tool: ToolDefinition) -> str:
    try:
        parsed = json.loads(text)
    except ValueError:
        parsed = None
    return json.dumps(parsed if isinstance(parsed, dict) else sample_value(tool.parameters) or {}, ensure_ascii=False)

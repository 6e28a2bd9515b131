"""Answers to requests that force a tool, as clients do that want structured output."""

from __future__ import annotations

import json

from paddock.llm.neutral import Failure, Finish, Request, Text, Tool, ToolCall, ToolChoice
from paddock.llm.script.conversation import Conversation
from paddock.llm.script.decide import Decision
from paddock.llm.script.render import Break, Rendering, estimate, render
from paddock.llm.script.schema import sample
from paddock.llm.script.tools import NoSuchTool


def forced_tool(request: Request) -> Tool | None:
    """Return the one tool a request allows as an answer, or None if it leaves a choice."""
    if request.tool_choice is ToolChoice.NAMED:
        return next((tool for tool in request.tools if tool.name == request.tool_name), None)
    if request.tool_choice is ToolChoice.ANY and len(request.tools) == 1:
        return request.tools[0]
    return None


def forced_call(conversation: Conversation, decision: Decision | None, tool: Tool, pace: float) -> Rendering:
    """Render the script's own call of the tool, or else a call with its JSON text or with the plainest arguments."""
    try:
        rendering = render(conversation, decision or Decision(()), pace)
    except NoSuchTool:
        rendering = render(conversation, Decision(()), pace)
    for item in rendering.items:
        if isinstance(item, Failure | Break) or (isinstance(item, ToolCall) and item.name == tool.name):
            return rendering
    text = "".join(item.text for item in rendering.items if isinstance(item, Text))
    call = ToolCall(f"{rendering.id}-0", tool.name, _arguments(text, tool))
    rendering.items, rendering.finish = [call], Finish.TOOLS
    rendering.usage = estimate(conversation, [call])
    return rendering


def _arguments(text: str, tool: Tool) -> str:
    try:
        said = json.loads(text)
    except ValueError:
        said = None
    return json.dumps(said if isinstance(said, dict) else sample(tool.parameters) or {}, ensure_ascii=False)

"""LangChain model that asks through the turn."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatResult
from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_function
from pydantic import PrivateAttr

from paddock.agents.engines.base import ModelReply, ToolSpec, stream_reply_after_save
from paddock.agents.engines.langgraph.langchain_messages import to_ai_message, to_openai_messages
from paddock.agents.engines.langgraph.middleware import LangGraphTurnVariable
from paddock.errors import Unavailable

PROMPT_PLACEHOLDER = "<prompt>"
"""Placeholder for the turn's prompt in the graph's system prompt."""


class TurnChatModel(BaseChatModel):
    """Asks the session's model through the turn. The turn emits the reply, so nothing streams here."""

    current_turn: Any
    """A `LangGraphTurnVariable`; pydantic cannot validate it."""
    flush_checkpoints: Callable[[str], Coroutine[Any, Any, None]]
    """Stores the pending checkpoints of a session."""
    by: str | None = None
    """Name of the helper that asks; None for the agent itself."""
    _own_specs: dict[str, ToolSpec] = PrivateAttr(default_factory=dict)
    """Specs of the graph's own tools."""

    @property
    def _llm_type(self) -> str:
        return "paddock"

    def bind_tools(self, tools: Sequence[Any], *, tool_choice: str | None = None, **more: Any) -> Runnable[Any, Any]:
        specs = self._current_variable.get().specs
        return self.bind(
            offered_tools=[
                self._own_spec(tool) if isinstance(tool, BaseTool) else specs[tool["name"]] for tool in tools
            ]
        )

    async def ainvoke(
        self,
        input: Any,
        config: RunnableConfig | None = None,
        *,
        stop: list[str] | None = None,
        offered_tools: Sequence[ToolSpec] = (),
        **more: Any,
    ) -> AIMessage:
        # Overridden instead of `_agenerate`, where LangChain treats every exception as a result or an error.
        current = self._current_variable.get()
        question = to_openai_messages(input)
        if question and question[0]["role"] == "system":
            question[0]["content"] = _insert_prompt(question[0]["content"], current.prompt)
        # After a restart the question must be the same, regardless of newer messages.
        save = self.flush_checkpoints(current.turn.session.id)
        reply: ModelReply | None = None
        async for piece in stream_reply_after_save(save, current.turn.ask_model(question, offered_tools, by=self.by)):
            if isinstance(piece, ModelReply):
                reply = piece
        if reply is None:
            raise Unavailable("The model's reply is incomplete; send a message to try again.")
        return to_ai_message(reply.message)

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **more: Any,
    ) -> ChatResult:
        raise NotImplementedError("the turn supports only asynchronous requests")

    @property
    def _current_variable(self) -> LangGraphTurnVariable:
        variable: LangGraphTurnVariable = self.current_turn
        return variable

    def _own_spec(self, tool: BaseTool) -> ToolSpec:
        if tool.name not in self._own_specs:
            function = convert_to_openai_function(tool)
            self._own_specs[tool.name] = ToolSpec(
                name=tool.name,
                description=function["description"],
                input_schema=function["parameters"],
                tool=tool.name,
                effect="none",
            )
        return self._own_specs[tool.name]


def _insert_prompt(content: Any, prompt: str) -> Any:
    if isinstance(content, str):
        return content.replace(PROMPT_PLACEHOLDER, prompt, 1)
    return [
        {**part, "text": part["text"].replace(PROMPT_PLACEHOLDER, prompt, 1)} if "text" in part else part
        for part in content
    ]

"""The turn as a model of LangChain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatResult
from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_function

from paddock.agents.engines.base import Reply, ToolSpec, Turn
from paddock.agents.engines.langgraph.messages import to_answer, to_openai
from paddock.errors import Unavailable


class TurnModel(BaseChatModel):
    """Asks whatever model the session has, through its turn. What it says is told by the turn, so nothing streams."""

    turn: Any
    """A `Turn`."""
    specs: Mapping[str, ToolSpec]
    by: str | None = None
    """The helper that asks, if it is not the agent itself."""

    @property
    def _llm_type(self) -> str:
        return "paddock"

    def bind_tools(self, tools: Sequence[Any], *, tool_choice: str | None = None, **more: Any) -> Runnable[Any, Any]:
        return self.bind(offered=[self._spec(tool) for tool in tools])

    async def ainvoke(
        self,
        input: Any,
        config: RunnableConfig | None = None,
        *,
        stop: list[str] | None = None,
        offered: Sequence[ToolSpec] = (),
        **more: Any,
    ) -> AIMessage:
        # Instead of `_agenerate`, around which LangChain takes everything that is raised for an answer or an error.
        turn: Turn = self.turn
        reply: Reply | None = None
        async for piece in turn.ask(to_openai(input), offered, by=self.by):
            if isinstance(piece, Reply):
                reply = piece
        if reply is None:
            raise Unavailable("The model's answer came to no end; send a message to try again.")
        return to_answer(reply.message)

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **more: Any,
    ) -> ChatResult:
        raise NotImplementedError("a turn is asked asynchronously")

    def _spec(self, tool: BaseTool | Mapping[str, Any]) -> ToolSpec:
        if not isinstance(tool, BaseTool):
            return self.specs[tool["name"]]
        written = convert_to_openai_function(tool)
        return ToolSpec(
            name=tool.name,
            description=written["description"],
            input_schema=written["parameters"],
            tool=tool.name,
            effect="none",
        )

"""The turn as a model of LangChain."""

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

from paddock.agents.engines.base import Reply, ToolSpec, meanwhile
from paddock.agents.engines.langgraph.habits import Now
from paddock.agents.engines.langgraph.messages import to_answer, to_openai
from paddock.errors import Unavailable

PROMPT = "<prompt>"
"""Stands for the prompt of the turn, at the beginning of a graph's own."""


class TurnModel(BaseChatModel):
    """Asks whatever model the session has, through its turn. What it says is told by the turn, so nothing streams."""

    now: Any
    """A `Now`."""
    settle: Callable[[str], Coroutine[Any, Any, None]]
    """Sees to it that the checkpoints of a session are on disk."""
    by: str | None = None
    """The helper that asks, if it is not the agent itself."""
    _known: dict[str, ToolSpec] = PrivateAttr(default_factory=dict)
    """The graph's own tools."""

    @property
    def _llm_type(self) -> str:
        return "paddock"

    def bind_tools(self, tools: Sequence[Any], *, tool_choice: str | None = None, **more: Any) -> Runnable[Any, Any]:
        specs = self._now.get().specs
        return self.bind(
            offered=[self._own(tool) if isinstance(tool, BaseTool) else specs[tool["name"]] for tool in tools]
        )

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
        present = self._now.get()
        question = to_openai(input)
        if question and question[0]["role"] == "system":
            question[0]["content"] = _with_prompt(question[0]["content"], present.prompt)
        # After a restart the question must be the same, whatever people have written since.
        settling = self.settle(present.turn.session.id)
        reply: Reply | None = None
        async for piece in meanwhile(settling, present.turn.ask(question, offered, by=self.by)):
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

    @property
    def _now(self) -> Now:
        now: Now = self.now
        return now

    def _own(self, tool: BaseTool) -> ToolSpec:
        if tool.name not in self._known:
            written = convert_to_openai_function(tool)
            self._known[tool.name] = ToolSpec(
                name=tool.name,
                description=written["description"],
                input_schema=written["parameters"],
                tool=tool.name,
                effect="none",
            )
        return self._known[tool.name]


def _with_prompt(content: Any, prompt: str) -> Any:
    if isinstance(content, str):
        return content.replace(PROMPT, prompt, 1)
    return [{**part, "text": part["text"].replace(PROMPT, prompt, 1)} if "text" in part else part for part in content]

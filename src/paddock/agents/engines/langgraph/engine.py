"""Engine that runs deepagents on LangGraph.

The graph does its work through the turn: it reads messages (`ReadMessagesMiddleware`), asks the model (`TurnChatModel`)
and runs calls in parallel (`ToolCallMiddleware`). Its state is a checkpoint, stored before each question. After a
restart the graph repeats at most its last question and the calls that followed, which the turn answers from its
records.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, ClassVar
from uuid import uuid4

from deepagents import SubAgent, create_deep_agent
from langchain_core.messages import HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.graph.state import CompiledStateGraph
from langsmith import tracing_context

from paddock.agents.engines.base import (
    ContinueTurn,
    Engine,
    Turn,
    TurnDone,
    TurnInput,
    TurnOutcome,
    TurnPaused,
    UserMessage,
)
from paddock.agents.engines.langgraph.checkpoint_saver import StoreCheckpointSaver
from paddock.agents.engines.langgraph.middleware import (
    DisabledMiddleware,
    GraphState,
    LangGraphTurn,
    LangGraphTurnVariable,
    ReadMessagesMiddleware,
    ToolCallMiddleware,
)
from paddock.agents.engines.langgraph.turn_model import PROMPT_PLACEHOLDER, TurnChatModel
from paddock.agents.engines.registry import EngineDependencies
from paddock.model.sessions import Session

HELPER = "general-purpose"
"""Name of the default helper of deepagents."""
_HELPER_DESCRIPTION = (
    "Works on a task of several steps by itself, with the same tools and sandboxes, and reports what came of it. "
    "Use it for searches and other work whose details you need not see."
)
_HELPER_PROMPT = (
    "You are a helper. Another agent has given you a task, and sees of your work only your last message: "
    "let it say all that was asked for."
)
_CONTINUE_NOTE = "[note] Go on from where you were."
# Middleware of deepagents that is disabled, because the turn does the same or the agent must not have it: a file system
# besides the tools of sandboxes, summaries, missing results, reports to other servers, provider specifics.
_DISABLED_MIDDLEWARE = (
    "FilesystemMiddleware",
    "SummarizationMiddleware",
    "PatchToolCallsMiddleware",
    "_ParentNotifierMiddleware",
    "AnthropicPromptCachingMiddleware",
    "UnsupportedContentMiddleware",
)
# The turn has its own step limit; one of its steps is three of the graph's.
_UNLIMITED_STEPS = 10**9
_MAX_GRAPHS = 32

Graph = CompiledStateGraph[Any, Any, Any, Any]


@dataclass(frozen=True)
class _GraphProgress:
    """Progress of a graph in its turn."""

    unfinished: bool
    known_ids: Collection[str]
    """Ids of the messages that the graph has read."""


class LangGraphEngine(Engine):
    """Runs deepagents. One graph serves all turns that have the same tools."""

    name: ClassVar[str] = "langgraph"

    def __init__(self, dependencies: EngineDependencies) -> None:
        self._checkpoints = StoreCheckpointSaver(dependencies.store)
        self._current_turn: LangGraphTurnVariable = ContextVar("present")
        self._graphs: OrderedDict[tuple[str, ...], Graph] = OrderedDict()

    async def run(self, turn: Turn, turn_input: TurnInput) -> TurnOutcome:
        specs = {spec.name: spec for spec in await turn.list_tools()}
        first_message = turn_input.message if isinstance(turn_input, UserMessage) else None
        current = LangGraphTurn(turn, await turn.system_prompt(), specs, first_message)
        token = self._current_turn.set(current)
        try:
            # LangSmith tracing stays off, even if the environment enables it.
            with tracing_context(enabled=False):
                return await self._run_graph(self._graph_for(tuple(specs)), current, turn_input)
        finally:
            self._current_turn.reset(token)

    async def _run_graph(self, graph: Graph, current: LangGraphTurn, turn_input: TurnInput) -> TurnOutcome:
        turn = current.turn
        config: RunnableConfig = {"configurable": {"thread_id": turn.session.id}, "recursion_limit": _UNLIMITED_STEPS}
        first_input: dict[str, Any] = {"turn": turn.number}
        graph_input: dict[str, Any] | None = first_input
        # A turn that starts with a message has no saved progress.
        progress = None if current.first_message else await self._read_progress(graph, config, turn.number)
        if progress is not None:
            if progress.unfinished:
                graph_input = None
            elif not await _has_new_messages(turn, turn_input, progress.known_ids):
                if not isinstance(turn_input, ContinueTurn) or turn_input.cause == "restart":
                    return TurnDone()
                graph_input = first_input | {"messages": [HumanMessage(_CONTINUE_NOTE, id=f"go_on_{uuid4().hex}")]}
        while True:
            # Calls that waited for approval are repeated; their decisions are recorded.
            state = await graph.ainvoke(graph_input, config, durability="sync")
            await self._checkpoints.flush(turn.session.id)
            if "__interrupt__" in state:
                return TurnPaused()
            # Later messages are handled by the caller; a resumed graph may not have read messages at all.
            if current.has_read_messages or not await turn.unread_messages(_message_ids(state)):
                return TurnDone()
            graph_input = first_input

    async def release(self, session: Session) -> None:
        await self._checkpoints.adelete_thread(session.id)

    async def close(self) -> None:
        await self._checkpoints.close()

    async def _read_progress(self, graph: Graph, config: RunnableConfig, turn: int) -> _GraphProgress | None:
        """Return the progress of the graph in this turn, if it has started."""
        saved = await self._checkpoints.aget_tuple(config)
        if saved is None or saved.checkpoint["channel_values"].get("turn") != turn:
            return None
        # Read by checkpoint id, so that finished tasks that are not yet in the state count as unfinished too.
        snapshot = await graph.aget_state(saved.config)
        return _GraphProgress(bool(snapshot.next), _message_ids(snapshot.values))

    def _graph_for(self, names: tuple[str, ...]) -> Graph:
        graph = self._graphs.get(names)
        if graph is None:
            graph = self._graphs[names] = self._build_graph(names)
            if len(self._graphs) > _MAX_GRAPHS:
                self._graphs.popitem(last=False)
        self._graphs.move_to_end(names)
        return graph

    def _build_graph(self, names: Sequence[str]) -> Graph:
        # Only the names of tools: `TurnChatModel` describes them, and `ToolCallMiddleware` runs them.
        tools: Sequence[Any] = [{"name": name} for name in names]
        common = [*(DisabledMiddleware(name) for name in _DISABLED_MIDDLEWARE), ToolCallMiddleware(self._current_turn)]
        helper = SubAgent(
            name=HELPER,
            description=_HELPER_DESCRIPTION,
            system_prompt=f"{PROMPT_PLACEHOLDER}\n\n{_HELPER_PROMPT}",
            model=TurnChatModel(current_turn=self._current_turn, flush_checkpoints=self._checkpoints.flush, by=HELPER),
            tools=tools,
            middleware=common,
        )
        return create_deep_agent(
            TurnChatModel(current_turn=self._current_turn, flush_checkpoints=self._checkpoints.flush),
            tools,
            system_prompt=PROMPT_PLACEHOLDER,
            middleware=[*common, ReadMessagesMiddleware(self._current_turn)],
            subagents=[helper],
            state_schema=GraphState,
            checkpointer=self._checkpoints,
        )


async def _has_new_messages(turn: Turn, turn_input: TurnInput, known: Collection[str]) -> bool:
    """Return whether there are messages that the agent has not read."""
    if isinstance(turn_input, UserMessage) and turn_input.message.id not in known:
        return True
    return bool(await turn.unread_messages(known))


def _message_ids(state: Mapping[str, Any]) -> set[str]:
    return {message.id for message in state.get("messages", ())}

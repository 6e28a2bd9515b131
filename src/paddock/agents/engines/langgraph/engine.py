"""deepagents on LangGraph as an engine.

The graph is LangGraph's; what it does goes through the turn: what people wrote (`Reading`), then the question to the
model (`TurnModel`), then the calls (`Hands`), side by side. Where it stands is a checkpoint, on disk before each
question. After a restart the graph repeats at most its last question and the calls that followed, and the turn answers
both from its records.
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

from paddock.agents.engines.base import Continue, Done, Engine, Given, Outcome, Paused, Turn, UserMessage
from paddock.agents.engines.checkpoints import Checkpoints
from paddock.agents.engines.langgraph.habits import Hands, Nothing, Now, Present, Reading, State
from paddock.agents.engines.langgraph.model import PROMPT, TurnModel
from paddock.agents.engines.registry import Means
from paddock.model.sessions import Session

HELPER = "general-purpose"
"""The name by which deepagents knows the helper that it has by default."""
_FOR_WHAT = (
    "Works on a task of several steps by itself, with the same tools and sandboxes, and reports what came of it. "
    "Use it for searches and other work whose details you need not see."
)
_HELPING = (
    "You are a helper. Another agent has given you a task, and sees of your work only your last message: "
    "let it say all that was asked for."
)
_GO_ON = "[note] Go on from where you were."
# What deepagents does besides, and we do elsewhere or not at all: a file system of its own, which would confuse the
# agent beside those of its sandboxes; summing up; filling in results; reports to other servers; what providers need.
_REPLACED = (
    "FilesystemMiddleware",
    "SummarizationMiddleware",
    "PatchToolCallsMiddleware",
    "_ParentNotifierMiddleware",
    "AnthropicPromptCachingMiddleware",
    "UnsupportedContentMiddleware",
)
# The turn has its own limit; a step of it is three of the graph's.
_STEPS = 10**9
_MOST_GRAPHS = 32

Graph = CompiledStateGraph[Any, Any, Any, Any]


@dataclass(frozen=True)
class _Place:
    """Where a graph stands in its turn."""

    unfinished: bool
    known: Collection[str]
    """Ids of the messages that it has read."""


class LangGraphEngine(Engine):
    """Chats with deepagents. One graph serves all turns that have the same tools."""

    name: ClassVar[str] = "langgraph"

    def __init__(self, means: Means) -> None:
        self._checkpoints = Checkpoints(means.store)
        self._now: Now = ContextVar("present")
        self._graphs: OrderedDict[tuple[str, ...], Graph] = OrderedDict()

    async def run(self, turn: Turn, given: Given) -> Outcome:
        specs = {spec.name: spec for spec in await turn.tools()}
        first = given.message if isinstance(given, UserMessage) else None
        present = Present(turn, await turn.prompt(), specs, first)
        before = self._now.set(present)
        try:
            # Nothing is told to LangSmith, whatever the environment says.
            with tracing_context(enabled=False):
                return await self._run(self._graph(tuple(specs)), present, given)
        finally:
            self._now.reset(before)

    async def _run(self, graph: Graph, present: Present, given: Given) -> Outcome:
        turn = present.turn
        config: RunnableConfig = {"configurable": {"thread_id": turn.session.id}, "recursion_limit": _STEPS}
        begin: dict[str, Any] = {"turn": turn.number}
        step: dict[str, Any] | None = begin
        # What a person begins a turn with is the first that is known of it.
        place = None if present.first else await self._place(graph, config, turn.number)
        if place is not None:
            if place.unfinished:
                step = None
            elif not await _news(turn, given, place.known):
                if not isinstance(given, Continue) or given.cause == "restart":
                    return Done()
                step = begin | {"messages": [HumanMessage(_GO_ON, id=f"go_on_{uuid4().hex}")]}
        while True:
            # Calls that waited for a decision are made again; the ledger knows what was decided.
            state = await graph.ainvoke(step, config, durability="sync")
            await self._checkpoints.settle(turn.session.id)
            if "__interrupt__" in state:
                return Paused()
            # What comes after a look is for those who started this; who went on with an answer has not looked.
            if present.looked or not await turn.unread(_ids(state)):
                return Done()
            step = begin

    async def release(self, session: Session) -> None:
        await self._checkpoints.adelete_thread(session.id)

    async def close(self) -> None:
        await self._checkpoints.close()

    async def _place(self, graph: Graph, config: RunnableConfig, turn: int) -> _Place | None:
        """Where the graph stands in this turn, if it has begun."""
        saved = await self._checkpoints.aget_tuple(config)
        if saved is None or saved.checkpoint["channel_values"].get("turn") != turn:
            return None
        # Named by its id, so that what is done but not yet taken into the state counts as unfinished too.
        snapshot = await graph.aget_state(saved.config)
        return _Place(bool(snapshot.next), _ids(snapshot.values))

    def _graph(self, names: tuple[str, ...]) -> Graph:
        graph = self._graphs.get(names)
        if graph is None:
            graph = self._graphs[names] = self._made(names)
            if len(self._graphs) > _MOST_GRAPHS:
                self._graphs.popitem(last=False)
        self._graphs.move_to_end(names)
        return graph

    def _made(self, names: Sequence[str]) -> Graph:
        # Tools are only names here: `TurnModel` has the rest, and `Hands` calls them.
        tools: Sequence[Any] = [{"name": name} for name in names]
        common = [*(Nothing(name) for name in _REPLACED), Hands(self._now)]
        helper = SubAgent(
            name=HELPER,
            description=_FOR_WHAT,
            system_prompt=f"{PROMPT}\n\n{_HELPING}",
            model=TurnModel(now=self._now, settle=self._checkpoints.settle, by=HELPER),
            tools=tools,
            middleware=common,
        )
        return create_deep_agent(
            TurnModel(now=self._now, settle=self._checkpoints.settle),
            tools,
            system_prompt=PROMPT,
            middleware=[*common, Reading(self._now)],
            subagents=[helper],
            state_schema=State,
            checkpointer=self._checkpoints,
        )


async def _news(turn: Turn, given: Given, known: Collection[str]) -> bool:
    """Whether there is something that the agent has not read yet."""
    if isinstance(given, UserMessage) and given.message.id not in known:
        return True
    return bool(await turn.unread(known))


def _ids(state: Mapping[str, Any]) -> set[str]:
    return {message.id for message in state.get("messages", ())}

"""Creates the session service with all its dependencies."""

from __future__ import annotations

from contextlib import AsyncExitStack

from paddock.agents.approvals.tool_call_service import ToolCallService
from paddock.agents.engines.registry import EngineDependencies, EngineRegistry
from paddock.agents.model.model_requests import SessionModelClient
from paddock.agents.session_files import SessionFiles
from paddock.agents.sessions.agent_choice import AvailableModels
from paddock.agents.sessions.session_service import SessionService
from paddock.agents.tools.toolbox import SessionToolbox
from paddock.agents.turns.live_turn import TurnFactory
from paddock.agents.turns.message_cache import SessionMessageCache
from paddock.agents.turns.takeover_pause import TakeoverPause
from paddock.llm.gateway.gateway import ModelGateway
from paddock.llm.wire.http_server import HttpServer
from paddock.store.chat_sessions.session_store import SessionStore

FILES_DIRECTORY = "sessions"


async def open_session_service(
    dependencies: EngineDependencies, http_server: HttpServer, gateway: ModelGateway, exit_stack: AsyncExitStack
) -> SessionService:
    """Open the session service and resume open turns; `exit_stack` closes everything it opened."""
    config, store, events = dependencies.config, dependencies.store, dependencies.events
    files = SessionFiles(config.data / FILES_DIRECTORY, config.chat.file_size)
    session_store = SessionStore(store)
    takeover_pause = TakeoverPause(dependencies.live, events, store, files, session_store)
    takeover_pause.open()
    exit_stack.push_async_callback(takeover_pause.close)
    toolbox = SessionToolbox(config, dependencies.fleet, dependencies.live, events, store, files, dependencies.mcp)
    exit_stack.push_async_callback(toolbox.close)
    session_model = SessionModelClient(
        store, events, config, dependencies.keys, http_server, files, takeover_pause.pause_if_held, gateway.compute_cost
    )
    await session_model.open()
    exit_stack.push_async_callback(session_model.close)
    tool_calls = ToolCallService(store, events, config, toolbox.run_call)
    takeover_pause.yield_slot = lambda session_id: tool_calls.yield_slot(session_id)
    await tool_calls.open()
    exit_stack.push_async_callback(tool_calls.close)
    engine_registry = EngineRegistry.load(dependencies)
    exit_stack.push_async_callback(engine_registry.close)
    turn_factory = TurnFactory(
        session_store, events, tool_calls, session_model, toolbox, takeover_pause, SessionMessageCache(session_store)
    )
    sessions = SessionService(
        config,
        store,
        events,
        engine_registry,
        tool_calls,
        toolbox,
        session_model,
        files,
        turn_factory.create_turn,
        gateway.archive,
        AvailableModels(gateway.routes, gateway.catalog.default_model),
    )
    exit_stack.push_async_callback(sessions.close)
    await sessions.open()
    return sessions

"""Opens chat sessions: makes the parts, and joins them."""

from __future__ import annotations

from contextlib import AsyncExitStack

from paddock.agents.calls import Calls
from paddock.agents.engines.registry import Engines, Means
from paddock.agents.files import Files
from paddock.agents.memory import Memory
from paddock.agents.parking import Parking
from paddock.agents.sessions import Sessions
from paddock.agents.toolbox import Toolbox
from paddock.agents.turns import Parts
from paddock.agents.voice import Voice
from paddock.llm.gateway import Gateway
from paddock.llm.wire.server import Door
from paddock.store.sessions import SessionStore

FILES = "sessions"


async def open_sessions(means: Means, door: Door, gateway: Gateway, held: AsyncExitStack) -> Sessions:
    """The chat sessions of a server, going on where it was stopped; what they hold is let go of with `held`."""
    config, store, events = means.config, means.store, means.events
    files = Files(config.data / FILES, config.chat.file_size)
    book = SessionStore(store)
    parking = Parking(means.live, events, store, files, book)
    parking.open()
    held.push_async_callback(parking.close)
    toolbox = Toolbox(config, means.fleet, means.live, events, store, files)
    held.push_async_callback(toolbox.close)
    voice = Voice(store, events, config, means.keys, door, files, parking.pause, gateway.cost)
    await voice.open()
    held.push_async_callback(voice.close)
    calls = Calls(store, events, config, toolbox.run)
    parking.aside = lambda session_id: calls.aside(session_id)
    await calls.open()
    held.push_async_callback(calls.close)
    engines = Engines.load(means)
    held.push_async_callback(engines.close)
    parts = Parts(book, events, calls, voice, toolbox, parking, Memory(book))
    sessions = Sessions(
        config,
        store,
        events,
        engines,
        calls,
        toolbox,
        voice,
        files,
        parts.turn,
        gateway.archive,
        gateway.catalog.default_model,
    )
    held.push_async_callback(sessions.close)
    await sessions.open()
    return sessions

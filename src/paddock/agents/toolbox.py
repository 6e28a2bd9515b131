"""What an agent can do: the tools of its session's sandboxes, by kind, and those of the session itself."""

from __future__ import annotations

import asyncio

import structlog

from paddock.agents.boxes import Boxes, Held
from paddock.agents.client_tools import client_spec
from paddock.agents.engines.base import ToolSpec
from paddock.agents.files import Files
from paddock.agents.naming import specs_of, usual_tools
from paddock.agents.output import TELLING, OutputTold
from paddock.agents.own_tools import OwnTools, own_specs
from paddock.agents.prompt import write_prompt
from paddock.agents.results import Results, failure
from paddock.config.schema import Config
from paddock.errors import BoxError, BoxTimeout, Conflict, PaddockError, SandboxNotFound, SessionNotFound
from paddock.events.log import EventLog
from paddock.fleet.fleet import Fleet
from paddock.live.hands import InputHeld
from paddock.live.live import Live
from paddock.model.sandbox import SESSION, Sandbox
from paddock.model.screens import Kind, Tool, ToolResult
from paddock.model.session_events import SessionEvent, SessionFile, SessionScreen
from paddock.model.sessions import Call, CallResult, Session
from paddock.sandbox.tool_stream import OnOutput
from paddock.store.database import Store
from paddock.store.sessions import SessionStore

GRACE = 30.0
"""Seconds that a tool may take beyond the time it was given itself."""
MOST_FILES = 50
"""Files of one call that are told of."""
log = structlog.get_logger()


class Toolbox:
    """Routes calls to sandboxes, and makes those when they are first needed."""

    def __init__(self, config: Config, fleet: Fleet, live: Live, events: EventLog, store: Store, files: Files) -> None:
        self._config = config
        self._fleet = fleet
        self._live = live
        self._events = events
        self._book = SessionStore(store)
        self._boxes = Boxes(config, fleet, events, store)
        self._results = Results(files, config.chat.result_size)
        self._usual: dict[str, tuple[Tool, ...]] = {}
        self._made: dict[tuple[str, ...], tuple[list[Kind], list[tuple[Tool, ...]], tuple[ToolSpec, ...]]] = {}
        """What was last made of the tools of some kinds of sandbox."""
        self._own = OwnTools(
            fleet=fleet,
            live=live,
            boxes=self._boxes,
            book=self._book,
            events=events,
            files=files,
            results=self._results,
            largest=config.chat.file_size,
            tools=self._tools_now,
        )

    async def tools(self, session: Session) -> tuple[ToolSpec, ...]:
        """The session's own tools, those of every kind that it may use, and those that its client runs.

        A kind's tools are there whether it has a sandbox or not; of the sandboxes, those of the given session count.
        """
        own = await self.server_tools(session)
        client = await self._book.client_tools(session.id)
        if not client:
            return own
        taken = {spec.name for spec in own}
        return (*own, *(client_spec(tool) for tool in client if tool.name not in taken))

    async def server_tools(self, session: Session) -> tuple[ToolSpec, ...]:
        """All tools of the session but those that its client runs."""
        kinds = self._kinds(session)
        usual = [await self._tools_of(session, kind, session.sandboxes.get(kind.name)) for kind in kinds]
        made = self._made.get(session.kinds)
        if made is None or made[:2] != (kinds, usual):
            found = {spec.name: spec for spec in own_specs(kinds)}
            for kind, tools in zip(kinds, usual, strict=True):
                for spec in specs_of(kind.name, tools):
                    found.setdefault(spec.name, spec)
            made = self._made[session.kinds] = kinds, usual, tuple(found.values())
        return made[2]

    async def _tools_now(self, session: Session) -> tuple[ToolSpec, ...]:
        try:
            session = await self._book.get(session.id)
        except SessionNotFound:
            pass
        return await self.tools(session)

    async def prompt(self, session: Session) -> str:
        """What the agent is told before everything else."""
        return write_prompt(session, self._kinds(session))

    async def run(self, session: Session, turn: int, call: Call, spec: ToolSpec) -> CallResult:
        """Run a call. Whatever goes wrong is a result that says so."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            if spec.kind is None:
                async with asyncio.timeout(self._config.chat.call_timeout):
                    result = await self._own.run(session, call, spec.tool)
            else:
                async with OutputTold(self._events, session, call) as output:
                    heard = output.heard if spec.tool in TELLING else None
                    result = await self._in_sandbox(session, call, spec, spec.kind, heard)
        except PaddockError as error:
            result = failure(error.message)
        except TimeoutError:
            result = failure("It took too long and was given up; it may have been done in part.")
        except Exception as error:
            log.exception("a call failed in a way that nobody foresaw", session=session.id, call=call.id)
            result = failure(f"something went wrong in the server ({type(error).__name__}); its log says more")
        return result.model_copy(update={"seconds": round(loop.time() - began, 3)})

    async def release(self, session: Session, reason: str) -> None:
        """Delete the session's sandboxes, and tell it. What is in their workspaces stays. Idempotent."""
        await self._boxes.release(session, reason)

    async def attended(self, session: Session) -> bool:
        """Whether a person has one of the session's sandboxes, or watches it; those live on meanwhile."""
        seen = [
            sandbox_id
            for sandbox_id in session.sandboxes.values()
            if self._live.leases.attended(sandbox_id) or self._live.desktops.viewers(sandbox_id)
        ]
        for sandbox_id in seen:
            await self._boxes.prolong(session, sandbox_id)
        return bool(seen)

    async def forget(self, session: Session) -> None:
        """Delete the session's sandboxes and all that was in them, because it is deleted itself. Idempotent."""
        await self._boxes.forget(session)

    async def share(self, session: Session) -> None:
        """Show the session's sandboxes to those who see the session."""
        await self._fleet.share_all(session.tenant, {SESSION: session.id}, session)

    async def close(self) -> None:
        """Wait for what is under way. Sandboxes go on."""
        await self._boxes.close()

    async def sandbox(self, session: Session, kind: str) -> Sandbox:
        """The session's sandbox of a kind, made if need be."""
        return (await self._boxes.get(session, kind)).sandbox

    def _kinds(self, session: Session) -> list[Kind]:
        """Kinds that the server still knows."""
        known = {kind.name: kind for kind in self._fleet.kinds}
        return [known[name] for name in session.kinds if name in known]

    async def _tools_of(self, session: Session, kind: Kind, sandbox_id: str | None) -> tuple[Tool, ...]:
        """What a sandbox says it can do; what is usual for its kind as long as there is none that answers."""
        if sandbox_id is not None:
            try:
                found = await self._live.hands.tools(session.tenant, sandbox_id)
            except PaddockError:
                found = ()
            if found:
                return found
        if kind.name not in self._usual:
            self._usual[kind.name] = await asyncio.to_thread(usual_tools, kind)
        return self._usual[kind.name]

    async def _in_sandbox(
        self, session: Session, call: Call, spec: ToolSpec, kind: str, heard: OnOutput | None
    ) -> CallResult:
        held = await self._boxes.get(session, kind)
        notes = [held.note]
        limit = self._limit(call)
        for again in (True, False):
            try:
                result = await self._live.hands.call(
                    session.tenant, held.sandbox.id, spec.tool, call.arguments, timeout=limit, on_output=heard
                )
            except InputHeld as error:
                return failure(f"Nothing was done: {error.message}.", *notes)
            except (BoxError, SandboxNotFound, Conflict) as error:
                begun = isinstance(error, BoxError)
                why = await self._boxes.lost(session, kind, held.sandbox)
                if why is None and begun:
                    return failure(_unwell(error, limit), *notes)
                # What only looks may be done twice.
                if not again or (begun and spec.effect != "none"):
                    return failure(_lost(kind, why or error.message, spec), *notes)
                held = await self._boxes.get(session, kind)
                notes.append(held.note)
            except PaddockError as error:
                return failure(error.message, *notes)
            else:
                await self._tell(session, kind, held, spec, result)
                return await self._results.shown(session.id, spec.name, result, *notes)
        raise AssertionError("the second try returns")

    def _limit(self, call: Call) -> float:
        """How long a call may take: as long as it says itself, and a little, but not too long."""
        most, own = self._config.chat.call_timeout, call.arguments.get("timeout")
        if isinstance(own, int | float) and not isinstance(own, bool) and own > 0:
            return min(most, own + GRACE)
        return most

    async def _tell(self, session: Session, kind: str, held: Held, spec: ToolSpec, result: ToolResult) -> None:
        """Say what has changed because of a call."""
        box = held.sandbox.id
        events: list[SessionEvent] = [
            SessionFile(kind=kind, sandbox_id=box, path=path[:4096]) for path in result.files[:MOST_FILES]
        ]
        try:
            if self._fleet.kinds.get(kind).screen:
                tools = {tool.name: tool for tool in await self._live.hands.tools(session.tenant, box)}
                tool = tools.get(spec.tool)
                if tool is not None and (tool.changes_screen or "screenshot" in tool.name):
                    events.append(SessionScreen(kind=kind, sandbox_id=box, cause=spec.name))
            if events:
                await self._boxes.tell(session, *events)
        except PaddockError as error:  # The call was done, whoever hears of it.
            log.warning("what a call changed could not be told", session=session.id, error=error.message)


def _unwell(error: PaddockError, limit: float) -> str:
    if isinstance(error, BoxTimeout):
        return f"There was no answer within {limit:.0f} seconds, and the call was broken off. It may be done in part."
    return f"The sandbox runs, but this failed: {error.message}. It may or may not have been done."


def _lost(kind: str, why: str, spec: ToolSpec) -> str:
    done = "" if spec.effect == "none" else " It may have been done in part; look before you do it again."
    return (
        f"The {kind} sandbox was lost while {spec.name} was under way: {why}.{done} The next call makes a new one, "
        "which has what is in /workspace and nothing else of it."
    )

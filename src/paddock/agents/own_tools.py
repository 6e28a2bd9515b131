"""The tools of a session itself, which belong to no sandbox: moving data between them, plans, questions."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from paddock.agents.boxes import Boxes
from paddock.agents.engines.base import ToolSpec
from paddock.agents.files import Files
from paddock.agents.results import FETCH, Results, failure, said
from paddock.errors import InvalidInput, NotFound
from paddock.events.log import EventLog
from paddock.fleet.fleet import Fleet
from paddock.fleet.moving import Mover, Place
from paddock.live.hands import InputHeld
from paddock.live.live import Live
from paddock.model.sandbox import Frozen, Sandbox
from paddock.model.screens import Kind
from paddock.model.session_events import PlanChanged, SessionDesktop, SessionFile, SessionTerminal
from paddock.model.sessions import Call, CallResult, FileContent, PlanStep, Session
from paddock.model.words import WORKSPACE
from paddock.store.session_stream import happening
from paddock.store.sessions import SessionStore

ASK_USER = "ask_user"
VIEWER = "agent"
"""Who an agent is at a terminal that it starts."""
MOST_STEPS = 100
PIECE = 2**18
KIND = "kind"
"""Marks arguments that are one of the session's kinds."""

A_KIND: dict[str, Any] = {KIND: True}
AnyKind = Annotated[str, Field(description="A kind of sandbox.", json_schema_extra=A_KIND)]
ScreenKind = Annotated[
    str, Field(description="A kind of sandbox that has a screen.", json_schema_extra={KIND: "screen"})
]
AbsolutePath = Annotated[str, Field(min_length=1, max_length=4096, description=f"Absolute, such as {WORKSPACE}/a.txt.")]


class _Move(Frozen):
    from_kind: AnyKind
    from_path: AbsolutePath
    to_kind: AnyKind
    to_path: AbsolutePath


class _Shoot(Frozen):
    from_kind: ScreenKind
    to_kind: AnyKind
    to_path: AbsolutePath


class _Fetch(Frozen):
    file: str = Field(min_length=1, max_length=255, description="Its SHA-256, or its name in the conversation.")
    to_kind: AnyKind
    to_path: AbsolutePath


class _Keep(Frozen):
    kind: AnyKind
    path: AbsolutePath


class _Desktop(Frozen):
    kind: ScreenKind


class _Terminal(Frozen):
    kind: AnyKind
    name: str = Field(default="main", pattern=r"^[a-z0-9][a-z0-9-]{0,62}$", description="Its name.")


class _Ask(Frozen):
    question: str = Field(min_length=1, max_length=10_000)
    choices: tuple[Annotated[str, Field(min_length=1, max_length=500)], ...] = Field(
        default=(), max_length=20, description="Answers to choose from, if there are some; another may be given too."
    )


class _Plan(Frozen):
    steps: tuple[PlanStep, ...] = Field(max_length=MOST_STEPS, description="All steps, in order, as they are now.")


class _List(Frozen):
    kind: str | None = Field(default=None, description="Only those of this kind of sandbox.", json_schema_extra=A_KIND)


@dataclass(frozen=True)
class _Own:
    """A tool of the session."""

    name: str
    description: str
    arguments: type[Frozen]
    effect: Literal["none", "command", "write", "other"] = "none"
    kinds: int = 0
    """How many kinds the session must have for it to make sense."""
    screen: bool = False
    """Whether one of them must have a screen."""


OWN = (
    _Own(
        "move_between_sandboxes",
        "Copy a file or a directory from one sandbox to another. The source stays.",
        _Move,
        "write",
        kinds=2,
    ),
    _Own(
        "screenshot_to_sandbox",
        "Write a picture of a sandbox's screen to a file (PNG) of another sandbox or the same.",
        _Shoot,
        "write",
        kinds=1,
        screen=True,
    ),
    _Own(
        FETCH,
        "Write a file that this session keeps to a sandbox: one that the user has attached, a picture, or the whole of "
        "a result that was too long to be shown.",
        _Fetch,
        "write",
        kinds=1,
    ),
    _Own(
        "keep_file",
        "Give the user a file of a sandbox: it is kept with this session, and can be opened and downloaded from the "
        "conversation. Use it for what the user has asked for.",
        _Keep,
        kinds=1,
    ),
    _Own("start_desktop", "Start the desktop of a sandbox, if it does not run.", _Desktop, "other", 1, True),
    _Own("stop_desktop", "Stop the desktop of a sandbox, and with it its windows.", _Desktop, "other", 1, True),
    _Own(
        "start_terminal",
        "Open a terminal in a sandbox for the user to watch and type in. To run commands yourself, use "
        "run_shell_command.",
        _Terminal,
        "other",
        kinds=1,
    ),
    _Own(
        ASK_USER,
        "Ask the user something, and wait for the answer. For what only they can know or decide.",
        _Ask,
    ),
    _Own(
        "update_plan",
        "Show the user how you go about a longer piece of work, and how far you are. Give all steps each time.",
        _Plan,
    ),
    _Own("list_tools", "List all tools that you have, with what they do.", _List),
)
_BY_NAME = {own.name: own for own in OWN}


def own_specs(kinds: Sequence[Kind]) -> list[ToolSpec]:
    """The tools of a session that has these kinds of sandbox."""
    screens = any(kind.screen for kind in kinds)
    return [
        ToolSpec(
            name=own.name,
            description=own.description,
            input_schema=_schema(own.arguments, kinds),
            tool=own.name,
            effect=own.effect,
        )
        for own in OWN
        if len(kinds) >= own.kinds and (screens or not own.screen)
    ]


class OwnTools:
    """Carries them out. Raises `PaddockError` for what cannot be done."""

    def __init__(
        self,
        *,
        fleet: Fleet,
        live: Live,
        boxes: Boxes,
        book: SessionStore,
        events: EventLog,
        files: Files,
        results: Results,
        largest: int,
        tools: Callable[[Session], Awaitable[Sequence[ToolSpec]]],
    ) -> None:
        self._fleet = fleet
        self._live = live
        self._boxes = boxes
        self._book = book
        self._events = events
        self._files = files
        self._results = results
        self._largest = largest
        self._tools = tools
        self._mover = Mover(fleet)
        self._functions: dict[str, Callable[[Session, Any], Awaitable[CallResult]]] = {
            "move_between_sandboxes": self._move,
            "screenshot_to_sandbox": self._shoot,
            FETCH: self._fetch,
            "keep_file": self._keep,
            "start_desktop": self._start_desktop,
            "stop_desktop": self._stop_desktop,
            "start_terminal": self._start_terminal,
            "update_plan": self._plan,
            "list_tools": self._list,
        }

    async def run(self, session: Session, call: Call, tool: str) -> CallResult:
        own, function = _BY_NAME.get(tool), self._functions.get(tool)
        if own is None or function is None:
            raise InvalidInput(f"{tool[:100]} cannot be run")
        try:
            given = own.arguments.model_validate(dict(call.arguments))
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"])) or "arguments"
            raise InvalidInput(f"{place}: {first['msg']}") from None
        return await function(session, given)

    async def _move(self, session: Session, given: _Move) -> CallResult:
        source, one = await self._box(session, given.from_kind)
        goal, other = await self._box(session, given.to_kind)
        moved = await self._mover.move(
            session.tenant,
            Place(sandbox=source.id, path=given.from_path),
            Place(sandbox=goal.id, path=given.to_path),
        )
        await self._told_of_file(
            session, given.to_kind, goal, moved.destination_path, f"{given.from_kind}:{given.from_path}", moved.size
        )
        what = "directory" if moved.type == "directory" else "file"
        text = f"the {what} was copied to {given.to_kind}:{moved.destination_path} ({moved.size} bytes)"
        return _noted(said(text), one, other)

    async def _shoot(self, session: Session, given: _Shoot) -> CallResult:
        source, one = await self._box(session, given.from_kind)
        goal, other = await self._box(session, given.to_kind)
        moved = await self._mover.screenshot(session.tenant, source.id, Place(sandbox=goal.id, path=given.to_path))
        await self._told_of_file(
            session, given.to_kind, goal, moved.destination_path, f"{given.from_kind}:screen", moved.size
        )
        text = f"the picture was written to {given.to_kind}:{moved.destination_path} ({moved.size} bytes)"
        return _noted(said(text), one, other)

    async def _fetch(self, session: Session, given: _Fetch) -> CallResult:
        sha = await self._known(session, given.file)
        data = await self._files.read(session.id, sha)
        goal, note = await self._box(session, given.to_kind)
        inside = await self._fleet.inside(session.tenant, goal.id)
        await inside.write_file(given.to_path, _pieces(data))
        await self._told_of_file(session, given.to_kind, goal, given.to_path, f"session:{sha}", len(data))
        return _noted(said(f"{len(data)} bytes were written to {given.to_kind}:{given.to_path}"), note)

    async def _keep(self, session: Session, given: _Keep) -> CallResult:
        source, note = await self._box(session, given.kind)
        inside = await self._fleet.inside(session.tenant, source.id)
        about = await inside.about(given.path)
        if about.get("type") == "directory":
            raise InvalidInput(f"{given.path} is a directory; pack it into one file first")
        size = about.get("size")
        if isinstance(size, int) and size > self._largest:
            raise InvalidInput(f"{given.path} has {size} bytes; a session keeps files of at most {self._largest}")
        data = await inside.read_file(given.path, limit=self._largest)
        kept = await self._files.put(session.id, data, name=PurePosixPath(given.path).name)
        await self._boxes.tell(
            session, SessionFile(path=kept.name, source=f"{given.kind}:{given.path}", size=len(data))
        )
        text = f"{kept.name} ({len(data)} bytes) is kept with the conversation as the file {kept.file}"
        return _noted(said(text, kept), note)

    async def _start_desktop(self, session: Session, given: _Desktop) -> CallResult:
        box, note = await self._screen(session, given.kind)
        services = await self._live.hands.start_desktop(session.tenant, box.id)
        await self._boxes.tell(session, SessionDesktop(kind=given.kind, sandbox_id=box.id, state="started"))
        return _noted(said(f"the desktop of {given.kind} runs: {_states(services)}"), note)

    async def _stop_desktop(self, session: Session, given: _Desktop) -> CallResult:
        box, note = await self._screen(session, given.kind)
        holder = self._live.leases.holder(box.id)
        if holder is not None:
            raise InputHeld(holder)
        services = await self._live.hands.stop_desktop(session.tenant, box.id)
        await self._boxes.tell(session, SessionDesktop(kind=given.kind, sandbox_id=box.id, state="stopped"))
        return _noted(said(f"the desktop of {given.kind} was stopped: {_states(services)}"), note)

    async def _start_terminal(self, session: Session, given: _Terminal) -> CallResult:
        box, note = await self._box(session, given.kind)
        seat = await self._live.terminals.open(session.tenant, box.id, given.name, viewer=VIEWER)
        seat.close()
        await self._boxes.tell(
            session, SessionTerminal(kind=given.kind, sandbox_id=box.id, name=given.name, state="ready")
        )
        return _noted(said(f"the terminal {given.name} of {given.kind} is open for the user"), note)

    async def _plan(self, session: Session, given: _Plan) -> CallResult:
        event = PlanChanged(steps=given.steps)

        def work(connection: Any) -> Session:
            return SessionStore.alter(connection, session.id, {"plan": given.steps}, datetime.now(UTC))

        await self._events.together(work, lambda _: happening(session, event))
        done = sum(step.state in ("done", "dropped") for step in given.steps)
        return said(f"the plan is shown: {done} of {len(given.steps)} steps are done")

    async def _list(self, session: Session, given: _List) -> CallResult:
        if given.kind is not None and given.kind not in session.kinds:
            return failure(f"there is no kind {given.kind[:80]!r} here; there are {', '.join(session.kinds) or 'none'}")
        specs = [spec for spec in await self._tools(session) if given.kind in (None, spec.kind)]
        text = "\n".join(f"{spec.name}: {' '.join(spec.description.split())}" for spec in specs)
        return CallResult(content=await self._results.text(session.id, "list_tools", text))

    async def _known(self, session: Session, name: str) -> str:
        """The SHA-256 of a file of the conversation; of several of one name, that of the newest."""
        if re.fullmatch("[0-9a-f]{64}", name):
            return name
        for message in reversed(await self._book.messages(session.id)):
            for part in reversed(message.content):
                if isinstance(part, FileContent) and part.name == name:
                    return part.file
        raise NotFound(f"no message of this conversation has a file {name!r}")

    async def _box(self, session: Session, kind: str) -> tuple[Sandbox, str | None]:
        held = await self._boxes.get(session, kind)
        return held.sandbox, held.note

    async def _screen(self, session: Session, kind: str) -> tuple[Sandbox, str | None]:
        if not self._fleet.kinds.get(kind).screen:
            raise InvalidInput(f"{kind} sandboxes have no screen")
        return await self._box(session, kind)

    async def _told_of_file(self, session: Session, kind: str, box: Sandbox, path: str, source: str, size: int) -> None:
        await self._boxes.tell(session, SessionFile(kind=kind, sandbox_id=box.id, path=path, source=source, size=size))


async def _pieces(data: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(data), PIECE):
        yield data[start : start + PIECE]


def _noted(result: CallResult, *notes: str | None) -> CallResult:
    told = failure("", *dict.fromkeys(notes)).content[:-1]
    return result.model_copy(update={"content": (*told, *result.content)})


def _states(services: Sequence[Mapping[str, Any]]) -> str:
    listed = [f"{str(each.get('name'))[:40]} is {str(each.get('state'))[:20]}" for each in services[:50]]
    return ", ".join(listed) or "nothing belongs to it"


def _schema(arguments: type[Frozen], kinds: Sequence[Kind]) -> dict[str, Any]:
    """The JSON schema of arguments, plain enough for every model, with the kinds that there are."""
    whole = arguments.model_json_schema()
    plain: dict[str, Any] = _plain({name: whole[name] for name in whole if name != "$defs"}, whole.get("$defs", {}))
    for rule in plain.get("properties", {}).values():
        which = rule.pop(KIND, None)
        if which is not None:
            rule["enum"] = [kind.name for kind in kinds if kind.screen or which != "screen"]
    return {"properties": {}, **plain}


def _plain(value: Any, known: Mapping[str, Any]) -> Any:
    """A schema without titles and references, and with optional things just left out."""
    if isinstance(value, list):
        return [_plain(each, known) for each in value]
    if not isinstance(value, dict):
        return value
    if "$ref" in value:
        return _plain(known[value["$ref"].rpartition("/")[2]], known)
    found = {name: _plain(each, known) for name, each in value.items() if name != "title" or isinstance(each, dict)}
    options = [each for each in found.pop("anyOf", []) if each != {"type": "null"}]
    if found.get("default", 0) is None:
        del found["default"]
    return {**found, **(options[0] if len(options) == 1 else {"anyOf": options} if options else {})}

"""Tools of the session itself: moving data between sandboxes, keeping files, plans, questions."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from paddock.agents.engines.base import ToolSpec
from paddock.agents.session_files import SessionFiles
from paddock.agents.tools.session_sandboxes import SessionSandboxes
from paddock.agents.tools.tool_results import FETCH_TOOL, ToolResultFormatter, failed_tool_result, text_tool_result
from paddock.config.network_policy import RuleAction
from paddock.errors import InvalidInput, NotFound
from paddock.events.event_log import EventLog
from paddock.fleet.file_mover import FileMover, SandboxFileLocation
from paddock.fleet.fleet import Fleet
from paddock.live.services import LiveServices
from paddock.live.tools.tool_caller import InputHeldByPerson
from paddock.model.sandbox import FrozenModel, Sandbox
from paddock.model.screens import SandboxKind
from paddock.model.session_events import PlanChanged, SessionChanged, SessionDesktop, SessionFile, SessionTerminal
from paddock.model.sessions import CallResult, FileContent, PlanStep, Session, ToolCall
from paddock.model.task_fields import WORKSPACE
from paddock.network.policy_changes import parse_targets, prepend_rules
from paddock.store.chat_sessions.session_log_entries import session_log_entries
from paddock.store.chat_sessions.session_store import SessionStore

ASK_USER_TOOL = "ask_user"
NETWORK_ACCESS_TOOL = "request_network_access"
AGENT_VIEWER = "agent"
"""Name of the agent as a terminal viewer."""
MAX_PLAN_STEPS = 100
CHUNK_SIZE = 2**18
KIND_MARK = "kind"
"""Schema key that marks arguments as one of the session's kinds."""

KIND_SCHEMA_EXTRA: dict[str, Any] = {KIND_MARK: True}
AnyKind = Annotated[str, Field(description="A kind of sandbox.", json_schema_extra=KIND_SCHEMA_EXTRA)]
ScreenKind = Annotated[
    str, Field(description="A kind of sandbox that has a screen.", json_schema_extra={KIND_MARK: "screen"})
]
AbsolutePath = Annotated[str, Field(min_length=1, max_length=4096, description=f"Absolute, such as {WORKSPACE}/a.txt.")]


class _MoveFileArguments(FrozenModel):
    from_kind: AnyKind
    from_path: AbsolutePath
    to_kind: AnyKind
    to_path: AbsolutePath


class _ScreenshotArguments(FrozenModel):
    from_kind: ScreenKind
    to_kind: AnyKind
    to_path: AbsolutePath


class _SessionFileArguments(FrozenModel):
    file: str = Field(min_length=1, max_length=255, description="Its SHA-256, or its name in the conversation.")
    to_kind: AnyKind
    to_path: AbsolutePath


class _KeepFileArguments(FrozenModel):
    kind: AnyKind
    path: AbsolutePath


class _DesktopArguments(FrozenModel):
    kind: ScreenKind


class _TerminalArguments(FrozenModel):
    kind: AnyKind
    name: str = Field(default="main", pattern=r"^[a-z0-9][a-z0-9-]{0,62}$", description="Its name.")


class _AskUserArguments(FrozenModel):
    question: str = Field(min_length=1, max_length=10_000)
    choices: tuple[Annotated[str, Field(min_length=1, max_length=500)], ...] = Field(
        default=(), max_length=20, description="Answers to choose from, if there are some; another may be given too."
    )


class _PlanArguments(FrozenModel):
    steps: tuple[PlanStep, ...] = Field(max_length=MAX_PLAN_STEPS, description="All steps, in order, as they are now.")


class _NetworkAccessArguments(FrozenModel):
    kind: AnyKind
    host: str = Field(
        min_length=1, max_length=253, description="A host name, *.name for its subdomains, or an address."
    )
    port: int = Field(default=443, ge=1, le=65535)
    reason: str = Field(min_length=1, max_length=300, description="What it is needed for, in a few words.")


class _ListToolsArguments(FrozenModel):
    kind: str | None = Field(
        default=None, description="Only those of this kind of sandbox.", json_schema_extra=KIND_SCHEMA_EXTRA
    )


@dataclass(frozen=True)
class _SessionTool:
    """Definition of a session tool."""

    name: str
    description: str
    arguments: type[FrozenModel]
    effect: Literal["none", "command", "write", "network", "other"] = "none"
    kinds: int = 0
    """Number of sandbox kinds that the session needs for this tool."""
    screen: bool = False
    """Whether one of the kinds must have a screen."""


SESSION_TOOLS = (
    _SessionTool(
        "move_between_sandboxes",
        "Copy a file or a directory from one sandbox to another. The source stays.",
        _MoveFileArguments,
        "write",
        kinds=2,
    ),
    _SessionTool(
        "screenshot_to_sandbox",
        "Write a picture of a sandbox's screen to a file (PNG) of another sandbox or the same.",
        _ScreenshotArguments,
        "write",
        kinds=1,
        screen=True,
    ),
    _SessionTool(
        FETCH_TOOL,
        "Write a stored file of this session to a sandbox: an attachment of the user, an image, or the whole of "
        "a result that was too long to be shown.",
        _SessionFileArguments,
        "write",
        kinds=1,
    ),
    _SessionTool(
        "keep_file",
        "Give the user a file of a sandbox: it is stored with this session, and can be opened and downloaded from the "
        "conversation. Use it for what the user has asked for.",
        _KeepFileArguments,
        kinds=1,
    ),
    _SessionTool(
        "start_desktop", "Start the desktop of a sandbox, if it does not run.", _DesktopArguments, "other", 1, True
    ),
    _SessionTool(
        "stop_desktop", "Stop the desktop of a sandbox, and with it its windows.", _DesktopArguments, "other", 1, True
    ),
    _SessionTool(
        "start_terminal",
        "Open a terminal in a sandbox for the user to watch and type in. To run commands yourself, use "
        "run_shell_command.",
        _TerminalArguments,
        "other",
        kinds=1,
    ),
    _SessionTool(
        ASK_USER_TOOL,
        "Ask the user something, and wait for the answer. For what only they can know or decide.",
        _AskUserArguments,
    ),
    _SessionTool(
        "update_plan",
        "Show the user how you go about a longer piece of work, and how far you are. Give all steps each time.",
        _PlanArguments,
    ),
    _SessionTool(
        NETWORK_ACCESS_TOOL,
        "Ask the user to let a sandbox connect to a host that its network policy denies. Do this when a command or a "
        "page failed for that reason, and you need the host; then try again.",
        _NetworkAccessArguments,
        "network",
        kinds=1,
    ),
    _SessionTool("list_tools", "List all tools that you have, with what they do.", _ListToolsArguments),
)
_TOOLS_BY_NAME = {definition.name: definition for definition in SESSION_TOOLS}


def session_tool_specs(kinds: Sequence[SandboxKind]) -> list[ToolSpec]:
    """Return the session tools for the given kinds of sandbox."""
    has_screen = any(kind.screen for kind in kinds)
    return [
        ToolSpec(
            name=definition.name,
            description=definition.description,
            input_schema=_arguments_schema(definition.arguments, kinds),
            tool=definition.name,
            effect=definition.effect,
        )
        for definition in SESSION_TOOLS
        if len(kinds) >= definition.kinds and (has_screen or not definition.screen)
    ]


class SessionToolRunner:
    """Runs session tools. Raises `PaddockError` if a call cannot be done."""

    def __init__(
        self,
        *,
        fleet: Fleet,
        live: LiveServices,
        sandboxes: SessionSandboxes,
        session_store: SessionStore,
        events: EventLog,
        files: SessionFiles,
        result_formatter: ToolResultFormatter,
        max_file_size: int,
        list_tools: Callable[[Session], Awaitable[Sequence[ToolSpec]]],
    ) -> None:
        self._fleet = fleet
        self._live = live
        self._sandboxes = sandboxes
        self._session_store = session_store
        self._events = events
        self._files = files
        self._result_formatter = result_formatter
        self._max_file_size = max_file_size
        self._list_all_tools = list_tools
        self._mover = FileMover(fleet)
        self._handlers: dict[str, Callable[[Session, Any], Awaitable[CallResult]]] = {
            "move_between_sandboxes": self._move_file,
            "screenshot_to_sandbox": self._save_screenshot,
            FETCH_TOOL: self._write_session_file,
            "keep_file": self._keep_file,
            "start_desktop": self._start_desktop,
            "stop_desktop": self._stop_desktop,
            "start_terminal": self._start_terminal,
            "update_plan": self._update_plan,
            NETWORK_ACCESS_TOOL: self._allow_network_access,
            "list_tools": self._list_tools,
        }

    async def run_tool(self, session: Session, call: ToolCall, tool: str) -> CallResult:
        definition, handler = _TOOLS_BY_NAME.get(tool), self._handlers.get(tool)
        if definition is None or handler is None:
            raise InvalidInput(f"{tool[:100]} cannot be run")
        try:
            arguments = definition.arguments.model_validate(dict(call.arguments))
        except ValidationError as error:
            first_error = error.errors()[0]
            field_path = ".".join(map(str, first_error["loc"])) or "arguments"
            raise InvalidInput(f"{field_path}: {first_error['msg']}") from None
        return await handler(session, arguments)

    async def _move_file(self, session: Session, arguments: _MoveFileArguments) -> CallResult:
        source, source_note = await self._acquire(session, arguments.from_kind)
        target, target_note = await self._acquire(session, arguments.to_kind)
        copied = await self._mover.move(
            session.tenant,
            SandboxFileLocation(sandbox=source.id, path=arguments.from_path),
            SandboxFileLocation(sandbox=target.id, path=arguments.to_path),
        )
        await self._emit_file(
            session,
            arguments.to_kind,
            target,
            copied.destination_path,
            f"{arguments.from_kind}:{arguments.from_path}",
            copied.size,
        )
        item_type = "directory" if copied.type == "directory" else "file"
        text = f"the {item_type} was copied to {arguments.to_kind}:{copied.destination_path} ({copied.size} bytes)"
        return _with_notes(text_tool_result(text), source_note, target_note)

    async def _save_screenshot(self, session: Session, arguments: _ScreenshotArguments) -> CallResult:
        source, source_note = await self._acquire(session, arguments.from_kind)
        target, target_note = await self._acquire(session, arguments.to_kind)
        copied = await self._mover.save_screenshot(
            session.tenant, source.id, SandboxFileLocation(sandbox=target.id, path=arguments.to_path)
        )
        await self._emit_file(
            session, arguments.to_kind, target, copied.destination_path, f"{arguments.from_kind}:screen", copied.size
        )
        text = f"the picture was written to {arguments.to_kind}:{copied.destination_path} ({copied.size} bytes)"
        return _with_notes(text_tool_result(text), source_note, target_note)

    async def _write_session_file(self, session: Session, arguments: _SessionFileArguments) -> CallResult:
        sha = await self._resolve_file(session, arguments.file)
        data = await self._files.read_file(session.id, sha)
        target, note = await self._acquire(session, arguments.to_kind)
        daemon = await self._fleet.running_client(session.tenant, target.id)
        await daemon.write_file(arguments.to_path, _chunks(data))
        await self._emit_file(session, arguments.to_kind, target, arguments.to_path, f"session:{sha}", len(data))
        return _with_notes(
            text_tool_result(f"{len(data)} bytes were written to {arguments.to_kind}:{arguments.to_path}"), note
        )

    async def _keep_file(self, session: Session, arguments: _KeepFileArguments) -> CallResult:
        source, note = await self._acquire(session, arguments.kind)
        daemon = await self._fleet.running_client(session.tenant, source.id)
        file_info = await daemon.about(arguments.path)
        if file_info.get("type") == "directory":
            raise InvalidInput(f"{arguments.path} is a directory; pack it into one file first")
        size = file_info.get("size")
        if isinstance(size, int) and size > self._max_file_size:
            raise InvalidInput(
                f"{arguments.path} has {size} bytes; the limit for session files is {self._max_file_size}"
            )
        data = await daemon.read_file(arguments.path, limit=self._max_file_size)
        stored = await self._files.store_file(session.id, data, name=PurePosixPath(arguments.path).name)
        await self._sandboxes.emit(
            session, SessionFile(path=stored.name, source=f"{arguments.kind}:{arguments.path}", size=len(data))
        )
        text = f"{stored.name} ({len(data)} bytes) is kept with the conversation as the file {stored.file}"
        return _with_notes(text_tool_result(text, stored), note)

    async def _start_desktop(self, session: Session, arguments: _DesktopArguments) -> CallResult:
        sandbox, note = await self._acquire_with_screen(session, arguments.kind)
        services = await self._live.tools.start_desktop(session.tenant, sandbox.id)
        await self._sandboxes.emit(session, SessionDesktop(kind=arguments.kind, sandbox_id=sandbox.id, state="started"))
        return _with_notes(text_tool_result(f"the desktop of {arguments.kind} runs: {_service_states(services)}"), note)

    async def _stop_desktop(self, session: Session, arguments: _DesktopArguments) -> CallResult:
        sandbox, note = await self._acquire_with_screen(session, arguments.kind)
        holder = self._live.leases.input_holder(sandbox.id)
        if holder is not None:
            raise InputHeldByPerson(holder)
        services = await self._live.tools.stop_desktop(session.tenant, sandbox.id)
        await self._sandboxes.emit(session, SessionDesktop(kind=arguments.kind, sandbox_id=sandbox.id, state="stopped"))
        return _with_notes(
            text_tool_result(f"the desktop of {arguments.kind} was stopped: {_service_states(services)}"), note
        )

    async def _start_terminal(self, session: Session, arguments: _TerminalArguments) -> CallResult:
        sandbox, note = await self._acquire(session, arguments.kind)
        viewer_connection = await self._live.terminals.open_terminal(
            session.tenant, sandbox.id, arguments.name, viewer=AGENT_VIEWER
        )
        viewer_connection.close()
        await self._sandboxes.emit(
            session, SessionTerminal(kind=arguments.kind, sandbox_id=sandbox.id, name=arguments.name, state="ready")
        )
        return _with_notes(
            text_tool_result(f"the terminal {arguments.name} of {arguments.kind} is open for the user"), note
        )

    async def _update_plan(self, session: Session, arguments: _PlanArguments) -> CallResult:
        event = PlanChanged(steps=arguments.steps)

        def work(connection: Any) -> Session:
            return SessionStore.update_session(connection, session.id, {"plan": arguments.steps}, datetime.now(UTC))

        await self._events.write_with_events(work, lambda _: session_log_entries(session, event))
        done = sum(step.state in ("done", "dropped") for step in arguments.steps)
        return text_tool_result(f"the plan is shown: {done} of {len(arguments.steps)} steps are done")

    async def _allow_network_access(self, session: Session, arguments: _NetworkAccessArguments) -> CallResult:
        """Put a rule in front of the policy of the sandbox and, if the session has one, of the session."""
        host = f"[{arguments.host}]" if ":" in arguments.host else arguments.host
        added = parse_targets(RuleAction.ALLOW, [f"{host}:{arguments.port}"])
        sandbox, note = await self._acquire(session, arguments.kind)
        await self._fleet.change_network(session.tenant, sandbox.id, lambda policy: prepend_rules(policy, added))
        if session.network is not None:
            network = prepend_rules(session.network, added)
            event = SessionChanged(network=network)

            def work(connection: Any) -> Session:
                return SessionStore.update_session(connection, session.id, {"network": network}, datetime.now(UTC))

            await self._events.write_with_events(work, lambda changed: session_log_entries(changed, event))
        text = f"the {arguments.kind} sandbox may connect to {host}:{arguments.port} now; try again"
        return _with_notes(text_tool_result(text), note)

    async def _list_tools(self, session: Session, arguments: _ListToolsArguments) -> CallResult:
        if arguments.kind is not None and arguments.kind not in session.kinds:
            return failed_tool_result(
                f"there is no kind {arguments.kind[:80]!r} here; there are {', '.join(session.kinds) or 'none'}"
            )
        specs = [spec for spec in await self._list_all_tools(session) if arguments.kind in (None, spec.kind)]
        text = "\n".join(f"{spec.name}: {' '.join(spec.description.split())}" for spec in specs)
        return CallResult(content=await self._result_formatter.format_text(session.id, "list_tools", text))

    async def _resolve_file(self, session: Session, name: str) -> str:
        """Return the SHA-256 of a file by name; of several with that name, the newest."""
        if re.fullmatch("[0-9a-f]{64}", name):
            return name
        for message in reversed(await self._session_store.list_messages(session.id)):
            for part in reversed(message.content):
                if isinstance(part, FileContent) and part.name == name:
                    return part.file
        raise NotFound(f"no message of this conversation has a file {name!r}")

    async def _acquire(self, session: Session, kind: str) -> tuple[Sandbox, str | None]:
        acquired = await self._sandboxes.acquire(session, kind)
        return acquired.sandbox, acquired.note

    async def _acquire_with_screen(self, session: Session, kind: str) -> tuple[Sandbox, str | None]:
        if not self._fleet.kinds.get(kind).screen:
            raise InvalidInput(f"{kind} sandboxes have no screen")
        return await self._acquire(session, kind)

    async def _emit_file(
        self, session: Session, kind: str, sandbox: Sandbox, path: str, source: str, size: int
    ) -> None:
        await self._sandboxes.emit(
            session, SessionFile(kind=kind, sandbox_id=sandbox.id, path=path, source=source, size=size)
        )


async def _chunks(data: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(data), CHUNK_SIZE):
        yield data[start : start + CHUNK_SIZE]


def _with_notes(result: CallResult, *notes: str | None) -> CallResult:
    note_parts = failed_tool_result("", *dict.fromkeys(notes)).content[:-1]
    return result.model_copy(update={"content": (*note_parts, *result.content)})


def _service_states(services: Sequence[Mapping[str, Any]]) -> str:
    listed = [f"{str(each.get('name'))[:40]} is {str(each.get('state'))[:20]}" for each in services[:50]]
    return ", ".join(listed) or "nothing belongs to it"


def _arguments_schema(arguments: type[FrozenModel], kinds: Sequence[SandboxKind]) -> dict[str, Any]:
    """Return the simplified JSON schema of arguments, with the session's kinds as choices."""
    whole = arguments.model_json_schema()
    plain: dict[str, Any] = _simplify_schema(
        {name: whole[name] for name in whole if name != "$defs"}, whole.get("$defs", {})
    )
    for rule in plain.get("properties", {}).values():
        kind_mark = rule.pop(KIND_MARK, None)
        if kind_mark is not None:
            rule["enum"] = [kind.name for kind in kinds if kind.screen or kind_mark != "screen"]
    return {"properties": {}, **plain}


def _simplify_schema(value: Any, known: Mapping[str, Any]) -> Any:
    """Inline references and drop titles and null options of a schema."""
    if isinstance(value, list):
        return [_simplify_schema(each, known) for each in value]
    if not isinstance(value, dict):
        return value
    if "$ref" in value:
        return _simplify_schema(known[value["$ref"].rpartition("/")[2]], known)
    found = {
        name: _simplify_schema(each, known) for name, each in value.items() if name != "title" or isinstance(each, dict)
    }
    options = [each for each in found.pop("anyOf", []) if each != {"type": "null"}]
    if found.get("default", 0) is None:
        del found["default"]
    return {**found, **(options[0] if len(options) == 1 else {"anyOf": options} if options else {})}

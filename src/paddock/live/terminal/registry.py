"""Opens, lists and ends the terminals that viewers of a sandbox share.

The daemon in the sandbox runs the shell and keeps its newest output. While a terminal has viewers, one
`SharedTerminal` is the daemon's only client; every viewer reads from it at an individual pace.
"""

from __future__ import annotations

import asyncio
import re
from contextlib import AbstractContextManager
from typing import Any, Protocol
from weakref import WeakValueDictionary

from paddock.errors import Conflict, Forbidden, InvalidInput, NotFound, PaddockError, QuotaExceeded
from paddock.fleet.fleet import Fleet
from paddock.live.takeover_activity import TakeoverTracker
from paddock.live.terminal.shared_terminal import SharedTerminal
from paddock.live.terminal.terminal_viewer import TerminalSize, TerminalViewer
from paddock.model.events import EventType
from paddock.model.sandbox import Sandbox, SandboxState
from paddock.model.screens import InputControlHolder
from paddock.sandbox.daemon.client import DaemonClient

TERMINAL_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
DAEMON_CHOSEN_NAME = re.compile(r"[0-9a-f]{32}")
"""Names that the daemon gives to unnamed terminals, which are opened once with a command of their own."""
MAX_VIEWERS = 64
DELETED_REASON = "deleted"


class InputAccess(Protocol):
    """The part of `InputLeases` that terminals use."""

    def may_send_input(self, sandbox_id: str, viewer: str) -> bool: ...

    def input_holder(self, sandbox_id: str) -> InputControlHolder | None: ...

    def track_connection(self, sandbox_id: str, viewer: str) -> AbstractContextManager[Any]: ...


class TerminalRegistry:
    """The terminals that have viewers.

    Raises `SandboxNotFound`, `Conflict` for a sandbox that does not run, `SandboxError` for one that does not answer.
    """

    def __init__(self, fleet: Fleet, leases: InputAccess, takeovers: TakeoverTracker | None = None) -> None:
        self._fleet = fleet
        self._leases = leases
        self._takeovers = takeovers or TakeoverTracker()
        self._terminals: dict[tuple[str, str], SharedTerminal] = {}
        self._locks: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()

    async def open_terminal(
        self,
        tenant: str,
        sandbox_id: str,
        name: str = "main",
        *,
        viewer: str,
        since: int = 0,
        size: TerminalSize | None = None,
        may_type: bool = True,
    ) -> TerminalViewer:
        """Open a viewer of a terminal, starting a shell if needed. Close the viewer when done.

        A reconnecting viewer passes the offset after the last byte it received as `since`.
        """
        if not TERMINAL_NAME.fullmatch(name):
            raise InvalidInput("name: terminal names have at most 63 lower-case letters, digits and dashes")
        sandbox = await self._running(tenant, sandbox_id)
        key = sandbox.id, name
        # Two connections at once would take the terminal over from each other.
        async with self._locks.setdefault(key, asyncio.Lock()):
            terminal = self._terminals.get(key)
            if terminal is None or terminal.is_over:
                terminal = await self._attach(sandbox, name, since, may_type, size)
            if len(terminal.viewers) >= MAX_VIEWERS:
                raise QuotaExceeded(f"terminal {name} has its {MAX_VIEWERS} viewers; close one first")
            return terminal.add_viewer(viewer, since=since, size=size, may_type=may_type)

    async def list_terminals(self, tenant: str, sandbox_id: str) -> list[dict[str, Any]]:
        """The terminals of a sandbox: `name`, whether each is `running`, how many `viewers` it has."""
        sandbox = await self._running(tenant, sandbox_id)
        found = []
        for each in await self._fleet.client(sandbox).terminals():
            name = each.get("session_id")
            if isinstance(name, str) and TERMINAL_NAME.fullmatch(name):
                terminal = self._terminals.get((sandbox.id, name))
                viewers = len(terminal.viewers) if terminal is not None and not terminal.is_over else 0
                found.append({"name": name, "running": each.get("running") is True, "viewers": viewers})
        return found

    async def end_terminal(self, tenant: str, sandbox_id: str, name: str) -> None:
        """End a terminal and its programs. Raises `NotFound`."""
        if not TERMINAL_NAME.fullmatch(name):
            raise NotFound(f"there is no terminal {name!r}")
        sandbox = await self._running(tenant, sandbox_id)
        terminal = self._terminals.get((sandbox.id, name))
        if terminal is not None:
            terminal.end_reason = DELETED_REASON
        await self._fleet.client(sandbox).close_terminal(name)
        if terminal is not None:
            await terminal.record_exit(None)
        else:
            await self._publish(sandbox, EventType.TERMINAL_CLOSED, name=name, exit_code=None, reason=DELETED_REASON)

    async def close(self) -> None:
        """Disconnect viewers; terminals keep running."""
        await asyncio.gather(*(terminal.close() for terminal in list(self._terminals.values())), return_exceptions=True)

    async def _attach(
        self, sandbox: Sandbox, name: str, since: int, may_type: bool, size: TerminalSize | None
    ) -> SharedTerminal:
        inside = self._fleet.client(sandbox)
        starts_shell = await self._ensure_terminal(inside, name, since, may_type)

        async def is_running() -> bool:
            try:
                return (await self._fleet.sandboxes.get(sandbox.id)).state in (
                    SandboxState.RUNNING,
                    SandboxState.PAUSED,
                )
            except PaddockError:
                return False

        async def publish_exit(exit_code: int | None, reason: str) -> None:
            await self._publish(sandbox, EventType.TERMINAL_CLOSED, name=name, exit_code=exit_code, reason=reason)

        def record_input(viewer: str, data: bytes) -> None:
            self._takeovers.record_terminal_input(sandbox.id, viewer, name, data)

        terminal = SharedTerminal(
            sandbox.id,
            name,
            inside,
            self._leases,
            is_sandbox_running=is_running,
            on_exit=publish_exit,
            on_detached=self._discard,
            on_input=record_input,
            first_size=size if may_type else None,
        )
        await terminal.open()
        if not terminal.is_over:  # A shell may end as soon as it has started.
            self._terminals[sandbox.id, name] = terminal
            if starts_shell:
                await self._publish(sandbox, EventType.TERMINAL_READY, name=name)
        return terminal

    async def _ensure_terminal(self, inside: DaemonClient, name: str, since: int, may_type: bool) -> bool:
        """Create the terminal if needed; return whether its shell has yet to start."""
        listed = await inside.terminals()
        status = next((each for each in listed if each.get("session_id") == name), None)
        if status is None and DAEMON_CHOSEN_NAME.fullmatch(name):
            raise NotFound(f"there is no terminal {name}")
        over = status is not None and status.get("launch_attempted") is True and status.get("running") is not True
        # A reconnecting viewer is shown how the terminal ended; a new one gets a new shell.
        again = over and not since and not DAEMON_CHOSEN_NAME.fullmatch(name)
        if not may_type and (status is None or again or status.get("launch_attempted") is not True):
            raise Forbidden("nothing runs in this terminal; starting a shell requires the scope sandboxes:write")
        if again:
            try:
                await inside.close_terminal(name)
            except NotFound:
                pass
        if status is None or again:
            await inside.open_terminal(name)
            return True
        return status.get("launch_attempted") is not True

    async def _running(self, tenant: str, sandbox_id: str) -> Sandbox:
        sandbox = await self._fleet.get(tenant, sandbox_id)
        if sandbox.state is not SandboxState.RUNNING:
            raise Conflict(f"sandbox {sandbox_id} is {sandbox.state}, not {SandboxState.RUNNING}")
        return sandbox

    async def _publish(self, sandbox: Sandbox, kind: EventType, **data: Any) -> None:
        try:
            current = await self._fleet.sandboxes.get(sandbox.id)
            if current.state in (SandboxState.RUNNING, SandboxState.PAUSED):  # No event may follow a sandbox's end.
                await self._fleet.publish_event(sandbox, kind, **data)
        except PaddockError:
            pass  # The sandbox has ended or the disk is full; the terminal stays usable.

    def _discard(self, terminal: SharedTerminal) -> None:
        if self._terminals.get((terminal.sandbox_id, terminal.name)) is terminal:
            del self._terminals[terminal.sandbox_id, terminal.name]

"""Versions of tools: a tool that differs from every approved version is held until a person approves it.

A version is the hash of what a model or a person sees of a tool. The first version of a tool is approved by itself, if
the configuration does not say otherwise. Tools of programs in a sandbox and of servers of a task are compared with
their first version in that sandbox only: code in one sandbox must not decide what others see.
"""

from __future__ import annotations

import asyncio
import difflib
import hashlib
import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import structlog

from paddock.errors import Conflict, PaddockError
from paddock.events.event_log import EventLog
from paddock.mcp.gateway.server_directory import DeclaredServer
from paddock.model.events import EventType, mcp_event_stream
from paddock.model.keys import DEFAULT_TENANT
from paddock.model.mcp_records import McpToolVersion
from paddock.store.mcp_server_store import McpServerStore

VERSION_FIELDS = ("name", "title", "description", "inputSchema", "annotations", "outputSchema")
MAX_HELD_VERSIONS = 5
"""Held versions of one tool; the oldest is dropped, because a server may change its tools with every list."""
MAX_TOOLS = 10_000
"""Tools of one server with versions; more are held."""
MAX_DEFINITION_BYTES = 256 * 2**10
MAX_SERVER_BYTES = 16 * 2**20
"""Bytes of all definitions of one server; the others are not shown."""
log = structlog.get_logger()
ServerKey = tuple[str, str]
"""Tenant, empty for the configuration, and name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldTool:
    """A tool that differs from its approved version."""

    tool: str
    digest: str
    offered: Mapping[str, Any]
    approved: Mapping[str, Any] | None
    """The version that was approved last; None for a new tool."""
    seen_at: datetime

    @property
    def difference(self) -> str:
        """The difference as text, like that of `diff -u`."""
        before, after = ("" if each is None else _readable(each) for each in (self.approved, self.offered))
        lines = difflib.unified_diff(before.splitlines(), after.splitlines(), "approved", "offered", lineterm="", n=3)
        return "\n".join(lines)


class ToolVersions:
    """The versions of one server's tools. `save` stores new versions without delay for the caller."""

    def __init__(self, key: ServerKey, approve_new: bool, save: Callable[[McpToolVersion], None] | None = None) -> None:
        self._key = key
        self._approve_new = approve_new
        self._save = save
        self._versions: dict[str, dict[str, McpToolVersion]] = {}
        self._size = 0
        """Characters of all definitions that are kept."""

    def load(self, version: McpToolVersion) -> None:
        self._size += _definition_size(version.definition)
        self._versions.setdefault(version.tool, {})[version.digest] = version

    def refusal(self, tool: str, digest: str, definition: Callable[[], Mapping[str, Any]]) -> str | None:
        """Return why a tool is held, or None; remembers versions that are new."""
        versions = self._versions.get(tool)
        if versions is None:
            if len(self._versions) >= MAX_TOOLS:
                return "its server has too many tools"
            versions = self._versions[tool] = {}
        found = versions.get(digest)
        if found is None:
            found = self._add(tool, digest, definition(), approved=self._approve_new and not versions)
        if found.approved:
            return None
        if any(each.approved for each in versions.values()):
            return "it differs from its approved version"
        return "it is new and not yet approved"

    def newest_refusal(self, tool: str) -> str | None:
        """Return why a tool is held as it was listed last, or None."""
        newest = self.newest(tool)
        return None if newest is None or newest.approved else self.refusal(tool, newest.digest, dict)

    def newest(self, tool: str) -> McpToolVersion | None:
        """Return the version of a tool that was seen for the first time most recently."""
        versions = self._versions.get(tool, {})
        return max(versions.values(), key=lambda each: each.seen_at, default=None)

    def is_known(self, tool: str) -> bool:
        return tool in self._versions

    @property
    def requires_approval_of_new(self) -> bool:
        return not self._approve_new

    def held(self) -> list[HeldTool]:
        """Return the held tools, each with its newest version, sorted by name."""
        found = []
        for tool, versions in sorted(self._versions.items()):
            newest = self.newest(tool)
            approved = [each for each in versions.values() if each.approved]
            if newest is None or newest.approved:
                continue
            last = max(approved, key=lambda each: each.approved_at or each.seen_at, default=None)
            found.append(
                HeldTool(
                    tool=tool,
                    digest=newest.digest,
                    offered=newest.definition,
                    approved=None if last is None else last.definition,
                    seen_at=newest.seen_at,
                )
            )
        return found

    def approve(self, digests: Collection[str], by: str | None) -> list[str]:
        """Approve held versions; return the names of their tools. Raises `Conflict` for one that is not held."""
        held = {each.digest: each.tool for each in self.held()}
        if unknown := [digest for digest in digests if digest not in held]:
            raise Conflict(f"no held tool has the version {unknown[0][:64]}; look at the changes again")
        now = datetime.now(UTC)
        for digest in digests:
            versions = self._versions[held[digest]]
            versions[digest] = versions[digest].model_copy(
                update={"approved": True, "approved_by": by, "approved_at": now}
            )
        return sorted({held[digest] for digest in digests})

    def _add(self, tool: str, digest: str, definition: Mapping[str, Any], *, approved: bool) -> McpToolVersion:
        now = datetime.now(UTC)
        size = _definition_size(definition)
        if self._size + size > MAX_SERVER_BYTES:
            definition = {
                "name": tool[:200],
                "description": f"[{size} bytes; the server's tools are too large to be shown]",
            }
            size = _definition_size(definition)
        self._size += size
        version = McpToolVersion(
            tenant=self._key[0],
            server=self._key[1],
            tool=tool,
            digest=digest,
            definition=definition,
            approved=approved,
            seen_at=now,
            approved_at=now if approved else None,
        )
        versions = self._versions[tool]
        versions[digest] = version
        held = sorted((each for each in versions.values() if not each.approved), key=lambda each: each.seen_at)
        for old in held[:-MAX_HELD_VERSIONS]:
            self._size -= _definition_size(versions.pop(old.digest).definition)
        if self._save is not None:
            self._save(version)
        return version


class ToolVersionBook:
    """The versions of all servers. Open it with `open`, and `close` it."""

    def __init__(
        self, store: McpServerStore | None, events: EventLog | None = None, *, approve_new: bool = True
    ) -> None:
        self._store = store
        self._events = events
        self._approve_new = approve_new
        self._servers: dict[ServerKey, ToolVersions] = {}
        self._unsaved: list[McpToolVersion] = []
        self._saving: asyncio.Task[None] | None = None

    async def load(self) -> None:
        """Read the stored versions."""
        for version in () if self._store is None else await self._store.list_versions():
            self._of_key((version.tenant, version.server)).load(version)

    def of_server(self, declared: DeclaredServer) -> ToolVersions:
        """Return the versions of a server; versions of a sandbox's own servers are new each time."""
        if declared.source == "sandbox" or declared.is_local:
            return ToolVersions((declared.owner, declared.name), self._approve_new)
        return self._of_key(_server_key(declared))

    def held(self, declared: DeclaredServer) -> list[HeldTool]:
        found = self._servers.get(_server_key(declared))
        return [] if found is None or not declared.server.hold_changes else found.held()

    async def approve(self, declared: DeclaredServer, digests: Collection[str], by: str | None) -> list[str]:
        """Approve held versions; return the names of their tools. Raises `Conflict`."""
        key = _server_key(declared)
        tools = self._of_key(key).approve(digests, by)
        if self._store is not None:
            await self.flush()
            await self._store.approve_versions(*key, digests, by, datetime.now(UTC))
        return tools

    def forget(self, declared: DeclaredServer) -> None:
        self._servers.pop(_server_key(declared), None)

    async def flush(self) -> None:
        """Store the new versions; they stay waiting if the database fails."""
        while self._unsaved and self._store is not None:
            batch = self._unsaved[:500]
            try:
                await self._store.add_versions(batch)
                await self._publish_held([version for version in batch if not version.approved])
            except PaddockError as error:
                log.warning("could not store tools of MCP servers; will retry", error=error.message)
                return
            del self._unsaved[: len(batch)]

    async def _publish_held(self, versions: Collection[McpToolVersion]) -> None:
        if self._events is None:
            return
        for version in versions:
            data = {"server": version.server, "tool": version.tool[:200], "digest": version.digest}
            stream, tenant = mcp_event_stream(version.server), version.tenant or DEFAULT_TENANT
            await self._events.append(stream, EventType.MCP_TOOL_HELD, data, tenant=tenant)

    async def close(self) -> None:
        if self._saving is not None:
            await asyncio.gather(self._saving, return_exceptions=True)
        await self.flush()

    def _of_key(self, key: ServerKey) -> ToolVersions:
        found = self._servers.get(key)
        if found is None:
            found = self._servers[key] = ToolVersions(key, self._approve_new, self._save)
        return found

    def _save(self, version: McpToolVersion) -> None:
        if self._store is None:
            return
        self._unsaved.append(version)
        if self._saving is None or self._saving.done():
            self._saving = asyncio.create_task(self._save_soon(), name="MCP tool versions")

    async def _save_soon(self) -> None:
        # The tools of one list come one after the other.
        await asyncio.sleep(0)
        await self.flush()


def tool_digest(definition: Mapping[str, Any]) -> str:
    """Return the hash of a tool's version."""
    seen = {field: definition[field] for field in VERSION_FIELDS if definition.get(field) is not None}
    text = json.dumps(seen, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def shown_definition(definition: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a tool that its version covers, as it is stored; very large parts are replaced."""
    shown = {field: definition[field] for field in VERSION_FIELDS if definition.get(field) is not None}
    # Databases store neither NUL nor lone surrogates.
    text = json.dumps(shown, ensure_ascii=False).encode(errors="replace").decode().replace("\\u0000", "?")
    if len(text) > MAX_DEFINITION_BYTES:
        return {"name": definition.get("name"), "description": f"[{len(text)} bytes, too large to be shown]"}
    found: dict[str, Any] = json.loads(text)
    return found


def _definition_size(definition: Mapping[str, Any]) -> int:
    return len(json.dumps(definition, ensure_ascii=False))


def _readable(definition: Mapping[str, Any]) -> str:
    parts: list[str] = []
    for field in VERSION_FIELDS:
        if field not in definition:
            continue
        value = definition[field]
        text = value if isinstance(value, str) else json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False)
        parts += [f"{field}:", *(f"  {line}" for line in text.splitlines())]
    return "\n".join(parts)


def _server_key(declared: DeclaredServer) -> ServerKey:
    return ("" if declared.source == "file" else declared.owner), declared.name

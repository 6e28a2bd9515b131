"""Stored things of the MCP gateway: servers of tenants, versions of tools, and records of calls."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from pydantic import AwareDatetime

from paddock.model.mcp import McpServer, McpSet
from paddock.model.sandbox import FrozenModel


class StoredMcpServer(FrozenModel):
    """A server that a tenant added."""

    tenant: str
    name: str
    document: McpServer
    created_by: str | None = None
    created_at: AwareDatetime
    changed_at: AwareDatetime


class StoredMcpSet(FrozenModel):
    """A set that a tenant added."""

    tenant: str
    name: str
    document: McpSet
    created_by: str | None = None
    created_at: AwareDatetime
    changed_at: AwareDatetime


class McpToolVersion(FrozenModel):
    """A version of a tool that a server offered. Tools without an approved version equal to theirs are held."""

    tenant: str
    """Empty for servers of the configuration."""
    server: str
    tool: str
    digest: str
    """SHA-256 of its name, description, schemas and annotations."""
    definition: Mapping[str, Any]
    approved: bool
    approved_by: str | None = None
    """Who approved it; nobody for the first version that was seen."""
    seen_at: AwareDatetime
    approved_at: AwareDatetime | None = None


class McpCallOutcome(StrEnum):
    """How a call of the MCP gateway ended."""

    OK = "ok"
    TOOL_ERROR = "tool_error"
    """The tool says that it failed."""
    ERROR = "error"
    """The server answered with an error, or could not be asked."""
    REFUSED = "refused"
    """Paddock did not pass it on."""
    INPUT_REQUIRED = "input_required"
    """The server needs input; the repeated call has a record of its own."""
    CANCELLED = "cancelled"


class McpCallRecord(FrozenModel):
    """A call of a tool, a read of a resource or a fetched prompt."""

    id: str
    tenant: str
    caller: str
    """Id of the key or user."""
    caller_name: str | None = None
    agent: str | None = None
    origin: str
    server: str
    method: str
    target: str
    """The tool or prompt by the server's name of it, or the resource."""
    sandbox: str | None = None
    run: str | None = None
    session: str | None = None
    started_at: AwareDatetime
    duration: float
    """Seconds."""
    outcome: McpCallOutcome
    error: str | None = None
    arguments: str
    """JSON, cut if it is long, with secrets masked."""
    result: str
    """JSON, cut if it is long, with secrets masked."""
    request_size: int
    response_size: int
    tokens: int
    """Estimated tokens of the result's text."""

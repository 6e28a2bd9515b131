"""Declarations of MCP servers, in configuration, task files, agents and the API alike."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from paddock.config.field_types import (
    Identifier,
    PrintableText,
    StrictBoolean,
    StrictInteger,
    VariableName,
    VariableValue,
    WebAddress,
    split_command_words,
    wrap_in_list,
)
from paddock.config.units import Bytes, Seconds

TextList = Annotated[tuple[PrintableText, ...], BeforeValidator(wrap_in_list)]


class McpKind(StrEnum):
    """Location of an MCP server."""

    REMOTE = "remote"
    """Shared servers in the network of this server."""
    LOCAL = "local"
    """A program in the sandbox."""
    INTERNET = "internet"
    """Public servers, by HTTPS only, to public addresses only."""


class McpSection(BaseModel):
    """Base of the parts of a declaration. Field docstrings are the published descriptions."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class McpToolRules(McpSection):
    """Tools of a server that can be listed and called. Rules are applied to calls too."""

    allow: TextList = Field(default=(), examples=[["search_*", "fetch"]])
    """Names, with `*` as a wildcard. Default: all tools."""
    deny: TextList = Field(default=(), examples=[["delete_*"]])
    """Names, with `*` as a wildcard; they win over `allow`."""
    rename: Mapping[PrintableText, PrintableText] = Field(default={}, examples=[{"web_search": "search"}])
    """The server's name of a tool, and the name under which it is offered."""


class McpTimeouts(McpSection):
    """Times after which the gateway gives up."""

    start: Seconds = Field(default=30.0, gt=0, le=600, examples=["30s"])
    """Time in which a server must answer its first request; programs have it from their start."""
    call: Seconds = Field(default=300.0, gt=0, le=86_400, examples=["5m"])
    """Time without progress after which a call is cancelled."""
    total: Seconds = Field(default=3600.0, gt=0, le=86_400, examples=["1h"])
    """Time after which a call is cancelled, progress or not."""


class McpToolLimits(BaseModel):
    """Bounds of the use of one tool."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    concurrency: StrictInteger | None = Field(default=None, ge=1, le=10_000, examples=[1])
    """Calls under way of all callers."""
    calls_per_minute: StrictInteger | None = Field(default=None, ge=1, le=10**6, examples=[10])
    """Calls of one caller per minute."""


class McpLimits(McpSection):
    """Bounds of the use of one server."""

    concurrency: StrictInteger = Field(default=64, ge=1, le=10_000, examples=[8])
    """Calls under way of all callers; more wait for a short time and are then refused."""
    calls_per_minute: StrictInteger | None = Field(default=None, ge=1, le=10**6, examples=[120])
    """Calls of one caller per minute."""
    request_size: Bytes = Field(default=16 * 2**20, ge=1024, le=64 * 2**20, examples=["1Mi"])
    """Largest request."""
    response_size: Bytes = Field(default=32 * 2**20, ge=1024, le=256 * 2**20, examples=["8Mi"])
    """Largest response, with its notifications."""
    tools: Mapping[PrintableText, McpToolLimits] = Field(default={}, examples=[{"delete_*": {"calls_per_minute": 5}}])
    """Bounds of single tools, by the server's name of the tool, with `*` as a wildcard; the first match counts."""


class McpAccess(McpSection):
    """Callers that may use a server. Empty lists do not restrict."""

    tenants: TextList = Field(default=(), examples=[["research"]])
    """Tenants. Servers that a tenant adds belong to that tenant alone."""
    users: TextList = Field(default=(), examples=[["ada"]])
    """Users, or names of API keys. Each tenant names its own, so list the tenants too if others have keys."""
    agents: TextList = Field(default=(), examples=[["langgraph", "claude-code"]])
    """Engines and presets, such as `langgraph` and `claude-code`."""


class McpOAuth(McpSection):
    """Sign-in at a server by OAuth. Addresses and registration are discovered."""

    scopes: TextList = Field(default=(), examples=[["read"]])
    """Scopes to request first; others are requested when the server asks for them."""
    per: Literal["user", "tenant"] = Field(default="user", examples=["tenant"])
    """Whether each user signs in, or one for the whole tenant."""
    client_id: PrintableText | None = Field(default=None, examples=["paddock"])
    """Id of a client that was registered by hand."""
    client_secret: PrintableText | None = Field(default=None, examples=["${TRACKER_CLIENT_SECRET}"])
    """Its secret: a reference to a secret by name."""
    grant: Literal["authorization_code", "client_credentials"] = Field(
        default="authorization_code", examples=["client_credentials"]
    )
    """`client_credentials` signs in as the client itself, without a user; it needs a `client_id` with its secret or
    private key."""
    private_key: PrintableText | None = Field(default=None, examples=["${TRACKER_KEY}"])
    """Private key in PEM that replaces the client's secret (`private_key_jwt`): a reference to a secret by name."""
    issuer: PrintableText | None = Field(default=None, examples=["https://login.example.org"])
    """The only authorization server to which the client's id and secret are sent. Default: the one that the MCP server
    names first."""

    @model_validator(mode="after")
    def _has_client(self) -> Self:
        if self.grant == "client_credentials" and not (self.client_id and (self.client_secret or self.private_key)):
            raise ValueError("grant: client_credentials needs 'client_id', and 'client_secret' or 'private_key'")
        return self


class McpServer(McpSection):
    """An MCP server: its address alone, or a mapping."""

    name: Identifier = Field(examples=["calculator"])
    """Name that the agent's tools carry."""
    kind: McpKind | None = Field(default=None, examples=["remote"])
    """Default: `local` for a command, `remote` for an address."""
    description: PrintableText | None = Field(default=None, max_length=500, examples=["Adds numbers."])
    """What the server is for, in one line."""
    url: WebAddress | None = Field(default=None, examples=["https://tools.example.org/mcp"])
    """Address of a streamable HTTP server. Addresses in private networks and on Paddock's own machine must be
    listed in the setting `mcp.allow`."""
    transport: Literal["http", "sse", "grpc"] = Field(default="http", examples=["sse"])
    """`sse` is the transport of the revision 2024-11-05, with two addresses; `grpc` connects to the gateway of another
    Paddock, at `https://HOST:PORT/NAME`."""
    headers: Mapping[PrintableText, VariableValue] = Field(default={}, examples=[{"X-Team": "research"}])
    """Headers of every request to the server. `${NAME}` is replaced by the secret NAME."""
    oauth: McpOAuth | None = Field(default=None, examples=[{"scopes": ["read"]}])
    """Sign-in by OAuth, with `paddock mcp login` or the console."""
    command: Annotated[tuple[PrintableText, ...], BeforeValidator(split_command_words)] = Field(
        default=(), examples=[["python3", "/workspace/server.py"]]
    )
    """A program in the sandbox that speaks MCP on standard input and output."""
    env: Mapping[VariableName, VariableValue] = Field(default={}, examples=[{"LEVEL": "debug"}])
    """Variables of the command."""
    tools: McpToolRules = Field(default=McpToolRules(), examples=[{"deny": ["delete_*"]}])
    """Tools that can be used, and their names."""
    timeouts: McpTimeouts = Field(default=McpTimeouts(), examples=[{"call": "1m"}])
    """Times for the start of a server and for its calls."""
    limits: McpLimits = Field(default=McpLimits(), examples=[{"concurrency": 4}])
    """Bounds of calls."""
    access: McpAccess = Field(default=McpAccess(), examples=[{"users": ["ada"]}])
    """Who may use the server."""
    hold_changes: StrictBoolean = Field(default=True, examples=[False])
    """Withhold a tool whose name, description or schema differs from the approved one, until a person approves it."""

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        # `https://host/mcp` alone is named after the host.
        if isinstance(value, str) and value.startswith(("http://", "https://")):
            host = re.sub(r"[^a-z0-9]+", "-", value.split("/")[2].split("@")[-1].split(":")[0].lower()).strip("-")
            return {"name": host, "url": value}
        return value

    @property
    def is_reference(self) -> bool:
        """True if this is only the name of a server that is declared elsewhere."""
        return False

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if self.is_reference:
            return self
        if bool(self.url) == bool(self.command):
            raise ValueError("needs either 'url' or 'command', and not both")
        if self.command and self.kind not in (None, McpKind.LOCAL):
            raise ValueError("a server with a 'command' is in the sandbox; its kind is local")
        if self.url and self.kind is McpKind.LOCAL:
            raise ValueError("a local server needs a 'command', which runs in the sandbox")
        for field in ("headers", "oauth"):
            if getattr(self, field) and not self.url:
                raise ValueError(f"'{field}' go{'es' if field == 'oauth' else ''} with 'url'")
        if self.oauth and self.transport == "grpc":
            raise ValueError("'oauth' does not go with the transport grpc; use a header with a key")
        if self.env and not self.command:
            raise ValueError("'env' goes with 'command'")
        return self

    @property
    def sort(self) -> McpKind:
        return self.kind or (McpKind.LOCAL if self.command else McpKind.REMOTE)


class TaskMcpServer(McpServer):
    """An MCP server: its address alone, the name of a server that Paddock knows, or a mapping."""

    @property
    def is_reference(self) -> bool:
        return self.model_dump(exclude_defaults=True, exclude_none=True).keys() <= {"name"}

    @model_validator(mode="before")
    @classmethod
    def _by_name(cls, value: Any) -> Any:
        if isinstance(value, str) and "://" not in value:
            return {"name": value}
        return value


def _servers_by_name(value: object) -> object:
    is_list = isinstance(value, (list, tuple)) and all(isinstance(name, str) for name in value)
    return {name: {} for name in value} if is_list else value  # type: ignore[attr-defined]


class McpSet(BaseModel):
    """A virtual server: some tools of several servers, at `/mcp/sets/NAME`."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    name: Identifier
    """Name of the set."""
    description: PrintableText | None = Field(default=None, max_length=500)
    """What the set is for, in one line."""
    servers: Annotated[Mapping[Identifier, McpToolRules], BeforeValidator(_servers_by_name)]
    """Servers by name, each with its tools: `allow` and `deny` as for a server, and `rename` with the complete names
    under which the set offers tools. Other tools are offered as `SERVER_TOOL`. A list of names has all tools."""
    access: McpAccess = McpAccess()
    """Who may use the set; its servers are checked too."""

    @model_validator(mode="after")
    def _has_servers(self) -> Self:
        if not self.servers:
            raise ValueError("servers: name at least one server")
        new_names = [name for rules in self.servers.values() for name in rules.rename.values()]
        for name in new_names:
            if not re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name):
                raise ValueError(
                    f"servers: {name[:80]!r} is not a tool name that all models accept; "
                    "use up to 64 letters, digits, '_' and '-'"
                )
            if new_names.count(name) > 1:
                raise ValueError(f"servers: two tools get the name {name!r}; choose another")
        return self

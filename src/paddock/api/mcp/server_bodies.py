"""Bodies of the routes for MCP servers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pydantic import AwareDatetime, Field

from paddock.api.http.body_models import RequestBody, ResponseBody
from paddock.mcp.gateway.access import server_refusal
from paddock.mcp.gateway.management import shown_declaration
from paddock.mcp.gateway.server_directory import DeclaredServer, DeclaredSet
from paddock.mcp.gateway.services import McpServices
from paddock.mcp.gateway.tool_versions import HeldTool
from paddock.mcp.protocol import CallContext
from paddock.mcp.upstreams.base import Upstream, UpstreamStatus
from paddock.model.mcp import McpOAuth, McpServer
from paddock.model.mcp_oauth import McpToken
from paddock.model.mcp_records import McpCallOutcome, McpCallRecord

if TYPE_CHECKING:
    from paddock.mcp.oauth.sign_ins import SignInAttempt


class McpServerStateResponse(ResponseBody):
    status: UpstreamStatus
    since: AwareDatetime | None = None
    reason: str | None = None


class McpServerResponse(ResponseBody):
    name: str
    kind: str
    description: str | None = None
    source: Literal["file", "tenant", "sandbox"]
    """Where it is declared: in the configuration file, which the API cannot change, or by the tenant."""
    declaration: dict[str, Any]
    """As it is written in YAML. Values of headers and variables are hidden unless they refer to a secret."""
    usable: bool
    reason: str | None = None
    """Why it cannot be used with this key and without a sandbox."""
    state: McpServerStateResponse
    health: list[McpServerStateResponse] | None = None
    """The last changes of its state, oldest first; of one server only."""
    held: int
    """Number of held tools."""
    created_by: str | None = None
    created_at: AwareDatetime | None = None

    @classmethod
    def from_declared(
        cls, declared: DeclaredServer, services: McpServices, context: CallContext, *, with_health: bool = False
    ) -> McpServerResponse:
        refusal = server_refusal(declared, context)
        pooled = services.gateway.pool.peek(declared, context.sandbox)
        upstream = None if pooled is None else pooled.upstream
        state = McpServerStateResponse(status=UpstreamStatus.IDLE)
        health = []
        if isinstance(upstream, Upstream):
            health = [_state_response(each) for each in upstream.health_history]
            state = _state_response(upstream.state)
        stored = services.management.stored_server(declared)
        return cls(
            name=declared.name,
            kind=declared.server.sort.value,
            description=declared.server.description,
            source=declared.source,
            declaration=shown_declaration(declared.server),
            usable=refusal is None,
            reason=refusal,
            state=state,
            health=health if with_health else None,
            held=len(services.gateway.versions.held(declared)),
            created_by=None if stored is None else stored.created_by,
            created_at=None if stored is None else stored.created_at,
        )


def _state_response(state: Any) -> McpServerStateResponse:
    return McpServerStateResponse(status=state.status, since=state.since, reason=state.reason or None)


class McpServerListResponse(ResponseBody):
    items: list[McpServerResponse]


class McpSetResponse(ResponseBody):
    name: str
    description: str | None = None
    source: Literal["file", "tenant", "sandbox"]
    declaration: dict[str, Any]

    @classmethod
    def from_declared(cls, declared: DeclaredSet) -> McpSetResponse:
        return cls(
            name=declared.set.name,
            description=declared.set.description,
            source=declared.source,
            declaration=declared.set.model_dump(mode="json", exclude_defaults=True),
        )


class McpSetListResponse(ResponseBody):
    items: list[McpSetResponse]


class McpToolListResponse(ResponseBody):
    items: list[dict[str, Any]]
    """Tools as in the protocol: `name`, `description`, `inputSchema` and others."""
    missing: list[dict[str, Any]] = []
    """Servers whose tools are missing or old, each with the `reason`; only of sets and of all servers."""


class McpCallRequest(RequestBody):
    tool: str = Field(min_length=1, max_length=1000)
    arguments: dict[str, Any] = {}


class McpCallResponse(ResponseBody):
    result: dict[str, Any]
    """The result as in the protocol: `content`, `structuredContent`, `isError` and others."""
    seconds: float


class McpTestResponse(ResponseBody):
    ok: bool
    seconds: float
    error: str | None = None
    server: str | None = None
    """Name and version that the server gives itself."""
    revisions: list[str] = []
    """Revisions of the protocol that the gateway offers for it."""
    capabilities: list[str] = []
    tools: int | None = None


class StartedMcpSignInResponse(ResponseBody):
    id: str
    """Identifies this sign-in in its state."""
    url: str
    """Page of the authorization server, for the user's browser."""
    issuer: str
    """The authorization server."""
    scopes: list[str]
    """Scopes that are asked for."""
    expires_at: AwareDatetime


class McpSignInAttemptResponse(ResponseBody):
    id: str
    state: Literal["pending", "done", "failed"]
    error: str | None = None


class McpSignInResponse(ResponseBody):
    needed: bool
    """Whether callers of the server sign in by OAuth at all."""
    per: Literal["user", "tenant", "client"]
    """Whose sign-in it is; of a `client`, nobody has to sign in."""
    signed_in: bool
    account: str | None = None
    """Name of the account at the authorization server, if it gave one."""
    issuer: str | None = None
    """The authorization server."""
    scopes: list[str] = []
    """Granted scopes."""
    signed_in_at: AwareDatetime | None = None
    expires_at: AwareDatetime | None = None
    """When the sign-in ends; not given if it is renewed by itself."""
    last: McpSignInAttemptResponse | None = None
    """The last sign-in that was begun."""

    @classmethod
    def from_state(
        cls, server: McpServer, token: McpToken | None, attempt: SignInAttempt | None, *, needed: bool
    ) -> McpSignInResponse:
        oauth = server.oauth or McpOAuth()
        last = None
        if attempt is not None:
            last = McpSignInAttemptResponse(id=attempt.id, state=attempt.state, error=attempt.error)
        per: Literal["user", "tenant", "client"] = "client" if oauth.grant == "client_credentials" else oauth.per
        if token is None:
            return cls(needed=needed, per=per, signed_in=False, last=last)
        return cls(
            needed=needed,
            per=per,
            signed_in=True,
            account=token.account,
            issuer=token.endpoints.issuer,
            scopes=list(token.scopes),
            signed_in_at=token.signed_in_at,
            expires_at=None if token.refresh_token is not None else token.expires_at,
            last=last,
        )


class McpSignOutResponse(ResponseBody):
    revoked: bool
    """Whether the authorization server has revoked the tokens; they are deleted here in any case."""


class HeldToolResponse(ResponseBody):
    tool: str
    digest: str
    """Identifies this version; approve it with this value."""
    difference: str
    """Difference from the version that was approved last, like that of `diff -u`."""
    offered: dict[str, Any]
    approved: dict[str, Any] | None = None
    seen_at: AwareDatetime

    @classmethod
    def from_held(cls, held: HeldTool) -> HeldToolResponse:
        return cls(
            tool=held.tool,
            digest=held.digest,
            difference=held.difference,
            offered=dict(held.offered),
            approved=None if held.approved is None else dict(held.approved),
            seen_at=held.seen_at,
        )


class HeldToolListResponse(ResponseBody):
    items: list[HeldToolResponse]


class ApproveToolsRequest(RequestBody):
    digests: list[str] = Field(min_length=1, max_length=10_000)
    """The versions to approve, as the changes list them."""


class ApproveToolsResponse(ResponseBody):
    approved: list[str]
    """Names of the tools."""


class McpCallRecordResponse(ResponseBody):
    id: str
    server: str
    method: str
    target: str
    """The tool or prompt, by the server's own name of it, or the resource."""
    outcome: McpCallOutcome
    error: str | None = None
    started_at: AwareDatetime
    seconds: float
    caller: str
    caller_name: str | None = None
    agent: str | None = None
    origin: str
    """`http`, `sandbox`, `chat`, `run`, `grpc` or `console`."""
    run: str | None = None
    session: str | None = None
    sandbox: str | None = None
    request_bytes: int
    response_bytes: int
    tokens: int
    """Estimated tokens of the result's text."""
    arguments: str | None = None
    """JSON, cut if it is long, with secrets masked."""
    result: str | None = None
    """JSON, cut if it is long, with secrets masked."""

    @classmethod
    def from_record(cls, record: McpCallRecord) -> McpCallRecordResponse:
        return cls(
            seconds=round(record.duration, 4),
            request_bytes=record.request_size,
            response_bytes=record.response_size,
            **record.model_dump(exclude={"duration", "request_size", "response_size", "tenant"}),
        )


class McpCallRecordListResponse(ResponseBody):
    items: list[McpCallRecordResponse]
    next: str | None = None
    """The value of `before` for the next page; omitted on the last page."""

"""Routes for the network of a sandbox: its policy in Paddock's format, and its connections."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query
from pydantic import AwareDatetime, Field

from paddock.api.http.authorization import SandboxReader, SandboxWriter
from paddock.api.http.body_models import RequestBody, ResponseBody
from paddock.api.http.error_responses import openapi_errors
from paddock.api.sandboxes.network_policy import NetworkPolicyEditor
from paddock.api.services import ApiServices
from paddock.config.network_policy import MAX_RULES, NetworkRules, RuleAction
from paddock.errors import InvalidInput, SandboxNotFound
from paddock.model.events import sandbox_event_stream
from paddock.model.network import ConnectionRefusal
from paddock.model.sandbox import Sandbox
from paddock.network.connection_history import ListedConnection
from paddock.network.policy_changes import parse_targets, prepend_rules, remove_targets
from paddock.store.connection_store import TargetTotals

ConnectionDecision = Literal["allowed", "denied"]
TargetList = Annotated[
    list[Annotated[str, Field(min_length=1, max_length=300)]],
    Field(default=[], max_length=MAX_RULES, examples=[["pypi.org:443"]]),
]


class SandboxNetworkResponse(ResponseBody):
    policy: list[str] = Field(examples=[["allow packages", "allow *.example.com:443"]])
    """Rules; the first one that matches decides, and what no rule matches is denied."""
    effective: list[str]
    """The rules with presets expanded."""
    bounds: list[str]
    """Rules of the server and the tenant that also have to allow a connection."""
    open_connections: int


class ReplaceNetworkRequest(RequestBody):
    policy: NetworkRules = Field(examples=["packages", ["allow *.example.com:443"]])
    """`none`, a preset (`open`, `web`, `packages`, `git`), a rule, or a list of rules."""


class PatchNetworkRequest(RequestBody):
    allow: TargetList
    """Targets to allow; the rules are put in front, after those of `deny`."""
    deny: TargetList
    """Targets to deny; the rules are put in front."""
    remove: TargetList
    """Targets whose rules are removed; without ports, those of any ports."""


class ConnectionResponse(ResponseBody):
    id: str
    started_at: AwareDatetime
    seconds: float
    """How long it was open, so far."""
    name: str | None = None
    """Requested host name; omitted if the program asked for an address."""
    address: str | None = None
    """Address that the server connected to, or that the program asked for."""
    port: int
    server_name: str | None = None
    """Server name of the TLS handshake."""
    sent_bytes: int
    """Bytes from the sandbox to the target."""
    received_bytes: int
    decision: ConnectionDecision
    open: bool
    rule: str | None = None
    """Rule that allowed or denied it."""
    refusal: ConnectionRefusal | None = None
    """Why it was refused or closed by the server."""
    message: str | None = None
    """What happened and what to do, if it was refused or failed."""

    @classmethod
    def from_connection(cls, connection: ListedConnection) -> ConnectionResponse:
        record = connection.record
        return cls(
            id=record.id,
            started_at=record.started_at,
            seconds=round(record.duration, 3),
            name=record.name,
            address=record.address,
            port=record.port,
            server_name=record.server_name,
            sent_bytes=record.sent,
            received_bytes=record.received,
            decision="allowed" if record.allowed else "denied",
            open=connection.open,
            rule=record.rule,
            refusal=record.refusal,
            message=record.message,
        )


class ConnectionTotalsResponse(ResponseBody):
    host: str
    port: int
    connections: int
    denied: int
    sent_bytes: int
    received_bytes: int

    @classmethod
    def from_totals(cls, totals: TargetTotals) -> ConnectionTotalsResponse:
        return cls(
            host=totals.host,
            port=totals.port,
            connections=totals.connections,
            denied=totals.denied,
            sent_bytes=totals.sent,
            received_bytes=totals.received,
        )


class ConnectionListResponse(ResponseBody):
    items: list[ConnectionResponse]
    totals: list[ConnectionTotalsResponse] | None = None
    """Sums of all connections by target, the most used targets first; on the first page only."""
    next: str | None = None
    """The value of `before` for the next page; omitted on the last page."""


def create_router(services: ApiServices) -> APIRouter:
    router = APIRouter(prefix="/v1/sandboxes/{sandbox_id}", tags=["Network"])
    fleet, networks = services.fleet, services.networks
    policies = NetworkPolicyEditor(fleet, networks)

    def describe(sandbox: Sandbox) -> SandboxNetworkResponse:
        return SandboxNetworkResponse(
            policy=list(sandbox.network),
            effective=list(networks.effective_rules(sandbox)),
            bounds=list(networks.bounds(sandbox.tenant)),
            open_connections=len(networks.open_connections(sandbox.id)),
        )

    @router.get("/network", responses=openapi_errors(404))
    async def get_sandbox_network(sandbox_id: str, principal: SandboxReader) -> SandboxNetworkResponse:
        """Return the network policy of a sandbox and what limits it."""
        return describe(await fleet.get(principal.tenant, sandbox_id))

    @router.put("/network", responses=openapi_errors(404, 409))
    async def replace_sandbox_network(
        sandbox_id: str, body: ReplaceNetworkRequest, principal: SandboxWriter
    ) -> SandboxNetworkResponse:
        """Replace the policy. It applies at once: open connections that it does not allow are closed."""
        return describe(await policies.change(principal.tenant, sandbox_id, lambda _: body.policy))

    @router.patch("/network", responses=openapi_errors(404, 409))
    async def patch_sandbox_network(
        sandbox_id: str, body: PatchNetworkRequest, principal: SandboxWriter
    ) -> SandboxNetworkResponse:
        """Allow, deny or remove single targets: new rules are put in front, in place of rules for the same targets."""
        denied, allowed = parse_targets(RuleAction.DENY, body.deny), parse_targets(RuleAction.ALLOW, body.allow)
        removed = parse_targets(RuleAction.ALLOW, body.remove)
        twice = {rule.target for rule in denied} & {rule.target for rule in allowed}
        if twice:
            raise InvalidInput(f"{min(twice)} is in both allow and deny; leave it in one of them")

        def change(current: tuple[str, ...]) -> tuple[str, ...]:
            return prepend_rules(remove_targets(current, removed), [*denied, *allowed])

        return describe(await policies.change(principal.tenant, sandbox_id, change))

    @router.get("/connections", responses=openapi_errors(404), response_model_exclude_none=True)
    async def list_sandbox_connections(
        sandbox_id: str,
        principal: SandboxReader,
        decision: Annotated[ConnectionDecision | None, Query(description="Only these.")] = None,
        is_open: Annotated[bool | None, Query(alias="open", description="Only open, or only ended ones.")] = None,
        before: Annotated[str | None, Query(min_length=1, max_length=63, description="`next` of a page.")] = None,
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    ) -> ConnectionListResponse:
        """List connections of a sandbox to the network, the one that started last first, denied ones included.

        Connections of a deleted sandbox remain available for the time of the setting `network.keep_connections`.
        """
        try:
            await fleet.get(principal.tenant, sandbox_id)
        except SandboxNotFound:
            # The events of a deleted sandbox are visible to the keys that could see it.
            if not await services.events.read(sandbox_event_stream(sandbox_id), 0, 1, tenant=principal.tenant):
                raise
        allowed = None if decision is None else decision == "allowed"
        page = await services.connections.list(sandbox_id, allowed=allowed, is_open=is_open, before=before, limit=limit)
        totals = await services.connections.totals(sandbox_id) if before is None else None
        return ConnectionListResponse(
            items=[ConnectionResponse.from_connection(each) for each in page.items],
            totals=None if totals is None else [ConnectionTotalsResponse.from_totals(each) for each in totals],
            next=page.next,
        )

    return router

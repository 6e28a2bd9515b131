"""What a sandbox may reach, in OpenSandbox's words.

A local sandbox has no network at all, so there is one policy: deny everything. It can be read, and be asked for again;
what would open it is refused. The same answers are given where OpenSandbox's egress sidecar would listen in the box.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Literal

from fastapi import APIRouter, Body
from pydantic import Field, TypeAdapter, ValidationError
from starlette.types import Receive, Scope, Send

from paddock.api.access import Reader, Writer
from paddock.api.errors import documented, explain, send_error
from paddock.api.services import Services
from paddock.api.wire import Asked, Said
from paddock.errors import InvalidInput, NotFound, TooLarge, Unsupported
from paddock.model.sandbox import Sandbox

PORT = 18080
"""Where OpenSandbox's egress sidecar listens."""
MAX_BODY = 2**20


class Rule(Asked):
    action: Literal["allow", "deny"]
    target: str = Field(min_length=1, max_length=253)


class PolicyBody(Asked):
    default_action: Literal["allow", "deny"] | None = None
    egress: list[Rule] = Field(default=[], max_length=10_000)


class RuleSaid(Said):
    action: Literal["allow", "deny"]
    target: str


class Policy(Said):
    default_action: Literal["deny"] = "deny"
    egress: list[RuleSaid] = []


class PolicyStatus(Said):
    status: str = "ok"
    mode: str = "deny_all"
    enforcement_mode: str = "namespace"
    reason: str | None = "the sandbox has a network namespace of its own with nothing but loopback in it"
    policy: Policy = Policy()


Rules = Annotated[list[Rule], Body(max_length=10_000)]
Targets = Annotated[list[Annotated[str, Field(min_length=1, max_length=253)]], Body(max_length=10_000)]


def check(policy: PolicyBody) -> None:
    """Raise `Unsupported` for a policy that would let a sandbox reach anything."""
    if policy.default_action == "allow":
        raise Unsupported("local sandboxes have no network: networkPolicy.defaultAction must be 'deny'")
    check_rules(policy.egress)


def check_rules(rules: Sequence[Rule]) -> None:
    opening = next((rule.target for rule in rules if rule.action == "allow"), None)
    if opening is not None:
        raise Unsupported(f"local sandboxes have no network, so {opening} cannot be allowed; leave the rule out")


def routes(services: Services) -> APIRouter:
    router = APIRouter(prefix="/v1/sandboxes/{sandbox_id}/networkpolicy", tags=["Network policy"])
    fleet = services.fleet
    errors = documented(404)

    @router.get("", responses=errors, response_model_exclude_none=True)
    async def get_network_policy(sandbox_id: str, principal: Reader) -> PolicyStatus:
        """What the sandbox may reach."""
        await fleet.get(principal.tenant, sandbox_id)
        return PolicyStatus()

    @router.put("", responses=errors, response_model_exclude_none=True)
    async def replace_network_policy(sandbox_id: str, policy: PolicyBody, principal: Writer) -> PolicyStatus:
        """Ask for another policy; only one that denies everything is given."""
        await fleet.get(principal.tenant, sandbox_id)
        check(policy)
        return PolicyStatus()

    @router.patch("", responses=errors, response_model_exclude_none=True)
    async def patch_network_policy(sandbox_id: str, rules: Rules, principal: Writer) -> PolicyStatus:
        """Ask for more rules; those that deny something change nothing, those that allow something are refused."""
        await fleet.get(principal.tenant, sandbox_id)
        check_rules(rules)
        return PolicyStatus()

    @router.delete("", responses=errors, response_model_exclude_none=True)
    async def delete_network_policy_rules(sandbox_id: str, targets: Targets, principal: Writer) -> PolicyStatus:
        """Remove rules by target; there are none, so nothing changes."""
        await fleet.get(principal.tenant, sandbox_id)
        return PolicyStatus()

    return router


async def serve(scope: Scope, receive: Receive, send: Send, sandbox: Sandbox, path: bytes) -> None:
    """Answer what a client asks of the egress sidecar it expects in the sandbox."""
    method = "WEBSOCKET" if scope["type"] == "websocket" else scope["method"]
    if path.startswith(b"/credential-vault"):
        raise Unsupported("local sandboxes have no network, so there is nothing a credential vault could be used for")
    if path in (b"/healthz", b"/health") and method == "GET":
        return await _send_json(send, {"status": "ok"})
    if path != b"/policy":
        raise NotFound("the network policy is at /policy")
    if method not in ("GET", "POST", "PUT", "PATCH", "DELETE"):
        return await send_error(send, 405, "METHOD_NOT_ALLOWED", f"/policy does not answer {method}")
    body = await _read(receive)
    try:
        if method in ("POST", "PUT"):
            check(PolicyBody.model_validate_json(body or b"{}"))
        elif method == "PATCH":
            check_rules(TypeAdapter(list[Rule]).validate_json(body))
        elif method == "DELETE":
            TypeAdapter(list[str]).validate_json(body)
    except ValidationError as error:
        problems = [{**problem, "loc": ("body", *problem["loc"])} for problem in error.errors(include_url=False)]
        raise InvalidInput(explain(problems)) from None
    return await _send_json(send, PolicyStatus().model_dump(mode="json", by_alias=True, exclude_none=True))


async def _read(receive: Receive) -> bytes:
    body = b""
    while True:
        message = await receive()
        body += bytes(message.get("body", b""))
        if len(body) > MAX_BODY:
            raise TooLarge(f"a policy may have {MAX_BODY} bytes")
        if not message.get("more_body"):
            return body


async def _send_json(send: Send, document: object) -> None:
    body = json.dumps(document).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})

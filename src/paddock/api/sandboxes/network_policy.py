"""Routes for a sandbox's network policy, in OpenSandbox's format.

A local sandbox has no network, so there is one policy: deny everything. It can be read and requested again; policies
that allow a target are refused. The same answers are given on the port of OpenSandbox's egress sidecar.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Literal

from fastapi import APIRouter, Body
from pydantic import Field, TypeAdapter, ValidationError
from starlette.types import Receive, Scope, Send

from paddock.api.http.authorization import SandboxReader, SandboxWriter
from paddock.api.http.body_models import RequestBody, ResponseBody
from paddock.api.http.error_responses import describe_validation_errors, openapi_errors, send_error_response
from paddock.api.services import ApiServices
from paddock.errors import InvalidInput, NotFound, TooLarge, Unsupported
from paddock.model.sandbox import Sandbox

EGRESS_PORT = 18080
"""Port of OpenSandbox's egress sidecar."""
MAX_BODY = 2**20


class NetworkRule(RequestBody):
    action: Literal["allow", "deny"]
    target: str = Field(min_length=1, max_length=253)


class NetworkPolicyRequest(RequestBody):
    default_action: Literal["allow", "deny"] | None = None
    egress: list[NetworkRule] = Field(default=[], max_length=10_000)


class NetworkRuleResponse(ResponseBody):
    action: Literal["allow", "deny"]
    target: str


class NetworkPolicy(ResponseBody):
    default_action: Literal["deny"] = "deny"
    egress: list[NetworkRuleResponse] = []


class NetworkPolicyResponse(ResponseBody):
    status: str = "ok"
    mode: str = "deny_all"
    enforcement_mode: str = "namespace"
    reason: str | None = "the sandbox has a network namespace of its own with nothing but loopback in it"
    policy: NetworkPolicy = NetworkPolicy()


NetworkRules = Annotated[list[NetworkRule], Body(max_length=10_000)]
Targets = Annotated[list[Annotated[str, Field(min_length=1, max_length=253)]], Body(max_length=10_000)]


def reject_allowing_policy(policy: NetworkPolicyRequest) -> None:
    """Raise `Unsupported` for a policy that would allow a sandbox to reach any target."""
    if policy.default_action == "allow":
        raise Unsupported("local sandboxes have no network: networkPolicy.defaultAction must be 'deny'")
    reject_allow_rules(policy.egress)


def reject_allow_rules(rules: Sequence[NetworkRule]) -> None:
    allowed = next((rule.target for rule in rules if rule.action == "allow"), None)
    if allowed is not None:
        raise Unsupported(f"local sandboxes have no network, so {allowed} cannot be allowed; leave the rule out")


def create_router(services: ApiServices) -> APIRouter:
    router = APIRouter(prefix="/v1/sandboxes/{sandbox_id}/networkpolicy", tags=["Network policy"])
    fleet = services.fleet
    errors = openapi_errors(404)

    @router.get("", responses=errors, response_model_exclude_none=True)
    async def get_network_policy(sandbox_id: str, principal: SandboxReader) -> NetworkPolicyResponse:
        """Return the sandbox's network policy."""
        await fleet.get(principal.tenant, sandbox_id)
        return NetworkPolicyResponse()

    @router.put("", responses=errors, response_model_exclude_none=True)
    async def replace_network_policy(
        sandbox_id: str, policy: NetworkPolicyRequest, principal: SandboxWriter
    ) -> NetworkPolicyResponse:
        """Replace the policy; only policies that deny everything are accepted."""
        await fleet.get(principal.tenant, sandbox_id)
        reject_allowing_policy(policy)
        return NetworkPolicyResponse()

    @router.patch("", responses=errors, response_model_exclude_none=True)
    async def patch_network_policy(
        sandbox_id: str, rules: NetworkRules, principal: SandboxWriter
    ) -> NetworkPolicyResponse:
        """Add rules; deny rules change nothing, allow rules are refused."""
        await fleet.get(principal.tenant, sandbox_id)
        reject_allow_rules(rules)
        return NetworkPolicyResponse()

    @router.delete("", responses=errors, response_model_exclude_none=True)
    async def delete_network_policy_rules(
        sandbox_id: str, targets: Targets, principal: SandboxWriter
    ) -> NetworkPolicyResponse:
        """Remove rules by target; there are none, so nothing changes."""
        await fleet.get(principal.tenant, sandbox_id)
        return NetworkPolicyResponse()

    return router


async def serve_egress_sidecar(scope: Scope, receive: Receive, send: Send, sandbox: Sandbox, path: bytes) -> None:
    """Answer a request to the egress sidecar that OpenSandbox clients expect in the sandbox."""
    method = "WEBSOCKET" if scope["type"] == "websocket" else scope["method"]
    if path.startswith(b"/credential-vault"):
        raise Unsupported("local sandboxes have no network, so there is nothing a credential vault could be used for")
    if path in (b"/healthz", b"/health") and method == "GET":
        return await _send_json(send, {"status": "ok"})
    if path != b"/policy":
        raise NotFound("the network policy is at /policy")
    if method not in ("GET", "POST", "PUT", "PATCH", "DELETE"):
        return await send_error_response(send, 405, "METHOD_NOT_ALLOWED", f"/policy does not answer {method}")
    body = await _read_body(receive)
    try:
        if method in ("POST", "PUT"):
            reject_allowing_policy(NetworkPolicyRequest.model_validate_json(body or b"{}"))
        elif method == "PATCH":
            reject_allow_rules(TypeAdapter(list[NetworkRule]).validate_json(body))
        elif method == "DELETE":
            TypeAdapter(list[str]).validate_json(body)
    except ValidationError as error:
        problems = [{**problem, "loc": ("body", *problem["loc"])} for problem in error.errors(include_url=False)]
        raise InvalidInput(describe_validation_errors(problems)) from None
    return await _send_json(send, NetworkPolicyResponse().model_dump(mode="json", by_alias=True, exclude_none=True))


async def _read_body(receive: Receive) -> bytes:
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

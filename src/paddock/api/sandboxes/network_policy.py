"""Routes for a sandbox's network policy in OpenSandbox's format, also on the port of its egress sidecar."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Annotated, TypeAlias

from fastapi import APIRouter, Body
from pydantic import Field, TypeAdapter, ValidationError
from starlette.types import Receive, Scope, Send

from paddock.api.http.authorization import SandboxReader, SandboxWriter
from paddock.api.http.error_responses import describe_validation_errors, openapi_errors, send_error_response
from paddock.api.sandboxes.opensandbox_policy import (
    NetworkPolicyRequest,
    NetworkPolicyResponse,
    NetworkRuleRequest,
    delete_rules,
    describe_policy,
    patch_rules,
    rules_from_policy,
)
from paddock.api.services import ApiServices
from paddock.config.network_policy import MAX_RULES
from paddock.errors import InvalidInput, NotFound, TooLarge, Unsupported
from paddock.fleet.fleet import Fleet
from paddock.model.sandbox import Sandbox
from paddock.network.sandbox_network_control import SandboxNetworkControl

EGRESS_PORT = 18080
"""Port of OpenSandbox's egress sidecar."""
MAX_BODY = 2**20
NO_CREDENTIAL_VAULT = (
    "the credential vault is not supported, since HTTPS is not decrypted; give programs their credentials in env, "
    "or use the secrets of a task (runs.secrets)"
)

PolicyChange: TypeAlias = Callable[[tuple[str, ...]], tuple[str, ...]]
RuleChanges = Annotated[list[NetworkRuleRequest], Body(max_length=MAX_RULES)]
RuleTargets = Annotated[list[Annotated[str, Field(min_length=1, max_length=300)]], Body(max_length=MAX_RULES)]


class NetworkPolicyEditor:
    """Changes and shows the policies of sandboxes."""

    def __init__(self, fleet: Fleet, networks: SandboxNetworkControl) -> None:
        self._fleet = fleet
        self._networks = networks

    async def change(self, tenant: str, sandbox_id: str, change: PolicyChange) -> Sandbox:
        """Store and enforce a changed policy. Raises `InvalidInput` if the bounds allow nothing of it."""
        return await self._fleet.change_network(tenant, sandbox_id, change)

    def describe(self, sandbox: Sandbox) -> NetworkPolicyResponse:
        return describe_policy(sandbox.network, self._networks.bounds(sandbox.tenant))


def create_router(services: ApiServices) -> APIRouter:
    router = APIRouter(prefix="/v1/sandboxes/{sandbox_id}/networkpolicy", tags=["Network policy"])
    policies = NetworkPolicyEditor(services.fleet, services.networks)
    errors, changing_errors = openapi_errors(404), openapi_errors(404, 409)

    @router.get("", responses=errors, response_model_exclude_none=True)
    async def get_network_policy(sandbox_id: str, principal: SandboxReader) -> NetworkPolicyResponse:
        """Return the sandbox's network policy in OpenSandbox's format."""
        return policies.describe(await services.fleet.get(principal.tenant, sandbox_id))

    @router.put("", responses=changing_errors, response_model_exclude_none=True)
    async def replace_network_policy(
        sandbox_id: str, policy: NetworkPolicyRequest, principal: SandboxWriter
    ) -> NetworkPolicyResponse:
        """Replace the policy. Open connections that it does not allow are closed."""
        rules = rules_from_policy(policy)
        return policies.describe(await policies.change(principal.tenant, sandbox_id, lambda _: rules))

    @router.patch("", responses=changing_errors, response_model_exclude_none=True)
    async def patch_network_policy(
        sandbox_id: str, rules: RuleChanges, principal: SandboxWriter
    ) -> NetworkPolicyResponse:
        """Put rules in front of the others, in place of rules for the same targets; the default action stays."""
        changed = await policies.change(principal.tenant, sandbox_id, lambda current: patch_rules(current, rules))
        return policies.describe(changed)

    @router.delete("", responses=changing_errors, response_model_exclude_none=True)
    async def delete_network_policy_rules(
        sandbox_id: str, targets: RuleTargets, principal: SandboxWriter
    ) -> NetworkPolicyResponse:
        """Remove rules by target; unknown targets are ignored, and the default action stays."""
        changed = await policies.change(principal.tenant, sandbox_id, lambda current: delete_rules(current, targets))
        return policies.describe(changed)

    return router


async def serve_egress_sidecar(
    scope: Scope, receive: Receive, send: Send, sandbox: Sandbox, path: bytes, policies: NetworkPolicyEditor
) -> None:
    """Answer a request to the egress sidecar that OpenSandbox clients expect in the sandbox."""
    method = "WEBSOCKET" if scope["type"] == "websocket" else scope["method"]
    if path.startswith(b"/credential-vault"):
        raise Unsupported(NO_CREDENTIAL_VAULT)
    if path in (b"/healthz", b"/health") and method == "GET":
        return await _send_json(send, {"status": "ok"})
    if path != b"/policy":
        raise NotFound("the network policy is at /policy")
    if method not in ("GET", "POST", "PUT", "PATCH", "DELETE"):
        return await send_error_response(send, 405, "METHOD_NOT_ALLOWED", f"/policy does not answer {method}")
    if method != "GET":
        change = _parse_change(method, await _read_body(receive))
        sandbox = await policies.change(sandbox.tenant, sandbox.id, change)
    answer = policies.describe(sandbox).model_dump(mode="json", by_alias=True, exclude_none=True)
    return await _send_json(send, answer)


def _parse_change(method: str, body: bytes) -> PolicyChange:
    """Return the change that a request to the sidecar asks for. Raises `InvalidInput`."""
    try:
        if method in ("POST", "PUT"):
            rules = rules_from_policy(NetworkPolicyRequest.model_validate_json(body or b"{}"))
            return lambda _: rules
        if method == "PATCH":
            changes = TypeAdapter(RuleChanges).validate_json(body)
            return lambda current: patch_rules(current, changes)
        targets = TypeAdapter(RuleTargets).validate_json(body)
        return lambda current: delete_rules(current, targets)
    except ValidationError as error:
        problems = [{**problem, "loc": ("body", *problem["loc"])} for problem in error.errors(include_url=False)]
        raise InvalidInput(describe_validation_errors(problems)) from None


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

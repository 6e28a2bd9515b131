"""Routes for a sandbox's network policy in OpenSandbox's format."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, TypeAlias

from fastapi import APIRouter, Body
from pydantic import Field

from paddock.api.http.authorization import SandboxReader, SandboxWriter
from paddock.api.http.error_responses import openapi_errors
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
from paddock.fleet.fleet import Fleet
from paddock.model.sandbox import Sandbox
from paddock.network.sandbox_network_control import SandboxNetworkControl

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

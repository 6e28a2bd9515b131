"""Network policies in OpenSandbox's format, and their conversion to and from Paddock's rules."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from pydantic import Field

from paddock.api.http.body_models import RequestBody, ResponseBody
from paddock.config.network_policy import (
    MAX_RULES,
    NetworkPreset,
    NetworkRule,
    RuleAction,
    normalize_network_policy,
    parse_network_rule,
)
from paddock.errors import InvalidInput
from paddock.network.policy_changes import prepend_rules, remove_targets

ALLOW_BY_DEFAULT = f"{RuleAction.ALLOW} {NetworkPreset.OPEN}"
"""Last rule of policies with `defaultAction: allow`."""
_DESCRIPTION = (
    "the sandbox has no network interface: the server checks, opens and relays each of its TCP connections; "
    "other protocols are refused"
)


class NetworkRuleRequest(RequestBody):
    action: Literal["allow", "deny"]
    target: str = Field(min_length=1, max_length=300, examples=["*.example.com"])
    """A host name, `*.` before one, an address, a network, or a preset of Paddock, with or without `:PORTS`."""


class NetworkPolicyRequest(RequestBody):
    default_action: Literal["allow", "deny"] | None = None
    """Action for targets without a rule; `deny` if it is left out."""
    egress: list[NetworkRuleRequest] | None = Field(default=None, max_length=MAX_RULES)
    """Rules; the first one that matches decides."""


class NetworkRuleResponse(ResponseBody):
    action: Literal["allow", "deny"]
    target: str


class OpenSandboxNetworkPolicy(ResponseBody):
    default_action: Literal["allow", "deny"]
    egress: list[NetworkRuleResponse]


class NetworkPolicyResponse(ResponseBody):
    status: str = "ok"
    mode: Literal["deny_all", "allow_all", "enforcing"]
    enforcement_mode: str = "relay"
    """`relay`: the server opens and relays every connection."""
    reason: str | None = None
    policy: OpenSandboxNetworkPolicy


def rules_from_policy(policy: NetworkPolicyRequest) -> tuple[str, ...]:
    """Return the rules of a policy. Raises `InvalidInput` that names the wrong rule."""
    rules = [*map(str, _parse_rules(policy.egress or (), "networkPolicy.egress"))]
    return normalize_network_policy([*rules, ALLOW_BY_DEFAULT] if policy.default_action == "allow" else rules)


def patch_rules(current: Sequence[str], changes: Sequence[NetworkRuleRequest]) -> tuple[str, ...]:
    """Put rules in front, in place of rules for the same targets; the default action stays."""
    rules, default = _split_default(current)
    return (*prepend_rules(rules, _parse_rules(changes, "body")), *default)


def delete_rules(current: Sequence[str], targets: Iterable[str]) -> tuple[str, ...]:
    """Remove the rules of exactly these targets, ignoring unknown ones; the default action stays."""
    rules, default = _split_default(current)
    return (*remove_targets(rules, _known_targets(targets), exact=True), *default)


def describe_policy(rules: Sequence[str], bounds: Sequence[str]) -> NetworkPolicyResponse:
    """Return the policy of a sandbox as OpenSandbox's clients read it."""
    egress, default = _split_default(rules)
    action: Literal["allow", "deny"] = "allow" if default else "deny"
    limited = f"; nothing beyond the bounds of this server is allowed: {', '.join(bounds)}" if bounds else ""
    return NetworkPolicyResponse(
        mode="enforcing" if egress else "allow_all" if default else "deny_all",
        reason=_DESCRIPTION + limited,
        policy=OpenSandboxNetworkPolicy(default_action=action, egress=[*map(_rule_response, egress)]),
    )


def _rule_response(text: str) -> NetworkRuleResponse:
    action, _, target = text.partition(" ")
    return NetworkRuleResponse(action="allow" if action == RuleAction.ALLOW else "deny", target=target)


def _split_default(rules: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    rules = tuple(rules)
    return (rules[:-1], rules[-1:]) if rules and rules[-1] == ALLOW_BY_DEFAULT else (rules, ())


def _parse_rules(rules: Sequence[NetworkRuleRequest], field: str) -> list[NetworkRule]:
    parsed = []
    for i, rule in enumerate(rules):
        try:
            parsed.append(parse_network_rule(f"{rule.action} {rule.target}"))
        except ValueError as error:
            raise InvalidInput(f"{field}.{i}: {error}") from None
    return parsed


def _known_targets(targets: Iterable[str]) -> Iterable[NetworkRule]:
    for target in targets:
        try:
            yield parse_network_rule(f"{RuleAction.ALLOW} {target}")
        except ValueError:
            continue  # No rule can have it.

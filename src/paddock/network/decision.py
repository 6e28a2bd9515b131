"""Decide connections by policy: which rule of a sandbox, its tenant and the server allows a target."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from paddock.config.network_policy import (
    ANY_TARGET,
    NetworkPreset,
    NetworkRule,
    RuleAction,
    RulePorts,
    parse_network_rule,
)
from paddock.model.network import ConnectionRefusal
from paddock.network.addresses import IPAddress, TargetAddresses, network_leads_to

_WEB_RULES = (NetworkRule(RuleAction.ALLOW, name=ANY_TARGET, ports=(RulePorts(80, 80), RulePorts(443, 443))),)
_OPEN_RULES = (NetworkRule(RuleAction.ALLOW, name=ANY_TARGET),)
_LINE = "Allow it with the rule `allow {target}`."


@dataclass(frozen=True)
class ConnectionTarget:
    """Target that a program asked for: a host name or an address, and a port."""

    port: int
    name: str | None = None
    """Host name in lower-case ASCII."""
    address: IPAddress | None = None
    """Address, if the program asked for one instead of a name."""

    @property
    def host(self) -> str:
        return self.name or str(self.address)

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True)
class Decision:
    """Verdict on a connection: the rule that allows it, or the reason to refuse it."""

    allowed: bool
    rule: str | None = None
    refusal: ConnectionRefusal | None = None
    message: str | None = None


@dataclass(frozen=True)
class _Expanded:
    """A rule with its text in the policy; rules of a preset have the preset's text."""

    rule: NetworkRule
    text: str
    trusted: bool = False
    """Whether the operator's configuration names the target, which may then have a private address."""


class PolicyRules:
    """The rules of one policy with expanded presets."""

    def __init__(
        self,
        texts: Sequence[str],
        presets: Mapping[NetworkPreset, Sequence[NetworkRule]],
        setting: str = "network.bound",
    ) -> None:
        """`setting` is that of a bound, for messages."""
        self.texts = tuple(texts)
        self.setting = setting
        self._rules = tuple(_expand_presets(texts, presets))

    def expanded_texts(self) -> tuple[str, ...]:
        return tuple(str(each.rule) for each in self._rules)

    def decide(self, target: ConnectionTarget) -> Decision:
        """Decide by name or requested address, before a name is resolved. The first rule that matches decides."""
        for each in self._rules:
            if _matches(each.rule, target):
                if each.rule.action is RuleAction.ALLOW:
                    return Decision(True, each.text)
                return Decision(False, each.text, ConnectionRefusal.DENY_RULE, f"{target} is denied by `{each.text}`.")
        return Decision(
            False,
            refusal=ConnectionRefusal.NO_RULE,
            message=f"{target} is not allowed by the sandbox's network policy. {_LINE.format(target=target)}",
        )

    def denied_by(self, target: ConnectionTarget, address: IPAddress) -> str | None:
        """Return the deny rule for a resolved address that precedes the rule that allows the target."""
        for each in self._rules:
            if each.rule.network is not None and each.rule.action is RuleAction.DENY:
                if each.rule.includes_port(target.port) and network_leads_to(each.rule.network, address):
                    return each.text
            elif _matches(each.rule, target):
                return None
        return None

    def names_target(self, target: ConnectionTarget) -> bool:
        """Return whether the allowing rule names exactly this host or network, which private targets require."""
        for each in self._rules:
            if _matches(each.rule, target):
                return each.rule.name == target.name if each.rule.network is None else True
        return False

    def trusts_target(self, target: ConnectionTarget) -> bool:
        """Return whether the allowing rule comes from the server's own configuration."""
        return next((each.trusted for each in self._rules if _matches(each.rule, target)), False)


class NetworkPolicyStack:
    """A sandbox's policy and the bounds of its tenant and the server: a connection must pass all of them."""

    def __init__(self, own: PolicyRules, bounds: Iterable[PolicyRules], addresses: TargetAddresses) -> None:
        self._own = own
        self._bounds = tuple(bounds)
        self._addresses = addresses

    def decide(self, target: ConnectionTarget) -> Decision:
        """Decide before a name is resolved; names of denied targets are never looked up."""
        decision = self._own.decide(target)
        if not decision.allowed:
            return decision
        for bound in self._bounds:
            if not (other := bound.decide(target)).allowed:
                return Decision(
                    False,
                    other.rule,
                    ConnectionRefusal.BOUND,
                    f"{target} is outside what this server allows sandboxes; ask its operator "
                    f"(setting {bound.setting}).",
                )
        if target.address is not None:
            return self.decide_address(target, target.address, decision)
        return decision

    def decide_address(self, target: ConnectionTarget, address: IPAddress, allowed: Decision) -> Decision:
        """Decide whether an allowed target may have this address."""
        if reason := self._addresses.forbidden_reason(address, target.port):
            return Decision(False, None, ConnectionRefusal.PRIVATE_ADDRESS, f"{target} is refused: {reason}.")
        for policy in (self._own, *self._bounds):
            if rule := policy.denied_by(target, address):
                return Decision(
                    False, rule, ConnectionRefusal.DENY_RULE, f"{target} leads to {address}, denied by `{rule}`."
                )
        if self._addresses.is_public(address) or self._own.trusts_target(target):
            return allowed
        if self._addresses.operator_allows(address, target.port, target.name) and self._own.names_target(target):
            return allowed
        shown = str(target) if target.name is None else f"{target} leads to {address}, which"
        return Decision(
            False,
            None,
            ConnectionRefusal.PRIVATE_ADDRESS,
            f"{shown} is not a public address. The operator of this server can allow it with network.private_targets: "
            f"['{target.host}'], and the policy must have the rule `allow {target}`.",
        )


def preset_rules(
    git_hosts: Sequence[str], package_targets: Sequence[str]
) -> Mapping[NetworkPreset, Sequence[NetworkRule]]:
    """Return what the presets stand for on this server."""
    return {
        NetworkPreset.OPEN: _OPEN_RULES,
        NetworkPreset.WEB: _WEB_RULES,
        NetworkPreset.GIT: tuple(parse_network_rule(f"allow {host}:443") for host in git_hosts),
        NetworkPreset.PACKAGES: tuple(parse_network_rule(f"allow {target}") for target in package_targets),
    }


def _expand_presets(
    texts: Sequence[str], presets: Mapping[NetworkPreset, Sequence[NetworkRule]]
) -> Iterable[_Expanded]:
    for text in texts:
        rule = _parse_cached(text)
        if rule.preset is None:
            yield _Expanded(rule, text)
            continue
        for each in presets[rule.preset]:
            trusted = rule.preset is NetworkPreset.PACKAGES
            yield _Expanded(each._replace(action=rule.action), text, trusted)


@lru_cache(maxsize=10_000)
def _parse_cached(text: str) -> NetworkRule:
    return parse_network_rule(text)


def _matches(rule: NetworkRule, target: ConnectionTarget) -> bool:
    if not rule.includes_port(target.port):
        return False
    if rule.network is not None:
        return target.address is not None and network_leads_to(rule.network, target.address)
    if rule.name == ANY_TARGET:
        return True
    if rule.name is None or target.name is None:
        return False
    return target.name.endswith(rule.name[1:]) if rule.name.startswith("*.") else target.name == rule.name

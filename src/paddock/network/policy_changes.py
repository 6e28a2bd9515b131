"""Change policies rule by rule: put rules in front, remove rules by target."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from paddock.config.network_policy import NetworkRule, RuleAction, normalize_network_policy, parse_network_rule
from paddock.errors import InvalidInput


def parse_targets(action: RuleAction, targets: Iterable[str]) -> list[NetworkRule]:
    """Return a rule for each target, such as `pypi.org:443`. Raises `InvalidInput` that names the wrong one."""
    try:
        return [parse_network_rule(f"{action} {target}") for target in targets]
    except ValueError as error:
        raise InvalidInput(str(error)) from None


def prepend_rules(policy: Sequence[str], rules: Iterable[NetworkRule]) -> tuple[str, ...]:
    """Put rules in front of a policy, in place of its rules for the same targets; the first of equal targets counts."""
    added: dict[object, NetworkRule] = {}
    for rule in rules:
        added.setdefault(_target_key(rule), rule)
    kept = [text for text in policy if _target_key(parse_network_rule(text)) not in added]
    try:
        return normalize_network_policy([*map(str, added.values()), *kept])
    except ValueError as error:
        raise InvalidInput(f"the policy {error}") from None


def remove_targets(policy: Sequence[str], targets: Iterable[NetworkRule], *, exact: bool = False) -> tuple[str, ...]:
    """Remove the rules of some targets; targets without rules are ignored.

    A target without ports removes the rules of this host with any ports, unless `exact`.
    """
    removed = [_target_key(rule) for rule in targets]
    hosts = set() if exact else {host for host, ports in removed if not ports}
    return tuple(
        text for text in policy if (key := _target_key(parse_network_rule(text))) not in removed and key[0] not in hosts
    )


def _target_key(rule: NetworkRule) -> tuple[object, object]:
    return (rule.preset, rule.name, rule.network), rule.ports

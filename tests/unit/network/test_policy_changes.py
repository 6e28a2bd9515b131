"""Changes of a policy rule by rule, and conversion from and to OpenSandbox's format."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from paddock.api.sandboxes.opensandbox_policy import (
    NetworkPolicyRequest,
    NetworkRuleRequest,
    delete_rules,
    describe_policy,
    patch_rules,
    rules_from_policy,
)
from paddock.config.network_policy import RuleAction
from paddock.errors import InvalidInput
from paddock.network.policy_changes import parse_targets, prepend_rules, remove_targets

POLICY = ("deny bad.example.com", "allow *.example.com:443", "allow packages")


def allow(*targets: str) -> Sequence[NetworkRuleRequest]:
    return [NetworkRuleRequest(action="allow", target=target) for target in targets]


def test_new_rules_are_put_in_front_in_place_of_those_for_the_same_target() -> None:
    rules = parse_targets(RuleAction.ALLOW, ["pypi.org:443", "BAD.example.com.", "PyPI.org:443"])
    assert prepend_rules(POLICY, rules) == (
        "allow pypi.org:443",
        "allow bad.example.com",
        "allow *.example.com:443",
        "allow packages",
    )


def test_targets_with_other_ports_are_other_targets() -> None:
    rules = parse_targets(RuleAction.DENY, ["*.example.com:80"])
    assert prepend_rules(POLICY, rules) == ("deny *.example.com:80", *POLICY)


def test_removed_target_without_ports_means_any_ports() -> None:
    targets = parse_targets(RuleAction.ALLOW, ["*.example.com", "packages", "unknown.org"])
    assert remove_targets(POLICY, targets) == POLICY[:1]
    assert remove_targets(POLICY, targets, exact=True) == POLICY[:2]
    assert remove_targets(POLICY, parse_targets(RuleAction.ALLOW, ["*.example.com:80"])) == POLICY


@pytest.mark.parametrize("target", ["", "a b", "deny x.org", "exa*mple.com", "10.0.0.1/8", "pypi.org:0"])
def test_invalid_targets_are_refused(target: str) -> None:
    with pytest.raises(InvalidInput, match="rule 'allow"):
        parse_targets(RuleAction.ALLOW, [target])


def test_too_many_rules_are_refused() -> None:
    with pytest.raises(InvalidInput, match="the policy has 1001 rules"):
        prepend_rules(POLICY[:1], parse_targets(RuleAction.ALLOW, [f"h{i}.org" for i in range(1000)]))


@pytest.mark.parametrize(
    ("document", "rules"),
    [
        ({}, ()),
        ({"defaultAction": "allow"}, ("allow open",)),
        ({"defaultAction": "deny", "egress": None}, ()),
        (
            {"defaultAction": "allow", "egress": [{"action": "deny", "target": "*.Bad.example"}]},
            ("deny *.bad.example", "allow open"),
        ),
        ({"egress": [{"action": "allow", "target": "10.0.0.0/8"}]}, ("allow 10.0.0.0/8",)),
    ],
)
def test_opensandbox_policy_becomes_rules(document: dict[str, object], rules: tuple[str, ...]) -> None:
    assert rules_from_policy(NetworkPolicyRequest.model_validate(document)) == rules


@pytest.mark.parametrize(
    ("rules", "mode", "default", "egress"),
    [
        ((), "deny_all", "deny", []),
        (("allow open",), "allow_all", "allow", []),
        (("deny a.org", "allow open"), "enforcing", "allow", [("deny", "a.org")]),
        (("allow open", "deny a.org"), "enforcing", "deny", [("allow", "open"), ("deny", "a.org")]),
        (POLICY[1:], "enforcing", "deny", [("allow", "*.example.com:443"), ("allow", "packages")]),
    ],
)
def test_rules_are_shown_as_opensandbox_policy(
    rules: tuple[str, ...], mode: str, default: str, egress: list[tuple[str, str]]
) -> None:
    shown = describe_policy(rules, ("allow web",))
    assert (shown.mode, shown.policy.default_action) == (mode, default)
    assert [(rule.action, rule.target) for rule in shown.policy.egress] == egress
    assert shown.enforcement_mode == "relay" and "allow web" in (shown.reason or "")


def test_shown_policy_can_be_sent_back() -> None:
    for rules in (POLICY, (*POLICY, "allow open"), ("allow [2001:db8::1]:443",)):
        shown = describe_policy(rules, ()).policy.model_dump(by_alias=True)
        assert rules_from_policy(NetworkPolicyRequest.model_validate(shown)) == rules


def test_default_action_survives_changes() -> None:
    current = ("deny a.org", "allow open")
    assert patch_rules(current, allow("b.org", "a.org")) == ("allow b.org", "allow a.org", "allow open")
    assert delete_rules(current, ["open", "a.org", "not a target"]) == ("allow open",)

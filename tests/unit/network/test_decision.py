"""Decisions about connections: order of rules, bounds, and addresses that names lead to."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from paddock.config.units import PortRange
from paddock.model.network import ConnectionRefusal
from paddock.network.addresses import TargetAddresses, parse_address
from paddock.network.decision import ConnectionTarget, Decision, NetworkPolicyStack, PolicyRules, preset_rules

PRESETS = preset_rules(["git.example", "*.git.example"], ["index.example:443", "10.9.9.9:8080"])
PUBLIC = ip_address("93.184.216.34")


def policy(
    rules: list[str],
    *bounds: list[str],
    private_targets: tuple[str, ...] = (),
    published: PortRange | None = None,
) -> NetworkPolicyStack:
    addresses = TargetAddresses(private_targets, published)
    return NetworkPolicyStack(PolicyRules(rules, PRESETS), [PolicyRules(bound, PRESETS) for bound in bounds], addresses)


def named(name: str, port: int = 443) -> ConnectionTarget:
    return ConnectionTarget(port, name=name)


def literal(address: str, port: int = 443) -> ConnectionTarget:
    return ConnectionTarget(port, address=ip_address(address))


def decide(stack: NetworkPolicyStack, target: ConnectionTarget, address: str = str(PUBLIC)) -> Decision:
    decision = stack.decide(target)
    if decision.allowed and target.address is None:
        return stack.decide_address(target, ip_address(address), decision)
    return decision


@pytest.mark.parametrize(
    ("rules", "target", "allowed"),
    [
        ([], named("a.example"), False),
        (["allow a.example"], named("a.example"), True),
        (["allow a.example"], named("b.a.example"), False),
        (["allow *.a.example"], named("b.a.example"), True),
        (["allow *.a.example"], named("c.b.a.example"), True),
        (["allow *.a.example"], named("a.example"), False),
        (["allow *.a.example"], named("evila.example"), False),
        (["allow a.example:443"], named("a.example", 80), False),
        (["allow a.example:8000-8100"], named("a.example", 8050), True),
        (["deny a.example", "allow open"], named("a.example"), False),
        (["allow open", "deny a.example"], named("a.example"), True),
        (["allow web"], named("a.example", 80), True),
        (["allow web"], named("a.example", 22), False),
        (["allow open"], named("a.example", 22), True),
        (["allow git"], named("x.git.example"), True),
        (["allow git"], named("git.example", 80), False),
        (["allow packages"], named("index.example"), True),
        (["allow packages"], named("other.example"), False),
        (["deny packages", "allow open"], named("index.example"), False),
        (["allow 93.184.216.0/24"], literal("93.184.216.34"), True),
        (["allow 93.184.216.0/24:80"], literal("93.184.216.34"), False),
        (["allow 93.184.216.0/24"], named("a.example"), False),
        (["allow open"], literal("93.184.216.34", 1), True),
        (["allow 2606:2800::/32"], literal("2606:2800::1"), True),
    ],
)
def test_first_matching_rule_decides(rules: list[str], target: ConnectionTarget, allowed: bool) -> None:
    assert decide(policy(rules), target).allowed is allowed


def test_refusal_names_the_rule_to_add() -> None:
    decision = policy([]).decide(named("a.example"))
    assert decision.refusal is ConnectionRefusal.NO_RULE
    assert "`allow a.example:443`" in (decision.message or "")
    assert "`allow [2606:2800::1]:443`" in (policy([]).decide(literal("2606:2800::1")).message or "")
    assert "`deny a.example`" in (policy(["deny a.example"]).decide(named("a.example")).message or "")


def test_connection_must_pass_every_bound() -> None:
    own = ["allow open"]
    assert decide(policy(own, ["allow open"], ["allow web"]), named("a.example")).allowed
    refused = decide(policy(own, ["allow open"], ["allow web"]), named("a.example", 22))
    assert refused.refusal is ConnectionRefusal.BOUND
    assert decide(policy(own, []), named("a.example")).refusal is ConnectionRefusal.BOUND


@pytest.mark.parametrize(
    "address",
    [
        *(
            "127.0.0.1",
            "10.0.0.1",
            "192.168.1.1",
            "172.16.0.1",
            "169.254.169.254",
            "0.0.0.0",
            "100.64.0.1",
            "224.0.0.1",
        ),
        *("::1", "::", "fe80::1", "fc00::1", "::ffff:10.0.0.1", "::ffff:127.0.0.1", "64:ff9b::a00:1", "2002:a00:1::"),
    ],
)
def test_private_addresses_are_refused_whatever_leads_there(address: str) -> None:
    for stack, target in (
        (policy(["allow open"]), named("a.example")),
        (policy(["allow open"]), literal(address)),
        (policy([f"allow {address}"]), literal(address)),
        (policy(["allow a.example"]), named("a.example")),
    ):
        assert decide(stack, target, address).refusal is ConnectionRefusal.PRIVATE_ADDRESS


def test_private_targets_need_operator_and_rule() -> None:
    allowed_by_operator = ("site.internal", "10.1.0.0/16")
    assert decide(
        policy(["allow site.internal"], private_targets=allowed_by_operator), named("site.internal"), "10.0.0.1"
    ).allowed
    assert decide(policy(["allow 10.1.2.3"], private_targets=allowed_by_operator), literal("10.1.2.3")).allowed
    # A wildcard does not name the target.
    for rules in (["allow open"], ["allow *.internal"], ["allow web"]):
        refused = decide(policy(rules, private_targets=allowed_by_operator), named("site.internal"), "10.0.0.1")
        assert refused.refusal is ConnectionRefusal.PRIVATE_ADDRESS
    refused = decide(
        policy(["allow other.internal"], private_targets=allowed_by_operator), named("other.internal"), "10.0.0.1"
    )
    assert "network.private_targets: ['other.internal']" in (refused.message or "")


def test_package_indexes_may_be_private() -> None:
    assert decide(policy(["allow packages"]), named("index.example"), "10.0.0.5").allowed
    assert decide(policy(["allow packages"]), literal("10.9.9.9", 8080)).allowed


def test_metadata_services_and_paddock_itself_are_always_refused() -> None:
    stack = policy(
        ["allow 169.254.169.254", "allow 127.0.0.1"],
        private_targets=("169.254.169.254", "127.0.0.1"),
        published=PortRange(20000, 29999),
    )
    stack._addresses.refuse_port(8420)
    assert not decide(stack, literal("169.254.169.254")).allowed
    assert not decide(stack, literal("127.0.0.1", 8420)).allowed
    assert not decide(stack, literal("127.0.0.1", 20001)).allowed
    assert decide(stack, literal("127.0.0.1", 9000)).allowed


def test_deny_rules_of_networks_apply_to_resolved_addresses() -> None:
    stack = policy(["deny 93.184.216.0/24", "allow open"])
    assert decide(stack, named("a.example")).refusal is ConnectionRefusal.DENY_RULE
    assert decide(policy(["allow a.example", "deny 93.184.216.0/24"]), named("a.example")).allowed


@pytest.mark.parametrize("text", ["127.1", "2130706433", "0x7f000001", "0177.0.0.1", "017700000001"])
def test_numeric_spellings_are_addresses(text: str) -> None:
    assert parse_address(text) == ip_address("127.0.0.1")

"""Network policies of sandboxes: rules in order, written as text such as `allow *.example.com:443`.

A policy is a tuple of rule texts in canonical form, so that task files, requests, the database and the console share
one form. The first rule that matches decides; a connection that no rule matches is denied. The empty policy is `none`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Annotated, NamedTuple, TypeAlias

from pydantic import BeforeValidator, WithJsonSchema

from paddock.config.network_targets import HOST_NAME

MAX_RULES = 1000
NO_NETWORK = "none"
ANY_TARGET = "*"
_PORTS = re.compile(r"[0-9]{1,5}(-[0-9]{1,5})?(,[0-9]{1,5}(-[0-9]{1,5})?)*", re.ASCII)
_RULE_KEYS = frozenset({"allow", "deny", "ports"})


class NetworkPreset(StrEnum):
    """Named sets of targets that the server expands when it checks a connection."""

    OPEN = "open"
    """Every public address."""
    WEB = "web"
    """Ports 80 and 443 of every public address."""
    PACKAGES = "packages"
    """The package indexes that the server's own pip, npm and apt use."""
    GIT = "git"
    """HTTPS of common Git hosts (`network.git_hosts`)."""


class RuleAction(StrEnum):
    ALLOW = "allow"
    DENY = "deny"


class RulePorts(NamedTuple):
    """Ports from `first` to `last`, inclusive."""

    first: int
    last: int

    def __str__(self) -> str:
        return str(self.first) if self.first == self.last else f"{self.first}-{self.last}"


class NetworkRule(NamedTuple):
    """One rule of a policy; exactly one of `preset`, `name` and `network` is set."""

    action: RuleAction
    preset: NetworkPreset | None = None
    name: str | None = None
    """Host name in lower case, `*.` before a name for its subdomains, or `*` for every target."""
    network: IPv4Network | IPv6Network | None = None
    ports: tuple[RulePorts, ...] = ()
    """Empty for every port."""

    @property
    def target(self) -> str:
        if self.network is None:
            return str(self.preset or self.name)
        network = self.network
        text = str(network.network_address) if network.prefixlen == network.max_prefixlen else str(network)
        return f"[{text}]" if self.ports and network.version == 6 else text

    def __str__(self) -> str:
        ports = ":" + ",".join(map(str, self.ports)) if self.ports else ""
        return f"{self.action} {self.target}{ports}"

    def includes_port(self, port: int) -> bool:
        return not self.ports or any(each.first <= port <= each.last for each in self.ports)


def parse_network_rule(text: str) -> NetworkRule:
    """Parse `[allow|deny] TARGET[:PORTS]`. Raises `ValueError` that names the rule and the fix."""
    words = text.split()
    action = RuleAction(words.pop(0).lower()) if words and words[0].lower() in tuple(RuleAction) else RuleAction.ALLOW
    if len(words) != 1 or len(text) > 1000:
        raise ValueError(f"rule {text[:80]!r} must be 'allow TARGET' or 'deny TARGET', such as 'allow pypi.org:443'")
    target = words[0]
    if target in tuple(NetworkPreset):
        return NetworkRule(action, preset=NetworkPreset(target))
    host, ports = _split_ports(text, target)
    if host == ANY_TARGET:
        return NetworkRule(action, name=ANY_TARGET, ports=ports)
    try:
        return NetworkRule(action, network=ip_network(host.strip("[]")), ports=ports)
    except ValueError as error:
        if "host bits" in str(error):
            fixed = ip_network(host.strip("[]"), strict=False)
            raise ValueError(f"rule {text[:80]!r}: {host} has host bits set; write {fixed}") from None
    return NetworkRule(action, name=_parse_name(text, host), ports=ports)


def normalize_network_policy(value: object) -> tuple[str, ...]:
    """Return the canonical rule texts of a policy in any accepted form. Raises `ValueError`.

    Accepted: `none`, a preset, a rule, or a list of rules; a rule is text or a mapping such as
    `{allow: pypi.org, ports: 443}`.
    """
    if value is None or value == NO_NETWORK:
        return ()
    if isinstance(value, str) and value.isalnum() and value not in tuple(NetworkPreset):
        # A single word is more likely a misspelled preset than a host; hosts can be written as rules.
        raise ValueError(
            f"{value[:80]!r} is not one of none, open, web, packages and git; write a host as 'allow HOST'"
        )
    if isinstance(value, (str, Mapping)):
        value = [value]
    if not isinstance(value, Sequence):
        raise ValueError("must be none, open, web, packages, git, or a list of rules such as 'allow pypi.org:443'")
    texts = tuple(text for item in value for text in _rule_texts(item))
    if len(texts) > MAX_RULES:
        raise ValueError(f"has {len(texts)} rules; a policy may have {MAX_RULES}")
    return tuple(str(parse_network_rule(text)) for text in texts)


def describe_network_policy(rules: Sequence[str]) -> str:
    """Return a policy in short words: `none`, a preset's name, or its rules."""
    if not rules:
        return NO_NETWORK
    return ", ".join(rule.removeprefix("allow ") for rule in rules)


NetworkRules: TypeAlias = Annotated[
    tuple[str, ...],
    BeforeValidator(normalize_network_policy),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string"},
                {
                    "type": "array",
                    "maxItems": MAX_RULES,
                    "items": {
                        "anyOf": [
                            {"type": "string"},
                            {
                                "type": "object",
                                "additionalProperties": False,
                                "properties": {
                                    name: {"anyOf": [{"type": kind}, {"type": "array", "items": {"type": kind}}]}
                                    for name, kind in (("allow", "string"), ("deny", "string"))
                                }
                                | {"ports": {"anyOf": [{"type": "integer"}, {"type": "string"}, {"type": "array"}]}},
                            },
                        ]
                    },
                },
            ]
        }
    ),
]
"""Field type of a policy: any accepted form, kept as canonical rule texts."""


def _rule_texts(item: object) -> Iterator[str]:
    """Yield the rule texts of one list entry."""
    if isinstance(item, str):
        if item.strip().lower() == NO_NETWORK:
            raise ValueError("'none' stands alone; leave it out of a list of rules")
        yield item
        return
    if not isinstance(item, Mapping) or len(item.keys() & {"allow", "deny"}) != 1 or not item.keys() <= _RULE_KEYS:
        raise ValueError(f"rule {str(item)[:80]!r} must be text or have one of 'allow' and 'deny', and maybe 'ports'")
    action = "allow" if "allow" in item else "deny"
    targets = item[action] if isinstance(item[action], list) else [item[action]]
    ports = item.get("ports", [])
    suffix = ",".join(map(str, ports if isinstance(ports, list) else [ports]))
    for target in targets:
        host = f"[{target}]" if suffix and str(target).count(":") > 1 and "[" not in str(target) else target
        yield f"{action} {host}:{suffix}" if suffix else f"{action} {host}"


def _split_ports(rule: str, target: str) -> tuple[str, tuple[RulePorts, ...]]:
    """Split `HOST:PORTS`; IPv6 needs brackets to have ports."""
    host, separator, ports = target.rpartition(":")
    if not separator or (":" in host and not host.endswith("]")):
        return target, ()
    if not _PORTS.fullmatch(ports):
        raise ValueError(f"rule {rule[:80]!r}: {ports!r} must be ports such as 443, 80,443 or 8000-8100")
    found = []
    for part in ports.split(","):
        first, _, last = part.partition("-")
        each = RulePorts(int(first), int(last or first))
        if not 1 <= each.first <= each.last <= 65535:
            raise ValueError(f"rule {rule[:80]!r}: {part} is not a range of ports from 1 to 65535")
        found.append(each)
    return host, tuple(found)


def _parse_name(rule: str, host: str) -> str:
    wildcard, bare = (host[:2], host[2:]) if host.startswith("*.") else ("", host)
    name = encode_host_name(bare)
    if name is None or name.rpartition(".")[2].isdigit():
        hint = "; put the wildcard before a whole name, such as *.example.com" if "*" in bare else ""
        raise ValueError(f"rule {rule[:80]!r}: {host!r} is not a host name, an address or a network{hint}")
    return wildcard + name


def encode_host_name(name: str) -> str | None:
    """Return a host name in lower-case ASCII (IDNA) without a trailing dot, or `None` if it is not one."""
    name = name.strip().lower().removesuffix(".")
    if not name.isascii():
        import idna  # Imported late, because its tables are large and such names are rare.

        try:
            name = idna.encode(name, uts46=True).decode()
        except idna.IDNAError:
            return None
    return name if HOST_NAME.fullmatch(name) else None

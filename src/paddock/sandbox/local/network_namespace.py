"""Network of a sandbox: loopback only, every address local, TCP and DNS redirected to the daemon.

A connection to any address ends at the daemon, which passes it to the server. There is no interface to the outside, so
these rules make programs work and protect nothing.

Speaks netlink itself, so that a start needs no other program. Standard library only: the launcher process imports it.
"""

from __future__ import annotations

import os
import socket
import struct
import sys

CONNECTION_PORT = 8419
"""Loopback port of the daemon for TCP connections to any other address."""
DNS_PORT = 8418
"""Loopback port of the daemon for DNS queries to any address."""
DNS = 53
NEW_PER_SECOND = 1_000
NEW_BURST = 10_000
"""Connections and queries to other addresses; more are dropped: TCP tries again, and a query fails."""
SYSCTLS = {
    "ipv4/ip_unprivileged_port_start": 0,
    # Ended connections are forgotten soon, because all sandboxes and the host share the table.
    "netfilter/nf_conntrack_udp_timeout": 5,
    "netfilter/nf_conntrack_udp_timeout_stream": 5,
    "netfilter/nf_conntrack_tcp_timeout_time_wait": 10,
}

NLM_F_REQUEST = 0x1
NLM_F_ACK = 0x4
NLM_F_CREATE = 0x400
NLM_F_APPEND = 0x800
NLMSG_ERROR = 2
NLA_F_NESTED = 0x8000
RECEIVE_BYTES = 65536

# rtnetlink
RTM_NEWLINK = 16
RTM_NEWADDR = 20
RTM_NEWROUTE = 24
IFA_LOCAL = 2
RTA_OIF = 4
RTA_PREFSRC = 7
IFF_UP = 1
LOOPBACK_INDEX = 1
RT_TABLE_LOCAL = 255
RTPROT_BOOT = 3
RT_SCOPE_HOST = 254
RTN_LOCAL = 2

# nfnetlink and nf_tables
NETLINK_NETFILTER = 12
NFNL_SUBSYS_NFTABLES = 10
NFNL_MSG_BATCH_BEGIN = 16
NFNL_MSG_BATCH_END = 17
NFT_MSG_NEWTABLE = NFNL_SUBSYS_NFTABLES << 8
NFT_MSG_NEWCHAIN = NFNL_SUBSYS_NFTABLES << 8 | 3
NFT_MSG_NEWRULE = NFNL_SUBSYS_NFTABLES << 8 | 6
NFPROTO_INET = 1
NFPROTO_IPV4 = 2
NFPROTO_IPV6 = 10
NF_INET_LOCAL_OUT = 3
PRIORITY_BEFORE_TRACKING = -300
PRIORITY_NAT = -100
PRIORITY_FILTER = 0
VERDICT_REGISTER = 0
REGISTER = 1
META_NFPROTO = 15
META_L4PROTO = 16
NETWORK_HEADER = 1
TRANSPORT_HEADER = 2
CT_STATE = 0
CT_STATE_NEW = 8
LIMIT_EXCEEDED = 1
NF_DROP = 0
EQUAL = 0
NOT_EQUAL = 1

LOOPBACK = bytes([127, 0, 0, 1])
SECOND_LOOPBACK = bytes([127, 0, 0, 2])
"""An additional address: with 127.0.0.1 alone, glibc takes the sandbox for one without IPv4 (`AI_ADDRCONFIG`)."""
TABLE = b"paddock\0"
SOURCE_PORT_OFFSET = 0
TARGET_PORT_OFFSET = 2
IPV4_LOOPBACK = (16, b"\x7f")
IPV6_LOOPBACK = (24, socket.inet_pton(socket.AF_INET6, "::1"))
"""Offset of the target address in the header, with the bytes that loopback addresses start with."""


def configure_network() -> bool:
    """Configure the new network namespace of this process; False if the kernel refuses the redirect rules.

    Raises `OSError` if not even loopback works.
    """
    add_local_routes()
    try:
        add_redirect_rules()
        redirected = True
    except OSError:
        redirected = False
    for name, value in SYSCTLS.items():  # After the rules, which may load the module that has them.
        try:
            with open(f"/proc/sys/net/{name}", "w") as file:
                file.write(str(value))
        except OSError:
            pass  # Read-only in some containers; then programs cannot listen on ports below 1024.
    return redirected


def add_local_routes() -> None:
    """Bring loopback up and make every address local to it."""
    link_up = struct.pack("=BxHiII", socket.AF_UNSPEC, 0, LOOPBACK_INDEX, IFF_UP, IFF_UP)
    address = struct.pack("=4BI", socket.AF_INET, 32, 0, RT_SCOPE_HOST, LOOPBACK_INDEX)
    address += attribute(IFA_LOCAL, SECOND_LOOPBACK)
    # Programs that look for their own address by connecting somewhere must find loopback.
    ipv4_route = local_default_route(socket.AF_INET) + attribute(RTA_PREFSRC, LOOPBACK)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as netlink:
        send_netlink_request(netlink, message(RTM_NEWLINK, NLM_F_ACK, link_up))
        send_netlink_request(netlink, message(RTM_NEWADDR, NLM_F_ACK | NLM_F_CREATE, address))
        send_netlink_request(netlink, message(RTM_NEWROUTE, NLM_F_ACK | NLM_F_CREATE, ipv4_route))
        try:
            send_netlink_request(
                netlink, message(RTM_NEWROUTE, NLM_F_ACK | NLM_F_CREATE, local_default_route(socket.AF_INET6))
            )
        except OSError:
            pass  # The kernel has no IPv6.


def local_default_route(family: int) -> bytes:
    header = struct.pack("=8BI", family, 0, 0, 0, RT_TABLE_LOCAL, RTPROT_BOOT, RT_SCOPE_HOST, RTN_LOCAL, 0)
    return header + attribute(RTA_OIF, struct.pack("=I", LOOPBACK_INDEX))


def add_redirect_rules() -> None:
    """Add the nftables rules in one transaction. Raises `OSError` if the kernel lacks a part."""
    dns = struct.pack(">H", DNS)
    tcp, udp = (load_meta(META_L4PROTO) + compare(EQUAL, bytes([each])) for each in (6, 17))
    to_dns = load_target_port() + compare(EQUAL, dns)
    not_to_dns = load_target_port() + compare(NOT_EQUAL, dns)
    families = (NFPROTO_IPV4, NFPROTO_IPV6)
    chains = [
        # Connections within the sandbox need no tracking.
        new_chain(b"untracked\0", b"filter\0", PRIORITY_BEFORE_TRACKING),
        *(
            new_rule(
                b"untracked\0", to_loopback(family, EQUAL), from_other_ports(), not_to_dns, expression(b"notrack\0")
            )
            for family in families
        ),
        new_chain(b"redirect\0", b"nat\0", PRIORITY_NAT),
        new_rule(b"redirect\0", udp, to_dns, redirect(DNS_PORT)),
        new_rule(b"redirect\0", tcp, to_dns, redirect(DNS_PORT)),
        *(
            new_rule(b"redirect\0", to_loopback(family, NOT_EQUAL), tcp, redirect(CONNECTION_PORT))
            for family in families
        ),
        # Tracked connections take memory that belongs to no sandbox, and are in one table with the host's.
        new_chain(b"limit\0", b"filter\0", PRIORITY_FILTER),
        new_rule(b"limit\0", is_new_connection(), exceeds_rate(), drop(), flags=NLM_F_ACK),
    ]
    messages = [
        batch_message(NFNL_MSG_BATCH_BEGIN, 0, b"", NFNL_SUBSYS_NFTABLES),
        batch_message(NFT_MSG_NEWTABLE, NLM_F_CREATE, attribute(1, TABLE)),
        *chains,
        batch_message(NFNL_MSG_BATCH_END, 0, b"", NFNL_SUBSYS_NFTABLES),
    ]
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_NETFILTER) as netlink:
        send_netlink_request(netlink, b"".join(messages))


def send_netlink_request(netlink: socket.socket, request: bytes) -> None:
    """Send messages, of which the last asks for an acknowledgement; raise `OSError` for the first error."""
    netlink.send(request)
    kind, error = struct.unpack_from("=4xH10xi", netlink.recv(RECEIVE_BYTES))
    if kind != NLMSG_ERROR or error:
        raise OSError(-error, f"netlink: {os.strerror(-error)}")


def message(kind: int, flags: int, payload: bytes) -> bytes:
    return struct.pack("=IHHII", 16 + len(payload), kind, NLM_F_REQUEST | flags, 0, 0) + payload


def batch_message(kind: int, flags: int, attributes: bytes, resource: int = 0) -> bytes:
    family = 0 if resource else NFPROTO_INET
    return message(kind, flags, struct.pack(">BBH", family, 0, resource) + attributes)


def attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)


def number(kind: int, value: int) -> bytes:
    return attribute(kind, struct.pack(">i", value))


def nested(kind: int, *attributes: bytes) -> bytes:
    return attribute(kind | NLA_F_NESTED, b"".join(attributes))


def new_chain(name: bytes, kind: bytes, priority: int) -> bytes:
    hook = nested(4, number(1, NF_INET_LOCAL_OUT), number(2, priority))
    attributes = attribute(1, TABLE) + attribute(3, name) + hook + attribute(7, kind)
    return batch_message(NFT_MSG_NEWCHAIN, NLM_F_CREATE, attributes)


def new_rule(chain: bytes, *expressions: bytes, flags: int = 0) -> bytes:
    attributes = attribute(1, TABLE) + attribute(2, chain) + nested(4, *expressions)
    return batch_message(NFT_MSG_NEWRULE, NLM_F_CREATE | NLM_F_APPEND | flags, attributes)


def expression(name: bytes, *attributes: bytes) -> bytes:
    return nested(1, attribute(1, name), nested(2, *attributes))


def load_meta(key: int) -> bytes:
    return expression(b"meta\0", number(2, key), number(1, REGISTER))


def load_header(header: int, offset: int, length: int) -> bytes:
    attributes = number(1, REGISTER), number(2, header), number(3, offset), number(4, length)
    return expression(b"payload\0", *attributes)


def load_target_port() -> bytes:
    return load_header(TRANSPORT_HEADER, TARGET_PORT_OFFSET, 2)


def compare(operator: int, value: bytes) -> bytes:
    return expression(b"cmp\0", number(1, REGISTER), number(2, operator), nested(3, attribute(1, value)))


def to_loopback(family: int, operator: int) -> bytes:
    """Match packets of a family by whether their target is a loopback address."""
    offset, start = IPV4_LOOPBACK if family == NFPROTO_IPV4 else IPV6_LOOPBACK
    address = load_header(NETWORK_HEADER, offset, len(start)) + compare(operator, start)
    return load_meta(META_NFPROTO) + compare(EQUAL, bytes([family])) + address


def from_other_ports() -> bytes:
    """Match packets that are no replies of the daemon's redirected ports."""
    ports = (compare(NOT_EQUAL, struct.pack(">H", port)) for port in (CONNECTION_PORT, DNS_PORT))
    return load_header(TRANSPORT_HEADER, SOURCE_PORT_OFFSET, 2) + b"".join(ports)


def redirect(port: int) -> bytes:
    value = nested(2, attribute(1, struct.pack(">H", port)))
    return expression(b"immediate\0", number(1, REGISTER), value) + expression(b"redir\0", number(1, REGISTER))


def is_new_connection() -> bytes:
    state = expression(b"ct\0", number(2, CT_STATE), number(1, REGISTER))
    mask, nothing = (nested(kind, attribute(1, struct.pack("=I", bits))) for kind, bits in ((4, CT_STATE_NEW), (5, 0)))
    only_new = expression(b"bitwise\0", number(1, REGISTER), number(2, REGISTER), number(3, 4), mask, nothing)
    return state + only_new + compare(NOT_EQUAL, bytes(4))


def exceeds_rate() -> bytes:
    rate, second = (attribute(kind, struct.pack(">Q", value)) for kind, value in ((1, NEW_PER_SECOND), (2, 1)))
    return expression(b"limit\0", rate, second, number(3, NEW_BURST), number(5, LIMIT_EXCEEDED))


def drop() -> bytes:
    verdict = nested(2, nested(2, number(1, NF_DROP)))
    return expression(b"immediate\0", number(1, VERDICT_REGISTER), verdict)


if __name__ == "__main__":
    sys.exit(0 if configure_network() else 1)

"""Which addresses MCP servers of tasks may have."""

from __future__ import annotations

import pytest

from paddock.config.mcp import McpConfig
from paddock.config.network_targets import parse_allowed_target
from paddock.config.units import PortRange
from paddock.errors import Forbidden
from paddock.mcp.address_policy import McpAddressPolicy

pytestmark = pytest.mark.anyio
EVERYTHING = ("0.0.0.0/0", "::/0")


@pytest.mark.parametrize(
    "host",
    [
        "169.254.169.254",
        "::ffff:169.254.169.254",
        "64:ff9b::a9fe:a9fe",
        "2002:a9fe:a9fe::",
        "169.254.170.2",
        "fd00:ec2::254",
        "100.100.100.200",
        "168.63.129.16",
        "0.0.0.0",
        "::",
        "224.0.0.1",
        "ff02::1",
    ],
)
def test_metadata_services_multicast_and_unspecified_are_always_refused(host: str) -> None:
    with pytest.raises(Forbidden, match="may not have the address"):
        McpAddressPolicy(EVERYTHING).check_address(host, 80)


PRIVATE = [
    "127.0.0.1",
    "127.1",
    "2130706433",
    "0x7f000001",
    "localhost",
    "x.localhost.",
    "::1",
    "::ffff:127.0.0.1",
    "::127.0.0.1",
    "64:ff9b::10.0.0.7",
    "64:ff9b:1::1",
    "2002:0a00:0007::",
    "10.0.0.7",
    "172.16.1.1",
    "192.168.1.1",
    "100.64.0.1",
    "192.0.2.1",
    "240.0.0.1",
    "fd12::1",
    "fec0::1",
]


@pytest.mark.parametrize("host", PRIVATE)
def test_private_and_local_addresses_need_the_setting(host: str) -> None:
    with pytest.raises(Forbidden, match=r"not a public address.* setting mcp.allow"):
        McpAddressPolicy().check_address(host, 80)
    McpAddressPolicy(EVERYTHING).check_address(host, 80)


@pytest.mark.parametrize("host", ["fe80::1", "fe80::1%eth0", "169.254.7.7"])
def test_link_local_addresses_are_allowed_only_by_name_of_their_network(host: str) -> None:
    with pytest.raises(Forbidden, match="not a public address"):
        McpAddressPolicy(EVERYTHING).check_address(host, 80)
    McpAddressPolicy(("fe80::/10", "169.254.7.0/24")).check_address(host, 80)


@pytest.mark.parametrize("host", ["93.184.216.34", "2606:2800:220:1:248:1893:25c8:1946", "64:ff9b::5db8:d822", "a.b"])
def test_public_addresses_need_no_setting(host: str) -> None:
    McpAddressPolicy().check_address(host, 80)


def test_an_entry_may_name_one_port() -> None:
    reach = McpAddressPolicy(("10.1.0.0/16:9000", "[fd12::1]:9000"))
    reach.check_address("10.1.2.3", 9000)
    reach.check_address("fd12::1", 9000)
    for host, port in (("10.1.2.3", 9001), ("10.2.0.1", 9000), ("fd12::2", 9000)):
        with pytest.raises(Forbidden, match="not a public address"):
            reach.check_address(host, port)


async def test_allowed_name_may_resolve_to_private_address() -> None:
    reach = McpAddressPolicy(("localhost:9000",))
    assert (await reach.resolve("localhost", 9000))[0]["host"] == "127.0.0.1"
    with pytest.raises(Forbidden, match=r"localhost leads to 127.0.0.1:9001, .*mcp.allow: \['localhost'\]"):
        await reach.resolve("localhost", 9001)
    with pytest.raises(Forbidden, match="not a public address"):
        reach.check_address("127.0.0.1", 9000)  # The name is allowed, not the address.


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1", "localhost"])
def test_ports_of_paddock_and_of_sandboxes_are_refused_even_if_listed(host: str) -> None:
    reach = McpAddressPolicy((*EVERYTHING, "localhost"), PortRange(20000, 20010))
    reach.refuse_port(8420)
    reach.check_address(host, 8421)
    with pytest.raises(Forbidden, match="is Paddock itself"):
        reach.check_address(host, 8420)
    with pytest.raises(Forbidden, match=r"sandboxes\.port_range"):
        reach.check_address(host, 20010)
    reach.check_address("192.0.2.1", 8420)  # Another machine's.
    reach.check_address("192.0.2.1", 20000)


@pytest.mark.parametrize("name", ["localhost", "127.1", "2130706433", "0x7f000001"])
async def test_host_names_are_checked_by_their_addresses(name: str) -> None:
    reach = McpAddressPolicy(EVERYTHING)
    reach.refuse_port(8420)
    assert (await reach.resolve(name, 8421))[0]["host"] == "127.0.0.1"
    with pytest.raises(Forbidden, match="is Paddock itself"):
        await reach.resolve(name, 8420)
    await reach.close()


@pytest.mark.parametrize(
    "text", ["", "a b", "10.0.0.1/8", "host:0", "host:70000", "[host]:80", "1.2.3.400", "http://x"]
)
def test_invalid_entries_are_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="is not a host name, an address or a network"):
        parse_allowed_target(text)
    with pytest.raises(ValueError, match="is not a host name"):
        McpConfig(allow=(text,))

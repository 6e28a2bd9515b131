"""Where MCP servers of tasks may be, and where not."""

from __future__ import annotations

import pytest

from paddock.errors import Forbidden
from paddock.mcp.reach import Reach

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    "host",
    [
        "169.254.169.254",
        "::ffff:169.254.169.254",
        "64:ff9b::a9fe:a9fe",
        "2002:a9fe:a9fe::",
        "fe80::1",
        "fe80::1%eth0",
        "fd00:ec2::254",
        "100.100.100.200",
        "168.63.129.16",
        "0.0.0.0",
        "::",
        "224.0.0.1",
        "ff02::1",
    ],
)
def test_what_clouds_tell_their_machines_and_what_is_nobodys_address_is_refused(host: str) -> None:
    with pytest.raises(Forbidden, match="no address that an MCP server of a task may have"):
        Reach().check(host, 80)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "10.0.0.7", "192.168.1.1", "fd12::1", "93.184.216.34", "a.b"])
def test_this_machine_and_its_network_are_not(host: str) -> None:
    Reach().check(host, 80)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"])
def test_paddock_itself_is_refused_by_every_address_of_this_machine(host: str) -> None:
    reach = Reach()
    reach.refuse_port(8420)
    reach.check(host, 8421)
    with pytest.raises(Forbidden, match="is Paddock itself"):
        reach.check(host, 8420)
    reach.check("192.0.2.1", 8420)  # Somebody else's.


@pytest.mark.parametrize("name", ["localhost", "127.1", "2130706433", "0x7f000001"])
async def test_names_are_judged_by_what_they_lead_to(name: str) -> None:
    reach = Reach()
    reach.refuse_port(8420)
    assert (await reach.resolve(name, 8421))[0]["host"] == "127.0.0.1"
    with pytest.raises(Forbidden, match="is Paddock itself"):
        await reach.resolve(name, 8420)
    await reach.close()

"""Names of a sandbox and their made-up addresses."""

from __future__ import annotations

import ipaddress

from hypothesis import given
from hypothesis import strategies as st

from paddock.inside.network.name_addresses import ADDRESSES, FIRST_ADDRESS, NameAddresses

RESERVED = ipaddress.ip_network("198.18.0.0/15")


def test_addresses_are_hosts_of_the_reserved_network() -> None:
    first, last = (ipaddress.ip_address(each) for each in (FIRST_ADDRESS, FIRST_ADDRESS + ADDRESSES - 1))
    assert (first, last) == (RESERVED[1], RESERVED[-2])


def test_name_keeps_its_address() -> None:
    table = NameAddresses()
    address = table.address_of("pypi.org")
    assert table.address_of("example.com") != address
    assert table.address_of("pypi.org") == address
    assert table.name_of(address) == "pypi.org"
    assert table.name_of(address + 2) is None


def test_least_recently_used_name_is_forgotten() -> None:
    table = NameAddresses(max_names=2)
    first, second = table.address_of("first"), table.address_of("second")
    assert table.name_of(first) == "first"  # A connection uses the name.
    table.address_of("third")
    assert table.name_of(second) is None
    assert table.address_of("first") == first


def test_addresses_are_reused_only_after_all_others() -> None:
    table = NameAddresses(max_names=10)
    addresses = [table.address_of(f"name-{number}") for number in range(ADDRESSES)]
    assert len(set(addresses)) == ADDRESSES
    assert table.address_of("one more") == addresses[0]


@given(st.lists(st.sampled_from("abcdefgh"), max_size=50))
def test_names_and_addresses_match(lookups: list[str]) -> None:
    table = NameAddresses(max_names=3)
    for name in lookups:
        address = table.address_of(name)
        assert table.name_of(address) == name
        assert ipaddress.ip_address(address) in RESERVED
    for name in lookups[-1:]:
        assert table.name_of(table.address_of(name)) == name

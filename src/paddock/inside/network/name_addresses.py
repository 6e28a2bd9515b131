"""Made-up IPv4 addresses for names, by which a connection's name is found again."""

from __future__ import annotations

from collections import OrderedDict

FIRST_ADDRESS = 198 << 24 | 18 << 16 | 1
"""198.18.0.1; the network 198.18.0.0/15 is reserved for tests, so no real server has these addresses."""
ADDRESSES = 2**17 - 2
MAX_NAMES = 100_000


class NameAddresses:
    """Table of names and their addresses that forgets the least recently used names."""

    def __init__(self, max_names: int = MAX_NAMES) -> None:
        self._max_names = max_names
        self._addresses: OrderedDict[str, int] = OrderedDict()
        self._names: dict[int, str] = {}
        self._last_address = FIRST_ADDRESS - 1

    def address_of(self, name: str) -> int:
        """Return the address of a name; a new name gets the address that is unused for longest."""
        address = self._addresses.get(name)
        if address is None:
            if len(self._addresses) >= self._max_names:
                del self._names[self._addresses.popitem(last=False)[1]]
            address = self._addresses[name] = self._unused_address()
            self._names[address] = name
        self._addresses.move_to_end(name)
        return address

    def name_of(self, address: int) -> str | None:
        name = self._names.get(address)
        if name is not None:
            self._addresses.move_to_end(name)
        return name

    def _unused_address(self) -> int:
        while True:
            self._last_address = FIRST_ADDRESS + (self._last_address + 1 - FIRST_ADDRESS) % ADDRESSES
            if self._last_address not in self._names:
                return self._last_address

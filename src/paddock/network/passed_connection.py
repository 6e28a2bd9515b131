"""Receive connections that the daemon of a sandbox passes to the server, and check what was passed."""

from __future__ import annotations

import json
import os
import socket
from dataclasses import dataclass
from typing import Any

from paddock.config.network_policy import encode_host_name
from paddock.network.addresses import IPAddress, parse_address
from paddock.network.decision import ConnectionTarget

MAX_MESSAGE = 2048
MAX_DESCRIPTORS = 4
MESSAGE_VERSION = 1


class InvalidPassedConnection(Exception):
    """The sandbox passed something other than a TCP connection with its target."""


@dataclass(frozen=True)
class PassedConnection:
    """The sandbox's end of a connection, and what its program asked for."""

    socket: socket.socket
    target: ConnectionTarget


def receive_passed_connection(control: socket.socket) -> PassedConnection:
    """Read one message with a descriptor. Raises `InvalidPassedConnection`; nothing stays open then.

    The sender is hostile: descriptors may be of any kind, and a name may be an address in disguise.
    """
    try:
        message, descriptors, _, _ = socket.recv_fds(
            control, MAX_MESSAGE, MAX_DESCRIPTORS, socket.MSG_DONTWAIT | socket.MSG_CMSG_CLOEXEC
        )
    except OSError as error:
        raise InvalidPassedConnection(str(error)) from None
    for descriptor in descriptors[1:]:
        os.close(descriptor)
    if not descriptors:
        raise InvalidPassedConnection("no descriptor was passed")
    passed = _tcp_socket(descriptors[0])
    try:
        return PassedConnection(passed, _parse_target(message))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        passed.close()
        raise InvalidPassedConnection(f"the message is invalid: {error}") from None


def _tcp_socket(descriptor: int) -> socket.socket:
    """Return the descriptor as a connected TCP socket. Raises `InvalidPassedConnection` and closes any other."""
    try:
        passed = socket.socket(fileno=descriptor)
    except OSError as error:
        os.close(descriptor)
        raise InvalidPassedConnection(str(error)) from None
    try:
        if passed.family not in (socket.AF_INET, socket.AF_INET6) or passed.type != socket.SOCK_STREAM:
            raise InvalidPassedConnection("the descriptor is not a TCP socket")
        if passed.getsockopt(socket.SOL_SOCKET, socket.SO_PROTOCOL) != socket.IPPROTO_TCP:
            raise InvalidPassedConnection("the descriptor is not a TCP socket")
        passed.getpeername()  # Raises if it is not connected, such as a listening socket.
    except OSError as error:
        passed.close()
        raise InvalidPassedConnection(str(error)) from None
    except InvalidPassedConnection:
        passed.close()
        raise
    return passed


def _parse_target(message: bytes) -> ConnectionTarget:
    """Parse the target of a connection. Raises `ValueError`, `KeyError` or `TypeError`."""
    document: dict[str, Any] = json.loads(message)
    if document["version"] != MESSAGE_VERSION:
        raise ValueError(f"version {document['version']!r} is unknown")
    port = document["port"]
    if type(port) is not int or not 0 < port < 65536:
        raise ValueError("the port is invalid")
    name: str | None = document.get("name")
    host = str(name if name is not None else document["address"]).partition("%")[0]
    address = parse_address(host)
    if address is not None:
        return _address_target(port, address)
    encoded = encode_host_name(host)
    if encoded is None:
        raise ValueError("the name is not a host name")
    # IDNA turns digits of other scripts into an address, and so does leaving out a trailing dot.
    address = parse_address(encoded)
    if address is not None:
        return _address_target(port, address)
    return ConnectionTarget(port, name=encoded)


def _address_target(port: int, address: IPAddress) -> ConnectionTarget:
    """Return the target; an IPv4-mapped address is an IPv4 address, to which rules of IPv4 networks apply."""
    return ConnectionTarget(port, address=getattr(address, "ipv4_mapped", None) or address)

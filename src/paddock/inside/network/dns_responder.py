"""DNS server of the sandbox, by UDP and TCP."""

from __future__ import annotations

import selectors
import socket

from .dns_messages import answer_dns_query
from .name_addresses import NameAddresses

MAX_TCP_CLIENTS = 64
MAX_QUERY_BYTES = 4096


class DnsResponder:
    """Answers the queries that arrive at sockets of a selector."""

    def __init__(self, names: NameAddresses, selector: selectors.BaseSelector) -> None:
        self._names = names
        self._selector = selector
        self._received: dict[socket.socket, bytes] = {}
        """TCP clients, longest connected first, with the bytes of their unfinished query."""

    def answer_datagram(self, listener: socket.socket) -> None:
        try:
            query, client = listener.recvfrom(MAX_QUERY_BYTES)
            response = answer_dns_query(query, self._names)
            if response is not None:
                listener.sendto(response, client)
        except OSError:
            pass  # The client has gone.

    def accept_client(self, listener: socket.socket) -> None:
        client = listener.accept()[0]
        client.setblocking(False)
        if len(self._received) >= MAX_TCP_CLIENTS:
            self._close(next(iter(self._received)))
        self._received[client] = b""
        self._selector.register(client, selectors.EVENT_READ, self.answer_client)

    def answer_client(self, client: socket.socket) -> None:
        if client not in self._received:
            return  # It was disconnected after it became readable.
        try:
            data = client.recv(MAX_QUERY_BYTES)
            if not data or not self._answer_received(client, self._received[client] + data):
                self._close(client)
        except OSError:  # Also a client that does not read its responses.
            self._close(client)

    def _answer_received(self, client: socket.socket, received: bytes) -> bool:
        """Answer all whole queries; False if the client must be disconnected."""
        while len(received) >= 2:
            length = int.from_bytes(received[:2], "big")
            if length > MAX_QUERY_BYTES:
                return False
            if len(received) < 2 + length:
                break
            response = answer_dns_query(received[2 : 2 + length], self._names)
            if response is None:
                return False
            client.sendall(len(response).to_bytes(2, "big") + response)
            received = received[2 + length :]
        self._received[client] = received
        return True

    def _close(self, client: socket.socket) -> None:
        del self._received[client]
        self._selector.unregister(client)
        client.close()

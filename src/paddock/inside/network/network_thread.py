"""The thread that serves the sandbox's DNS queries and connections."""

from __future__ import annotations

import selectors
import sys
import time

from ..settings import NetworkSettings
from .connection_acceptor import ConnectionAcceptor
from .dns_responder import DnsResponder
from .name_addresses import NameAddresses

PAUSE_AFTER_ERROR_SECONDS = 0.05

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .listeners import NetworkListeners


class NetworkThread:
    """Calls the handler of each socket that has something to read, and never ends."""

    def __init__(self, settings: NetworkSettings, listeners: NetworkListeners) -> None:
        names = NameAddresses()
        self._selector = selectors.DefaultSelector()
        self._acceptor = ConnectionAcceptor(settings, names, listeners.opened)
        responder = DnsResponder(names, self._selector)
        for handler, sockets in (
            (self._acceptor.accept_connection, listeners.connections),
            (responder.answer_datagram, listeners.dns_datagrams),
            (responder.accept_client, listeners.dns_connections),
        ):
            for listener in sockets:
                self._selector.register(listener, selectors.EVENT_READ, handler)

    def serve_forever(self) -> None:
        while True:
            try:
                self._serve_ready_sockets()
            except (BlockingIOError, ConnectionError):
                pass  # The client disconnected before it was accepted.
            except Exception as error:
                if not isinstance(error, OSError):
                    print(f"inside: network: {error!r}", file=sys.stderr)
                time.sleep(PAUSE_AFTER_ERROR_SECONDS)  # Out of descriptors or memory: wait until some are free.

    def _serve_ready_sockets(self) -> None:
        self._acceptor.pass_waiting()
        for key, _ in self._selector.select(self._acceptor.retry_seconds):
            handler: Callable[[Any], None] = key.data
            handler(key.fileobj)

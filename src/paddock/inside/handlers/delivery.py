"""What a task wants back."""

from __future__ import annotations

import socket

from ..box import Box
from ..deliveries import Delivery
from ..errors import invalid
from ..fields import required
from ..http import Chunks, Reply, Request, StreamReply
from .transfer import SEND_BUFFER


def collect(box: Box, request: Request) -> Reply:
    document = request.json_object()
    most_files = required(document, "most_files", int)
    wanted = []
    for each in required(document, "deliverables", list):
        if not isinstance(each, dict):
            raise invalid("'deliverables' must be a list of {path, max_size}")
        path = required(each, "path", str)
        if not path.startswith("/") or "\0" in path:
            raise invalid(f"the path {path!r} must be absolute")
        wanted.append((path, required(each, "max_size", int)))

    def produce(chunks: Chunks) -> None:
        chunks.wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
        delivery = Delivery(chunks.send, chunks.send_file, most_files)
        for number, (path, max_size) in enumerate(wanted):
            delivery.deliver(number, path, max_size)
        delivery.finish()

    return StreamReply("application/octet-stream", produce)

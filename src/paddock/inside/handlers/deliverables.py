"""Handler that streams a task's deliverables."""

from __future__ import annotations

import socket

from ..daemon import Daemon
from ..errors import invalid_body_error
from ..files.deliverable_sender import DeliverableSender
from ..http.http11 import ChunkedWriter, HttpReply, IncomingRequest, StreamingReply
from ..http.json_fields import required_json_field
from .file_transfer import SEND_BUFFER


def stream_deliverables(daemon: Daemon, request: IncomingRequest) -> HttpReply:
    document = request.json_object()
    most_files = required_json_field(document, "most_files", int)
    deliverables = []
    for each in required_json_field(document, "deliverables", list):
        if not isinstance(each, dict):
            raise invalid_body_error("'deliverables' must be a list of {path, max_size}")
        path = required_json_field(each, "path", str)
        if not path.startswith("/") or "\0" in path:
            raise invalid_body_error(f"the path {path!r} must be absolute")
        deliverables.append((path, required_json_field(each, "max_size", int)))

    def produce(chunks: ChunkedWriter) -> None:
        chunks.client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
        delivery = DeliverableSender(chunks.send, chunks.send_file, most_files)
        for number, (path, max_size) in enumerate(deliverables):
            delivery.send_deliverable(number, path, max_size)
        delivery.finish()

    return StreamingReply("application/octet-stream", produce)

"""Health, metrics, and what the host needs to know about the box."""

from __future__ import annotations

import os
import time

from .. import VERSION
from ..box import Box
from ..errors import invalid
from ..events import CONTENT_TYPE
from ..fields import optional, variables
from ..http import Chunks, Reply, Request, StreamReply, json_reply
from ..settings import entrypoint_of


def ping(box: Box, request: Request) -> Reply:
    return Reply(200)


def state(box: Box, request: Request) -> Reply:
    entrypoint = box.entrypoint
    idle = box.activity.idle_seconds()
    return json_reply(
        {
            "pid": os.getpid(),
            "version": VERSION,
            "uptime_seconds": round(time.monotonic() - box.activity.started, 3),
            "idle_seconds": round(idle, 3),
            "last_activity_at": round(time.time() - idle, 3),
            "running_commands": box.commands.running_count(),
            "entrypoint": None if entrypoint is None else entrypoint.status(),
        }
    )


def claim(box: Box, request: Request) -> Reply:
    document = request.json_object()
    try:
        entrypoint = entrypoint_of(document)
    except ValueError as error:
        raise invalid(str(error)) from None
    box.claim(variables(document, "env"), entrypoint, optional(document, "cwd", str))
    return json_reply({})


def metrics(box: Box, request: Request) -> Reply:
    return json_reply(box.meter.read())


def watch_metrics(box: Box, request: Request) -> Reply:
    from json import dumps

    def produce(chunks: Chunks) -> None:
        while True:
            chunks.send(f"data: {dumps(box.meter.read())}\n\n".encode())
            if not chunks.wire.stays_quiet(1.0):
                return

    return StreamReply(CONTENT_TYPE, produce)

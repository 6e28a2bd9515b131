"""Handlers for health, state, metrics and claiming a sandbox from a pool."""

from __future__ import annotations

import os
import time

from .. import VERSION
from ..daemon import Daemon
from ..errors import invalid_body_error
from ..exec.execution_events import CONTENT_TYPE
from ..http.http11 import ChunkedWriter, HttpReply, IncomingRequest, StreamingReply, json_reply
from ..http.json_fields import environment_variables_field, optional_json_field
from ..settings import parse_entrypoint


def ping(daemon: Daemon, request: IncomingRequest) -> HttpReply:
    return HttpReply(200)


def get_daemon_state(daemon: Daemon, request: IncomingRequest) -> HttpReply:
    entrypoint = daemon.entrypoint
    idle = daemon.idle_tracker.idle_seconds()
    return json_reply(
        {
            "pid": os.getpid(),
            "version": VERSION,
            "uptime_seconds": round(time.monotonic() - daemon.idle_tracker.started_at, 3),
            "idle_seconds": round(idle, 3),
            "last_activity_at": round(time.time() - idle, 3),
            "running_commands": daemon.commands.running_count(),
            "entrypoint": None if entrypoint is None else entrypoint.status_document(),
        }
    )


def claim_sandbox(daemon: Daemon, request: IncomingRequest) -> HttpReply:
    document = request.json_object()
    try:
        entrypoint = parse_entrypoint(document)
    except ValueError as error:
        raise invalid_body_error(str(error)) from None
    daemon.claim_from_pool(
        environment_variables_field(document, "env"), entrypoint, optional_json_field(document, "cwd", str)
    )
    return json_reply({})


def get_metrics(daemon: Daemon, request: IncomingRequest) -> HttpReply:
    return json_reply(daemon.resource_meter.read_usage())


def watch_metrics(daemon: Daemon, request: IncomingRequest) -> HttpReply:
    from json import dumps

    def produce(chunks: ChunkedWriter) -> None:
        while True:
            chunks.send(f"data: {dumps(daemon.resource_meter.read_usage())}\n\n".encode())
            if not chunks.client.stays_connected(1.0):
                return

    return StreamingReply(CONTENT_TYPE, produce)

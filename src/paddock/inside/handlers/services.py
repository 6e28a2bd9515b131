"""Handlers that list, start, stop and watch the sandbox's services."""

from __future__ import annotations

from ..daemon import Daemon
from ..errors import invalid_body_error
from ..exec.execution_events import CONTENT_TYPE, format_execution_event
from ..exec.output_relay import PING_INTERVAL
from ..http.http11 import ChunkedWriter, HttpReply, IncomingRequest, StreamingReply, json_reply
from ..http.json_fields import optional_json_field

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

DEFAULT_WAIT, LONGEST_WAIT = 10.0, 300.0
CLIENT_CHECK_SECONDS = 5.0


def list_services(daemon: Daemon, request: IncomingRequest) -> HttpReply:
    return _service_list(daemon)


def start_services(daemon: Daemon, request: IncomingRequest) -> HttpReply:
    names, timeout = _parse_selection(request)
    daemon.services.start(names, timeout)
    return _service_list(daemon)


def stop_services(daemon: Daemon, request: IncomingRequest) -> HttpReply:
    names, timeout = _parse_selection(request)
    daemon.services.stop(names, timeout)
    return _service_list(daemon)


def watch_services(daemon: Daemon, request: IncomingRequest) -> HttpReply:
    """Stream the state of each service, then every change."""

    def produce(chunks: ChunkedWriter) -> None:
        seen, quiet = 0, 0.0
        while True:
            seen, changes = daemon.services.changes_since(seen)
            if changes:
                chunks.send(b"".join(format_execution_event("service", **change) for change in changes))
                quiet = 0.0
            elif quiet >= PING_INTERVAL:
                chunks.send(format_execution_event("ping"))
                quiet = 0.0
            if not daemon.services.wait_beyond(seen, CLIENT_CHECK_SECONDS):
                quiet += CLIENT_CHECK_SECONDS
                if not chunks.client.stays_connected(0):
                    return

    return StreamingReply(CONTENT_TYPE, produce)


def _service_list(daemon: Daemon) -> HttpReply:
    return json_reply({"services": daemon.services.documents(), "tools": daemon.tool_worker.status_document()})


def _parse_selection(request: IncomingRequest) -> tuple[list[str] | None, float]:
    document: dict[str, Any] = request.json_object()
    names = optional_json_field(document, "names", list)
    if names is not None and not all(isinstance(name, str) for name in names):
        raise invalid_body_error("'names' must be a list of services' names")
    timeout = document.get("timeout", DEFAULT_WAIT)
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not 0 <= timeout <= LONGEST_WAIT:
        raise invalid_body_error(f"'timeout' must be a number of seconds up to {LONGEST_WAIT:.0f}")
    return names, float(timeout)

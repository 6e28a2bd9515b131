"""What runs in the box from its start on."""

from __future__ import annotations

from ..box import Box
from ..errors import invalid
from ..events import CONTENT_TYPE, event
from ..fields import optional
from ..http import Chunks, Reply, Request, StreamReply, json_reply
from ..relay import PING_INTERVAL

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

DEFAULT_WAIT, LONGEST_WAIT = 10.0, 300.0
LOOK_AT_CLIENT = 5.0


def list_all(box: Box, request: Request) -> Reply:
    return _listed(box)


def start(box: Box, request: Request) -> Reply:
    names, timeout = _wishes(request)
    box.services.start(names, timeout)
    return _listed(box)


def stop(box: Box, request: Request) -> Reply:
    names, timeout = _wishes(request)
    box.services.stop(names, timeout)
    return _listed(box)


def watch(box: Box, request: Request) -> Reply:
    """Tell each service as it is, and then every change."""

    def produce(chunks: Chunks) -> None:
        seen, quiet = 0, 0.0
        while True:
            seen, changes = box.services.changes(seen)
            if changes:
                chunks.send(b"".join(event("service", **change) for change in changes))
                quiet = 0.0
            elif quiet >= PING_INTERVAL:
                chunks.send(event("ping"))
                quiet = 0.0
            if not box.services.wait_beyond(seen, LOOK_AT_CLIENT):
                quiet += LOOK_AT_CLIENT
                if not chunks.wire.stays_quiet(0):
                    return

    return StreamReply(CONTENT_TYPE, produce)


def _listed(box: Box) -> Reply:
    return json_reply({"services": box.services.documents(), "tools": box.worker.document()})


def _wishes(request: Request) -> tuple[list[str] | None, float]:
    document: dict[str, Any] = request.json_object()
    names = optional(document, "names", list)
    if names is not None and not all(isinstance(name, str) for name in names):
        raise invalid("'names' must be a list of services' names")
    timeout = document.get("timeout", DEFAULT_WAIT)
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not 0 <= timeout <= LONGEST_WAIT:
        raise invalid(f"'timeout' must be a number of seconds up to {LONGEST_WAIT:.0f}")
    return names, float(timeout)

"""Which handler answers which request; the modules load when they are first needed."""

from __future__ import annotations

from importlib import import_module

from .box import Box
from .errors import ApiError
from .http import Reply, Request

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    Handler = Callable[[Box, Request], Reply]

TABLE = """
GET     /ping                       handlers.general ping
GET     /paddock/state              handlers.general state
POST    /paddock/claim              handlers.general claim
POST    /paddock/collect            handlers.delivery collect
GET     /paddock/services           handlers.services list_all
GET     /paddock/services/watch     handlers.services watch
POST    /paddock/services/start     handlers.services start
POST    /paddock/services/stop      handlers.services stop
GET     /paddock/display            handlers.display connect
*       /mcp                        handlers.tools forward
GET     /tools                      handlers.tools forward
POST    /tools/{name}               handlers.tools forward
GET     /screen/shot                handlers.tools forward
GET     /screen/frames              handlers.tools stream
GET     /metrics                    handlers.general metrics
GET     /metrics/watch              handlers.general watch_metrics
POST    /command                    handlers.command run
DELETE  /command                    handlers.command interrupt
GET     /command/status/{id}        handlers.command status
GET     /command/{id}/logs          handlers.command logs
POST    /session                    handlers.session create
POST    /session/{id}/run           handlers.session run
DELETE  /session/{id}               handlers.session delete
POST    /code                       handlers.code run
DELETE  /code                       handlers.code interrupt
POST    /code/context               handlers.code create
GET     /code/contexts              handlers.code list_all
DELETE  /code/contexts              handlers.code delete_language
GET     /code/contexts/{id}         handlers.code get
DELETE  /code/contexts/{id}         handlers.code delete
GET     /files/info                 handlers.files info
DELETE  /files                      handlers.files delete
POST    /files/mv                   handlers.files move
POST    /files/permissions          handlers.files permissions
GET     /files/search               handlers.files search
POST    /files/replace              handlers.files replace
POST    /files/upload               handlers.transfer upload
GET     /files/download             handlers.transfer download
HEAD    /files/download             handlers.transfer download
GET     /directories/list           handlers.files list_directory
POST    /directories                handlers.files make_directories
DELETE  /directories                handlers.files delete_directories
GET     /archive                    handlers.archive pack
PUT     /archive                    handlers.archive unpack
GET     /pty                        handlers.terminal list_all
POST    /pty                        handlers.terminal create
GET     /pty/{id}                   handlers.terminal status
DELETE  /pty/{id}                   handlers.terminal delete
GET     /pty/{id}/ws                handlers.terminal attach
GET     /connect/{port}             handlers.network connect
*       /proxy/{port}/{rest...}     handlers.network proxy
"""

QUIET = frozenset(
    {"/ping", "/metrics", "/metrics/watch", "/paddock/state", "/paddock/services", "/paddock/services/watch",
     "/screen/shot", "/screen/frames"}
)  # fmt: skip
"""To look is not to use."""


class Route:
    """A method, a path pattern and the handler behind them."""

    def __init__(self, line: str) -> None:
        self.method, pattern, self._module, self._function = line.split()
        self._segments = pattern.split("/")[1:]
        self._handler: Handler | None = None

    def match(self, segments: list[str]) -> dict[str, str] | None:
        params = {}
        for position, expected in enumerate(self._segments):
            if expected.endswith("...}"):
                params[expected[1:-4]] = "/".join(segments[position:])
                return params
            if position >= len(segments):
                return None
            if expected.startswith("{"):
                if not segments[position]:
                    return None
                params[expected[1:-1]] = segments[position]
            elif expected != segments[position]:
                return None
        return params if len(segments) == len(self._segments) else None

    def load(self) -> Handler:
        if self._handler is None:
            module = import_module(f".{self._module}", __package__)
            self._handler = getattr(module, self._function)
        return self._handler


class Router:
    def __init__(self) -> None:
        self._routes = [Route(line) for line in TABLE.split("\n") if line]

    def find(self, request: Request) -> Handler:
        if request.method == "CONNECT":
            return Route("CONNECT / handlers.network tunnel").load()
        segments = strip_identity(request.path).split("/")[1:]
        methods = set()
        for route in self._routes:
            params = route.match(segments)
            if params is None:
                continue
            if route.method in (request.method, "*"):
                request.params = params
                return route.load()
            methods.add(route.method)
        if methods:
            allowed = ", ".join(sorted(methods))
            raise ApiError(405, "METHOD_NOT_ALLOWED", f"{request.path} answers {allowed} only")
        raise ApiError(404, "NOT_FOUND", f"nothing is served at {request.path}")


def strip_identity(path: str) -> str:
    """Take `/v1/filesystem/{uid}/{gid}` off a path, after checking that this identity is ours."""
    import os

    parts = path.split("/", 5)
    if parts[:3] != ["", "v1", "filesystem"] or len(parts) < 6:
        return path
    if parts[3:5] != [str(os.getuid()), str(os.getgid())]:
        raise ApiError(400, "NOT_SUPPORTED", f"this sandbox works on files as uid {os.getuid()} only")
    return "/" + parts[5]

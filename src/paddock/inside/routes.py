"""Route table of the HTTP API; handler modules are imported on first use."""

from __future__ import annotations

from importlib import import_module

from .daemon import Daemon
from .errors import ApiError
from .http.http11 import HttpReply, IncomingRequest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    Handler = Callable[[Daemon, IncomingRequest], HttpReply]

ROUTE_TABLE = """
GET     /ping                       handlers.daemon_state ping
GET     /paddock/state              handlers.daemon_state get_daemon_state
GET     /paddock/ports              handlers.port_proxy list_listening_ports
POST    /paddock/claim              handlers.daemon_state claim_sandbox
POST    /paddock/collect            handlers.deliverables stream_deliverables
GET     /paddock/services           handlers.services list_services
GET     /paddock/services/watch     handlers.services watch_services
POST    /paddock/services/start     handlers.services start_services
POST    /paddock/services/stop      handlers.services stop_services
GET     /paddock/display            handlers.display connect_viewer_to_display
*       /mcp                        handlers.tool_worker_proxy forward_to_tool_worker
GET     /tools                      handlers.tool_worker_proxy forward_to_tool_worker
POST    /tools/{name}               handlers.tool_worker_proxy forward_to_tool_worker
GET     /screen/shot                handlers.tool_worker_proxy forward_to_tool_worker
GET     /screen/frames              handlers.tool_worker_proxy stream_from_tool_worker
GET     /metrics                    handlers.daemon_state get_metrics
GET     /metrics/watch              handlers.daemon_state watch_metrics
POST    /command                    handlers.commands run_command
DELETE  /command                    handlers.commands interrupt_command
GET     /command/status/{id}        handlers.commands get_command_status
GET     /command/{id}/logs          handlers.commands get_command_logs
POST    /session                    handlers.bash_sessions create_bash_session
POST    /session/{id}/run           handlers.bash_sessions run_in_bash_session
DELETE  /session/{id}               handlers.bash_sessions delete_bash_session
POST    /code                       handlers.code_contexts run_code
DELETE  /code                       handlers.code_contexts interrupt_code
POST    /code/context               handlers.code_contexts create_code_context
GET     /code/contexts              handlers.code_contexts list_code_contexts
DELETE  /code/contexts              handlers.code_contexts delete_language_contexts
GET     /code/contexts/{id}         handlers.code_contexts get_code_context
DELETE  /code/contexts/{id}         handlers.code_contexts delete_code_context
GET     /files/info                 handlers.files get_file_info
DELETE  /files                      handlers.files delete_files
POST    /files/mv                   handlers.files move_files
POST    /files/permissions          handlers.files set_permissions
GET     /files/search               handlers.files search_files
POST    /files/replace              handlers.files replace_in_files
POST    /files/upload               handlers.file_transfer upload_files
GET     /files/download             handlers.file_transfer download_file
HEAD    /files/download             handlers.file_transfer download_file
GET     /directories/list           handlers.files list_directory
POST    /directories                handlers.files make_directories
DELETE  /directories                handlers.files delete_directories
GET     /archive                    handlers.archives pack_directory
PUT     /archive                    handlers.archives unpack_archive
GET     /pty                        handlers.terminals list_terminals
POST    /pty                        handlers.terminals create_terminal
GET     /pty/{id}                   handlers.terminals get_terminal
DELETE  /pty/{id}                   handlers.terminals delete_terminal
GET     /pty/{id}/ws                handlers.terminals attach_to_terminal
GET     /connect/{port}             handlers.port_proxy open_port_tunnel_by_upgrade
*       /proxy/{port}/{rest...}     handlers.port_proxy proxy_request_to_port
"""

PASSIVE_PATHS = frozenset(
    {"/ping", "/metrics", "/metrics/watch", "/paddock/state", "/paddock/ports", "/paddock/services",
     "/paddock/services/watch", "/screen/shot", "/screen/frames"}
)  # fmt: skip
"""Requests to these paths do not count as use of the sandbox."""


class HandlerRoute:
    """One line of the route table: method, path pattern and handler."""

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

    def load_handler(self) -> Handler:
        if self._handler is None:
            module = import_module(f".{self._module}", __package__)
            self._handler = getattr(module, self._function)
        return self._handler


class HandlerRouter:
    def __init__(self) -> None:
        self._routes = [HandlerRoute(line) for line in ROUTE_TABLE.split("\n") if line]

    def find_handler(self, request: IncomingRequest) -> Handler:
        if request.method == "CONNECT":
            return HandlerRoute("CONNECT / handlers.port_proxy open_port_tunnel_by_connect").load_handler()
        segments = strip_uid_gid_prefix(request.path).split("/")[1:]
        methods = set()
        for route in self._routes:
            params = route.match(segments)
            if params is None:
                continue
            if route.method in (request.method, "*"):
                request.params = params
                return route.load_handler()
            methods.add(route.method)
        if methods:
            allowed = ", ".join(sorted(methods))
            raise ApiError(405, "METHOD_NOT_ALLOWED", f"{request.path} supports {allowed} only")
        raise ApiError(404, "NOT_FOUND", f"no such route: {request.path}")


def strip_uid_gid_prefix(path: str) -> str:
    """Strip `/v1/filesystem/{uid}/{gid}` off a path; raises `ApiError` for another identity than the daemon's."""
    import os

    parts = path.split("/", 5)
    if parts[:3] != ["", "v1", "filesystem"] or len(parts) < 6:
        return path
    if parts[3:5] != [str(os.getuid()), str(os.getgid())]:
        raise ApiError(400, "NOT_SUPPORTED", f"this sandbox accesses files as uid {os.getuid()} only")
    return "/" + parts[5]

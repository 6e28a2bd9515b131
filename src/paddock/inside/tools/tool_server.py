"""HTTP server of the tool worker, on a socket that only the daemon can reach."""

from __future__ import annotations

import json
import socket
import sys

from ..errors import ApiError
from ..http.buffered_socket import BufferedSocket, PeerDisconnected
from ..http.http11 import (
    ChunkedWriter,
    HttpReply,
    IncomingRequest,
    MalformedRequest,
    StreamingReply,
    error_reply,
    json_reply,
)
from ..http.json_fields import environment_variables_field, required_json_field
from ..http.threaded_server import ThreadedHttpServer
from ..http.worker_threads import WorkerThreads
from .argument_schema import validate_tool_arguments
from .caller_connection import CallerConnection, CallerDisconnected
from .mcp_protocol import McpProtocol
from .streaming_caller_connection import NDJSON, StreamingCallerConnection
from .tool_context import ToolContext
from .tool_registry import ToolRegistry, UnknownTool
from .tool_result import ToolError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

MAX_CONNECTIONS = 128
MAX_MESSAGE = 32 * 1024 * 1024


class ToolServer(ThreadedHttpServer):
    """Serves tool calls, MCP and screenshots of one sandbox."""

    def __init__(self, context: ToolContext, registry: ToolRegistry, listener: socket.socket) -> None:
        super().__init__(listener, MAX_CONNECTIONS, WorkerThreads(reserve=1))
        self._context = context
        self._registry = registry
        self._protocol = McpProtocol(registry)
        self._routes: dict[tuple[str, str], Callable[[IncomingRequest], HttpReply]] = {
            ("POST", "/mcp"): self._handle_mcp,
            ("GET", "/tools"): self._list_tools,
            ("PUT", "/environment"): self._set_environment,
            ("GET", "/screen/shot"): self._get_screenshot,
            ("GET", "/screen/frames"): self._stream_frames,
        }

    def _handle_request(self, request: IncomingRequest, client: BufferedSocket) -> None:
        self._context.caller = CallerConnection(client.socket)
        try:
            reply = self._reply_to(request)
        except CallerDisconnected:
            raise PeerDisconnected from None
        reply.write(client, request)

    def _reply_to(self, request: IncomingRequest) -> HttpReply:
        try:
            return self._find_handler(request)(request)
        except MalformedRequest:
            raise
        except ApiError as error:
            return error_reply(error)
        except ToolError as error:
            return error_reply(_screen_error(error))
        except (PeerDisconnected, ConnectionError):
            raise PeerDisconnected from None
        except Exception as error:
            return error_reply(_internal_error(error))

    def _find_handler(self, request: IncomingRequest) -> Callable[[IncomingRequest], HttpReply]:
        found = self._routes.get((request.method, request.path))
        if found is not None:
            return found
        if request.path.startswith("/tools/"):
            if request.method != "POST":
                raise ApiError(405, "METHOD_NOT_ALLOWED", f"{request.path} supports POST only")
            return self._call_tool
        allowed = [method for method, path in self._routes if path == request.path]
        if allowed:
            raise ApiError(405, "METHOD_NOT_ALLOWED", f"{request.path} supports {', '.join(allowed)} only")
        raise ApiError(404, "NOT_FOUND", f"no such route: {request.path}")

    def _handle_mcp(self, request: IncomingRequest) -> HttpReply:
        status, body = self._protocol.answer_message(request.body.read_all(MAX_MESSAGE))
        return HttpReply(status, body, [("Content-Type", "application/json")] if body else ())

    def _list_tools(self, request: IncomingRequest) -> HttpReply:
        return json_reply({"tools": [tool.mcp_document() for tool in self._registry.tools.values()]})

    def _call_tool(self, request: IncomingRequest) -> HttpReply:
        data = request.body.read_all(MAX_MESSAGE)
        try:
            arguments = json.loads(data) if data.strip() else {}
        except (ValueError, RecursionError) as error:
            raise ApiError(400, "INVALID_REQUEST_BODY", f"the request body is not JSON: {error}") from None
        name = request.path[len("/tools/") :]
        try:
            _validate_arguments(arguments, self._registry.find_tool(name).schema)
            if NDJSON in request.header("accept"):
                return StreamingReply(NDJSON, lambda chunks: self._stream_call(chunks, name, arguments))
            return json_reply(self._registry.call_tool(name, arguments).mcp_document())
        except UnknownTool as error:
            raise ApiError(404, "TOOL_NOT_FOUND", str(error)) from None

    def _stream_call(self, chunks: ChunkedWriter, name: str, arguments: Mapping[str, Any]) -> None:
        """Call a tool and stream its output."""
        listener = self._context.caller = StreamingCallerConnection(chunks)
        try:
            listener.send_result(self._registry.call_tool(name, arguments).mcp_document())
        except CallerDisconnected:
            raise PeerDisconnected from None
        except (PeerDisconnected, ConnectionError):
            raise
        except Exception as error:
            listener.send_error(_internal_error(error))

    def _set_environment(self, request: IncomingRequest) -> HttpReply:
        """Set the variables and the working directory of a sandbox claimed from a pool."""
        document = request.json_object()
        self._context.replace_environment(
            environment_variables_field(document, "env"), required_json_field(document, "cwd", str)
        )
        return json_reply({})

    def _get_screenshot(self, request: IncomingRequest) -> HttpReply:
        from .desktop.screen_images import ScreenCaptureOptions

        options = ScreenCaptureOptions.from_query(request)
        self._context.screen_capture.wait_until_drawn()
        shot = self._context.screen_capture.take_screenshot(options, unless=request.header("if-none-match"))
        if shot is None:
            return HttpReply(304, b"", [("ETag", request.header("if-none-match"))])
        headers = [("Content-Type", shot.mime), ("ETag", shot.etag), ("Cache-Control", "no-cache")]
        headers += [("X-Paddock-Width", str(shot.width)), ("X-Paddock-Height", str(shot.height))]
        return HttpReply(200, shot.data, headers)

    def _stream_frames(self, request: IncomingRequest) -> HttpReply:
        width = request.query_int("width", 0) or 0
        quality = request.query_int("quality", 60) or 60
        fps = request.query_int("fps", 5) or 5
        if width > 16384 or not 1 <= quality <= 95 or not 1 <= fps <= 60:
            raise ApiError(400, "MISSING_QUERY", "frames take width up to 16384, quality 1 to 95 and fps 1 to 60")
        frames = self._context.screen_capture.frame_stream(width, quality, fps)
        return StreamingReply("application/x-paddock-frames", frames.send_frames)


def _validate_arguments(arguments: object, schema: Mapping[str, Any]) -> None:
    """Raise `ApiError` for invalid arguments: programs, unlike models, expect an HTTP status."""
    try:
        validate_tool_arguments(arguments, schema)
    except ToolError as error:
        raise ApiError(400, "INVALID_ARGUMENTS", str(error)) from None


def _internal_error(error: Exception) -> ApiError:
    from traceback import print_exception

    print_exception(type(error), error, error.__traceback__, file=sys.stderr)
    return ApiError(500, "RUNTIME_ERROR", f"{type(error).__name__}: {error}")


def _screen_error(error: ToolError) -> ApiError:
    """Return the `ApiError` for a screen request: invalid, or no desktop."""
    from .desktop.x_display import DesktopUnavailable, NoDesktop

    if isinstance(error, NoDesktop):
        return ApiError(404, "NO_SCREEN", str(error))
    if isinstance(error, DesktopUnavailable):
        return ApiError(503, "SCREEN_NOT_AVAILABLE", str(error))
    return ApiError(400, "INVALID_REQUEST", str(error))

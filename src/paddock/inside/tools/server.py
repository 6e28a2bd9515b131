"""The tool worker's front door: plain HTTP on a socket that only the daemon reaches."""

from __future__ import annotations

import json
import socket
import sys

from ..doorway import Doorway
from ..errors import ApiError
from ..fields import required, variables
from ..http import BadRequest, Chunks, Reply, Request, StreamReply, error_reply, json_reply
from ..wire import Disconnected, Wire
from .callers import Caller, HungUp
from .context import Context
from .listeners import LINES, Listener
from .protocol import Protocol
from .registry import Registry, UnknownTool
from .results import ToolError
from .schema import check

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

MAX_CONNECTIONS = 128
MAX_MESSAGE = 32 * 1024 * 1024


class Server(Doorway):
    """Answers requests about one box's tools and screen, a thread for each connection."""

    def __init__(self, context: Context, registry: Registry, listener: socket.socket) -> None:
        super().__init__(listener, MAX_CONNECTIONS)
        self._context = context
        self._registry = registry
        self._protocol = Protocol(registry)
        self._routes: dict[tuple[str, str], Callable[[Request], Reply]] = {
            ("POST", "/mcp"): self._mcp,
            ("GET", "/tools"): self._list,
            ("PUT", "/environment"): self._environment,
            ("GET", "/screen/shot"): self._shot,
            ("GET", "/screen/frames"): self._frames,
        }

    def _answer(self, request: Request, wire: Wire) -> None:
        self._context.caller = Caller(wire.socket)
        try:
            reply = self._reply(request)
        except HungUp:
            raise Disconnected from None
        reply.write(wire, request)

    def _reply(self, request: Request) -> Reply:
        try:
            return self._handler(request)(request)
        except BadRequest:
            raise
        except ApiError as error:
            return error_reply(error)
        except ToolError as error:
            return error_reply(_refusal(error))
        except (Disconnected, ConnectionError):
            raise Disconnected from None
        except Exception as error:
            return error_reply(_unforeseen(error))

    def _handler(self, request: Request) -> Callable[[Request], Reply]:
        found = self._routes.get((request.method, request.path))
        if found is not None:
            return found
        if request.path.startswith("/tools/"):
            if request.method != "POST":
                raise ApiError(405, "METHOD_NOT_ALLOWED", f"{request.path} answers POST only")
            return self._call
        allowed = [method for method, path in self._routes if path == request.path]
        if allowed:
            raise ApiError(405, "METHOD_NOT_ALLOWED", f"{request.path} answers {', '.join(allowed)} only")
        raise ApiError(404, "NOT_FOUND", f"nothing is served at {request.path}")

    def _mcp(self, request: Request) -> Reply:
        status, body = self._protocol.answer(request.body.read_all(MAX_MESSAGE))
        return Reply(status, body, [("Content-Type", "application/json")] if body else ())

    def _list(self, request: Request) -> Reply:
        return json_reply({"tools": [tool.document() for tool in self._registry.tools.values()]})

    def _call(self, request: Request) -> Reply:
        data = request.body.read_all(MAX_MESSAGE)
        try:
            arguments = json.loads(data) if data.strip() else {}
        except (ValueError, RecursionError) as error:
            raise ApiError(400, "INVALID_REQUEST_BODY", f"the request body is not JSON: {error}") from None
        name = request.path[len("/tools/") :]
        try:
            _check(arguments, self._registry.find(name).schema)
            if LINES in request.header("accept"):
                return StreamReply(LINES, lambda chunks: self._call_aloud(chunks, name, arguments))
            return json_reply(self._registry.call(name, arguments).document())
        except UnknownTool as error:
            raise ApiError(404, "TOOL_NOT_FOUND", str(error)) from None

    def _call_aloud(self, chunks: Chunks, name: str, arguments: Mapping[str, Any]) -> None:
        """Call a tool for somebody who wants to hear what it says as it comes."""
        listener = self._context.caller = Listener(chunks)
        try:
            listener.finish(self._registry.call(name, arguments).document())
        except HungUp:
            raise Disconnected from None
        except (Disconnected, ConnectionError):
            raise
        except Exception as error:
            listener.fail(_unforeseen(error))

    def _environment(self, request: Request) -> Reply:
        """Take over the variables and the working directory of a box that was claimed from a pool."""
        document = request.json_object()
        self._context.surround(variables(document, "env"), required(document, "cwd", str))
        return json_reply({})

    def _shot(self, request: Request) -> Reply:
        from .pictures import Options

        options = Options.from_query(request)
        self._context.screen.settle()
        shot = self._context.screen.shot(options, unless=request.header("if-none-match"))
        if shot is None:
            return Reply(304, b"", [("ETag", request.header("if-none-match"))])
        headers = [("Content-Type", shot.mime), ("ETag", shot.etag), ("Cache-Control", "no-cache")]
        headers += [("X-Paddock-Width", str(shot.width)), ("X-Paddock-Height", str(shot.height))]
        return Reply(200, shot.data, headers)

    def _frames(self, request: Request) -> Reply:
        width = request.query_int("width", 0) or 0
        quality = request.query_int("quality", 60) or 60
        fps = request.query_int("fps", 5) or 5
        if width > 16384 or not 1 <= quality <= 95 or not 1 <= fps <= 60:
            raise ApiError(400, "MISSING_QUERY", "frames take width up to 16384, quality 1 to 95 and fps 1 to 60")
        frames = self._context.screen.frames(width, quality, fps)
        return StreamReply("application/x-paddock-frames", frames.stream)


def _check(arguments: object, schema: Mapping[str, Any]) -> None:
    """Refuse arguments that a tool does not take: a program, unlike a model, wants to be told by the status."""
    try:
        check(arguments, schema)
    except ToolError as error:
        raise ApiError(400, "INVALID_ARGUMENTS", str(error)) from None


def _unforeseen(error: Exception) -> ApiError:
    from traceback import print_exception

    print_exception(type(error), error, error.__traceback__, file=sys.stderr)
    return ApiError(500, "RUNTIME_ERROR", f"{type(error).__name__}: {error}")


def _refusal(error: ToolError) -> ApiError:
    """What was asked of the screen is wrong, unless it is the desktop that is not there."""
    from .display import DesktopGone, NoScreen

    if isinstance(error, NoScreen):
        return ApiError(404, "NO_SCREEN", str(error))
    if isinstance(error, DesktopGone):
        return ApiError(503, "SCREEN_NOT_AVAILABLE", str(error))
    return ApiError(400, "INVALID_REQUEST", str(error))

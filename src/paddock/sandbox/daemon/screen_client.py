"""Daemon client for screens: services, tools, screenshots, terminals and the display."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import aiohttp
from multidict import CIMultiDict

from paddock.errors import SandboxGone
from paddock.model.screens import ScreenFrame, Screenshot
from paddock.sandbox.daemon.daemon_http import (
    QUICK_TIMEOUT,
    DaemonConnection,
    EventLoopYielder,
    parse_json_object,
    parse_long_json_object,
    read_body_chunks,
    read_bounded_body,
    read_json_lines,
)
from paddock.sandbox.daemon.display_socket import DisplaySocket, open_display_socket
from paddock.sandbox.daemon.tool_stream import JSON_LINES_TYPE, OnOutput, read_tool_stream
from paddock.sandbox.daemon.untrusted_json import encode_json

MAX_TOOL_RESULT_BYTES = 16 * 2**20
"""Maximum bytes of a tool result, which may contain several images; parsing blocks the event loop."""
MAX_TOOL_LIST_BYTES = 2 * 2**20
"""Maximum bytes of a tool list, which is cached while the sandbox lives."""
MAX_PICTURE_BYTES = 32 * 2**20
MAX_FRAME_HEAD = 4 * 2**10
TOOL_TIMEOUT = 120.0
WATCH_PAUSE_FACTOR = 50.0
HEARTBEAT_TIMEOUT = 60.0
"""Seconds without a heartbeat, sent every fifteen seconds, until the daemon counts as gone."""
MAX_SIDE_LENGTH = 65535
PICTURE_TYPES = frozenset({"image/jpeg", "image/png", "image/webp"})
"""Allowed image types; none of them is executable in browsers."""
JPEG_SIGNATURE = b"\xff\xd8\xff"
ETAG_PATTERN = re.compile(r'"[!#-~]{1,100}"')


class ScreenClient(DaemonConnection):
    """Screen methods of the daemon client."""

    async def services(self, timeout: float = QUICK_TIMEOUT) -> list[dict[str, Any]]:
        """Return the image's services: `{name, state, ready, pid, starts, exit_code, log}` of each.

        A `state` is one of `stopped`, `waiting`, `starting`, `ready` and `failed`.
        """
        return _objects(parse_json_object(await self._ask("GET", "/paddock/services", timeout=timeout)), "services")

    async def start_services(
        self, names: Sequence[str] | None = None, timeout: float = QUICK_TIMEOUT
    ) -> list[dict[str, Any]]:
        """Start services, by default all, and wait for readiness, about `timeout` seconds at most."""
        return await self._control_services("start", names, timeout)

    async def stop_services(
        self, names: Sequence[str] | None = None, timeout: float = QUICK_TIMEOUT
    ) -> list[dict[str, Any]]:
        """Stop services, by default all, until they are started again."""
        return await self._control_services("stop", names, timeout)

    async def watch_services(self) -> AsyncGenerator[dict[str, Any], None]:
        """Yield each service now and on every change, until the sandbox ends with `SandboxGone`."""
        limit = aiohttp.ClientTimeout(total=None, sock_connect=QUICK_TIMEOUT, sock_read=HEARTBEAT_TIMEOUT)
        async with self.request("GET", "/paddock/services/watch", timeout=limit) as answer:
            # The stream lasts as long as the sandbox, so reading is throttled.
            async for document in read_json_lines(answer, EventLoopYielder(rest=WATCH_PAUSE_FACTOR)):
                if document.get("type") == "service":
                    yield document
        raise SandboxGone("the sandbox has ended")

    async def tools(self, timeout: float = QUICK_TIMEOUT) -> list[dict[str, Any]]:
        """Return the sandbox's tools in the format of MCP's `tools/list`."""
        answer = await self._request_bounded("GET", "/tools", MAX_TOOL_LIST_BYTES, timeout)
        return _objects(await parse_long_json_object(answer), "tools")

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any],
        timeout: float = TOOL_TIMEOUT,
        *,
        on_output: OnOutput | None = None,
    ) -> dict[str, Any]:
        """Call a tool and return MCP's `CallToolResult`. Raises `NotFound` and `InvalidInput` for invalid calls.

        A failed tool has a result too. `on_output` receives live output, at most 64 KiB, if the sandbox sends it.
        """
        path, body = f"/tools/{quote(name, safe='')}", encode_json(dict(arguments))
        headers = CIMultiDict({"Content-Type": "application/json"})
        if on_output is None:
            return await parse_long_json_object(
                await self._request_bounded("POST", path, MAX_TOOL_RESULT_BYTES, timeout, data=body, headers=headers)
            )
        headers["Accept"] = JSON_LINES_TYPE
        limit = aiohttp.ClientTimeout(total=timeout)
        async with self.request("POST", path, headers=headers, data=body, timeout=limit) as answer:
            if answer.content_type != JSON_LINES_TYPE:  # Sandboxes of older servers do not stream output.
                return await parse_long_json_object(await read_bounded_body(answer, MAX_TOOL_RESULT_BYTES))
            return await read_tool_stream(answer, MAX_TOOL_RESULT_BYTES, on_output)

    async def mcp(
        self, body: bytes, *, headers: Mapping[str, str] | None = None, timeout: float = TOOL_TIMEOUT
    ) -> tuple[int, dict[str, str], bytes]:
        """Send an MCP message to the sandbox's server; return status, lower-case headers and body."""
        request_headers = CIMultiDict(
            {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        )
        request_headers.update(headers or {})
        limit = aiohttp.ClientTimeout(total=timeout)
        async with self.request("POST", "/mcp", raw=True, headers=request_headers, data=body, timeout=limit) as answer:
            response_headers = {name.lower(): value for name, value in answer.headers.items()}
            return answer.status, response_headers, await read_bounded_body(answer, MAX_TOOL_RESULT_BYTES)

    async def screenshot(
        self, params: Mapping[str, str] | None = None, etag: str | None = None, timeout: float = QUICK_TIMEOUT
    ) -> Screenshot | None:
        """Return a screenshot, or None if the screen has not changed since `etag`."""
        headers = CIMultiDict({"If-None-Match": etag} if etag else {})
        limit = aiohttp.ClientTimeout(total=timeout)
        query = dict(params or {})
        async with self.request("GET", "/screen/shot", headers=headers, params=query, timeout=limit) as answer:
            data = await read_bounded_body(answer, MAX_PICTURE_BYTES)
            if answer.status == 304:
                return None
            if answer.status != 200 or answer.content_type not in PICTURE_TYPES:
                raise SandboxGone("the sandbox sent an invalid image")
            etag_header = answer.headers.get("ETag", "")
            return Screenshot(
                data=data,
                mime=answer.content_type,
                etag=etag_header if ETAG_PATTERN.fullmatch(etag_header) else "",
                width=_side(answer.headers.get("X-Paddock-Width")),
                height=_side(answer.headers.get("X-Paddock-Height")),
            )

    async def frames(self, width: int = 320, quality: int = 70, fps: int = 1) -> AsyncGenerator[ScreenFrame, None]:
        """Yield a frame now and after each change, at most `fps` per second."""
        query = {"width": str(width), "quality": str(quality), "fps": str(fps)}
        limit = aiohttp.ClientTimeout(total=None, sock_connect=QUICK_TIMEOUT)
        async with self.request("GET", "/screen/frames", params=query, timeout=limit) as answer:
            async for frame in _frames(read_body_chunks(answer)):
                yield frame

    async def open_display(self, *, direct: bool = True, timeout: float = QUICK_TIMEOUT) -> DisplaySocket:
        """Connect to the sandbox's display, which speaks RFB; the socket does not block.

        With `direct`, on the same machine, no process of the sandbox relays data, but the sandbox may share the
        connection: use only methods of `DisplaySocket` or non-blocking calls. Otherwise the daemon relays every byte.
        """
        direct = direct and self._address.socket is not None
        return await open_display_socket(self._address, direct=direct, timeout=timeout)

    async def terminals(self, timeout: float = QUICK_TIMEOUT) -> list[dict[str, Any]]:
        """Return the sandbox's terminals, in the format of `open_terminal`."""
        return _objects(parse_json_object(await self._ask("GET", "/pty", timeout=timeout)), "terminals")

    async def open_terminal(
        self,
        id: str | None = None,
        *,
        cwd: str | None = None,
        command: str | None = None,
        timeout: float = QUICK_TIMEOUT,
    ) -> dict[str, Any]:
        """Open or create a terminal by name: `{session_id, running, output_offset, exit_code, …}`.

        Attach with `websocket(f"/pty/{session_id}/ws?since=OFFSET&takeover=1")`.
        """
        settings = {"id": id, "cwd": cwd, "command": command}
        body = {name: value for name, value in settings.items() if value is not None}
        return parse_json_object(await self._ask("POST", "/pty", json=body, timeout=timeout))

    async def close_terminal(self, id: str, timeout: float = QUICK_TIMEOUT) -> None:
        """End a terminal and its shell."""
        await self._ask("DELETE", f"/pty/{quote(id, safe='')}", timeout=timeout)

    async def _control_services(self, verb: str, names: Sequence[str] | None, timeout: float) -> list[dict[str, Any]]:
        body = {"timeout": timeout} | ({} if names is None else {"names": list(names)})
        answer = await self._ask("POST", f"/paddock/services/{verb}", json=body, timeout=timeout + QUICK_TIMEOUT)
        return _objects(parse_json_object(answer), "services")

    async def _request_bounded(self, method: str, path: str, max_bytes: int, timeout: float, **arguments: Any) -> bytes:
        limit = aiohttp.ClientTimeout(total=timeout)
        async with self.request(method, path, timeout=limit, **arguments) as answer:
            return await read_bounded_body(answer, max_bytes)


def _objects(document: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    found = document.get(name)
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise SandboxGone("the sandbox sent an invalid reply")
    return found


def _side(value: object) -> int:
    """Return a width or height from a sandbox, or 0 if invalid."""
    try:
        side = int(value) if isinstance(value, (int, str)) else 0
    except ValueError:
        side = 0
    return side if 0 < side <= MAX_SIDE_LENGTH else 0


async def _frames(source: AsyncIterator[bytes]) -> AsyncIterator[ScreenFrame]:
    """Yield frames: each is a JSON line with the size of the JPEG that follows."""
    rest = bytearray()
    head: dict[str, Any] | None = None
    size = 0
    async for piece in source:
        rest += piece
        while True:
            if head is None:
                end = rest.find(b"\n", 0, MAX_FRAME_HEAD)
                if end < 0:
                    if len(rest) >= MAX_FRAME_HEAD:
                        raise SandboxGone("the sandbox sent a frame without a header")
                    break
                head, size = _frame_head(bytes(rest[:end]))
                del rest[: end + 1]
            if len(rest) < size:
                break
            yield _frame(head, bytes(rest[:size]))
            del rest[:size]
            head = None


def _frame_head(line: bytes) -> tuple[dict[str, Any], int]:
    head = parse_json_object(line)
    size = head.get("bytes")
    if not isinstance(size, int) or not 0 < size <= MAX_PICTURE_BYTES:
        raise SandboxGone("the sandbox sent a frame of invalid size")
    return head, size


def _frame(head: Mapping[str, Any], data: bytes) -> ScreenFrame:
    width, height = _side(head.get("width")), _side(head.get("height"))
    sequence, at = head.get("sequence"), head.get("at")
    if not isinstance(sequence, int) or not isinstance(at, (int, float)) or not (width and height):
        raise SandboxGone("the sandbox sent a frame with an invalid header")
    if not (0 <= sequence < 2**63 and 0 <= at < 2**53 and data.startswith(JPEG_SIGNATURE)):
        raise SandboxGone("the sandbox sent an invalid frame")
    return ScreenFrame(sequence=sequence, width=width, height=height, at=float(at), data=data)

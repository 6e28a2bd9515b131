"""What `inside` does for boxes with a screen: services, tools, pictures and the display itself."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import aiohttp
from multidict import CIMultiDict

from paddock.errors import BoxGone
from paddock.model.screens import Frame, Shot
from paddock.sandbox.display_socket import DisplaySocket, open_display
from paddock.sandbox.exchange import QUICK, Exchange, Turns, as_object, documents, pieces, read_bounded
from paddock.sandbox.tool_stream import LINES, OnOutput, read_stream

MAX_RESULT = 16 * 2**20
"""Largest answer of a tool, which may hold several pictures. While it is read, nobody else is served."""
MAX_TOOLS = 2 * 2**20
"""Largest list of tools; it is kept for as long as the box is."""
MAX_PICTURE = 32 * 2**20
MAX_FRAME_HEAD = 4 * 2**10
TOOL_TIMEOUT = 120.0
WATCH_REST = 50.0
HEARTBEAT = 60.0
"""Seconds without a word after which a daemon that sends one every fifteen is taken for gone."""
LARGEST_SIDE = 65535
PICTURES = frozenset({"image/jpeg", "image/png", "image/webp"})
"""What a browser may be told a picture is: nothing that it would run."""
JPEG = b"\xff\xd8\xff"
ETAG = re.compile(r'"[!#-~]{1,100}"')


class ScreenClient(Exchange):
    """The part of a daemon's client that is about screens."""

    async def services(self, timeout: float = QUICK) -> list[dict[str, Any]]:
        """What runs in the box from its start: `{name, state, ready, pid, starts, exit_code, log}` of each.

        A `state` is one of `stopped`, `waiting`, `starting`, `ready` and `failed`.
        """
        return _objects(as_object(await self._ask("GET", "/paddock/services", timeout=timeout)), "services")

    async def start_services(self, names: Sequence[str] | None = None, timeout: float = QUICK) -> list[dict[str, Any]]:
        """Start services, by default all, and wait until they are ready, though not much longer than `timeout`."""
        return await self._steer("start", names, timeout)

    async def stop_services(self, names: Sequence[str] | None = None, timeout: float = QUICK) -> list[dict[str, Any]]:
        """Stop services, by default all, until they are started again."""
        return await self._steer("stop", names, timeout)

    async def watch_services(self) -> AsyncGenerator[dict[str, Any], None]:
        """Each service as it is, and then whenever its state changes, until the box ends with `BoxGone`."""
        limit = aiohttp.ClientTimeout(total=None, sock_connect=QUICK, sock_read=HEARTBEAT)
        async with self.request("GET", "/paddock/services/watch", timeout=limit) as answer:
            # It is watched from its start to its end: one that talks without end is listened to now and then.
            async for document in documents(answer, Turns(rest=WATCH_REST)):
                if document.get("type") == "service":
                    yield document
        raise BoxGone("the box has ended")

    async def tools(self, timeout: float = QUICK) -> list[dict[str, Any]]:
        """The box's tools, as MCP's `tools/list` has them."""
        return _objects(as_object(await self._bounded("GET", "/tools", MAX_TOOLS, timeout)), "tools")

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any],
        timeout: float = TOOL_TIMEOUT,
        *,
        on_output: OnOutput | None = None,
    ) -> dict[str, Any]:
        """Call a tool and return MCP's `CallToolResult`. Raises `NotFound` and `InvalidInput` for calls that are wrong.

        A tool that failed has a result that says so. `on_output` is told what it says while it is at work, if the box
        tells; at most 64 KiB of it.
        """
        path, body = f"/tools/{quote(name, safe='')}", dict(arguments)
        if on_output is None:
            return as_object(await self._bounded("POST", path, MAX_RESULT, timeout, json=body))
        limit, headers = aiohttp.ClientTimeout(total=timeout), CIMultiDict({"Accept": LINES})
        async with self.request("POST", path, headers=headers, json=body, timeout=limit) as answer:
            if answer.content_type != LINES:  # A box that was made by an older server does not tell.
                return as_object(await read_bounded(answer, MAX_RESULT))
            return await read_stream(answer, MAX_RESULT, on_output)

    async def mcp(
        self, body: bytes, *, headers: Mapping[str, str] | None = None, timeout: float = TOOL_TIMEOUT
    ) -> tuple[int, dict[str, str], bytes]:
        """One message of MCP to the box's server; the answer's status, headers (in lower case) and body."""
        sent = CIMultiDict({"Content-Type": "application/json", "Accept": "application/json, text/event-stream"})
        sent.update(headers or {})
        limit = aiohttp.ClientTimeout(total=timeout)
        async with self.request("POST", "/mcp", raw=True, headers=sent, data=body, timeout=limit) as answer:
            said = {name.lower(): value for name, value in answer.headers.items()}
            return answer.status, said, await read_bounded(answer, MAX_RESULT)

    async def screenshot(
        self, params: Mapping[str, str] | None = None, etag: str | None = None, timeout: float = QUICK
    ) -> Shot | None:
        """A picture of the screen, or None when it still looks as it did at `etag`."""
        headers = CIMultiDict({"If-None-Match": etag} if etag else {})
        limit = aiohttp.ClientTimeout(total=timeout)
        query = dict(params or {})
        async with self.request("GET", "/screen/shot", headers=headers, params=query, timeout=limit) as answer:
            data = await read_bounded(answer, MAX_PICTURE)
            if answer.status == 304:
                return None
            if answer.status != 200 or answer.content_type not in PICTURES:
                raise BoxGone("the box sends something that is no picture")
            said = answer.headers.get("ETag", "")
            return Shot(
                data=data,
                mime=answer.content_type,
                etag=said if ETAG.fullmatch(said) else "",
                width=_side(answer.headers.get("X-Paddock-Width")),
                height=_side(answer.headers.get("X-Paddock-Height")),
            )

    async def frames(self, width: int = 320, quality: int = 70, fps: int = 1) -> AsyncGenerator[Frame, None]:
        """Pictures of the screen, one now and one whenever it has changed, at most `fps` a second."""
        query = {"width": str(width), "quality": str(quality), "fps": str(fps)}
        limit = aiohttp.ClientTimeout(total=None, sock_connect=QUICK)
        async with self.request("GET", "/screen/frames", params=query, timeout=limit) as answer:
            async for frame in _frames(pieces(answer)):
                yield frame

    async def open_display(self, *, direct: bool = True, timeout: float = QUICK) -> DisplaySocket:
        """A connection to the box's display, where RFB is spoken; it does not block.

        With `direct`, and on this machine, no process of the box stands in between, but the box may hold the same
        connection: only use the methods of `DisplaySocket`, or calls that are told not to wait. Without, the
        descriptor is ours alone and the daemon copies every byte.
        """
        direct = direct and self._address.socket is not None
        return await open_display(self._address, direct=direct, timeout=timeout)

    async def terminals(self, timeout: float = QUICK) -> list[dict[str, Any]]:
        """The box's terminals, as `open_terminal` answers for each."""
        return _objects(as_object(await self._ask("GET", "/pty", timeout=timeout)), "terminals")

    async def open_terminal(
        self, id: str | None = None, *, cwd: str | None = None, command: str | None = None, timeout: float = QUICK
    ) -> dict[str, Any]:
        """A terminal of that name, made if there is none: `{session_id, running, output_offset, exit_code, …}`.

        Attach with `websocket(f"/pty/{session_id}/ws?since=OFFSET&takeover=1")`.
        """
        wishes = {"id": id, "cwd": cwd, "command": command}
        body = {name: value for name, value in wishes.items() if value is not None}
        return as_object(await self._ask("POST", "/pty", json=body, timeout=timeout))

    async def close_terminal(self, id: str, timeout: float = QUICK) -> None:
        """End a terminal's shell and forget it."""
        await self._ask("DELETE", f"/pty/{quote(id, safe='')}", timeout=timeout)

    async def _steer(self, verb: str, names: Sequence[str] | None, timeout: float) -> list[dict[str, Any]]:
        body = {"timeout": timeout} | ({} if names is None else {"names": list(names)})
        answer = await self._ask("POST", f"/paddock/services/{verb}", json=body, timeout=timeout + QUICK)
        return _objects(as_object(answer), "services")

    async def _bounded(self, method: str, path: str, most: int, timeout: float, **arguments: Any) -> bytes:
        limit = aiohttp.ClientTimeout(total=timeout)
        async with self.request(method, path, timeout=limit, **arguments) as answer:
            return await read_bounded(answer, most)


def _objects(document: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    found = document.get(name)
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise BoxGone("the box answers nonsense")
    return found


def _side(value: object) -> int:
    """A width or height that a box tells, or 0 when it makes no sense."""
    try:
        side = int(value) if isinstance(value, (int, str)) else 0
    except ValueError:
        side = 0
    return side if 0 < side <= LARGEST_SIDE else 0


async def _frames(source: AsyncIterator[bytes]) -> AsyncIterator[Frame]:
    """Frames are a line of JSON each, which says how many bytes of JPEG follow it."""
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
                        raise BoxGone("the box sends frames without a head")
                    break
                head, size = _frame_head(bytes(rest[:end]))
                del rest[: end + 1]
            if len(rest) < size:
                break
            yield _frame(head, bytes(rest[:size]))
            del rest[:size]
            head = None


def _frame_head(line: bytes) -> tuple[dict[str, Any], int]:
    head = as_object(line)
    size = head.get("bytes")
    if not isinstance(size, int) or not 0 < size <= MAX_PICTURE:
        raise BoxGone("the box sends a frame of no sensible size")
    return head, size


def _frame(head: Mapping[str, Any], data: bytes) -> Frame:
    width, height = _side(head.get("width")), _side(head.get("height"))
    sequence, at = head.get("sequence"), head.get("at")
    if not isinstance(sequence, int) or not isinstance(at, (int, float)) or not (width and height):
        raise BoxGone("the box sends a frame that does not say what it shows")
    if not (0 <= sequence < 2**63 and 0 <= at < 2**53 and data.startswith(JPEG)):
        raise BoxGone("the box sends a frame that is none")
    return Frame(sequence=sequence, width=width, height=height, at=float(at), data=data)

"""Frees hung pages that would block a new Playwright connection.

Playwright connects to all pages or to none, so one page in an endless script would block every tool. Each page is
checked with CDP over its own WebSocket; a hung script is terminated, and a page that stays hung is closed.
"""

from __future__ import annotations

import asyncio
import json
import os
import struct
from urllib.parse import urlsplit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

ANSWER_TIMEOUT = 1.0
MAX_PAGES = 100
MAX_LIST = 4 * 1024 * 1024


async def free_hung_pages(address: str) -> int:
    """Terminate the scripts of hung pages, close pages that stay hung; return the number of closed pages."""
    where = urlsplit(address)
    host, port = where.hostname or "127.0.0.1", where.port or 9222
    pages = [one for one in json.loads(await _get(host, port, "/json/list")) if one.get("type") == "page"]
    return sum(await asyncio.gather(*(_free_page(host, port, str(one.get("id"))) for one in pages[:MAX_PAGES])))


async def chromium_instance_id(address: str) -> str:
    """Return an id of the running chromium process; empty if it does not answer."""
    where = urlsplit(address)
    try:
        version = json.loads(await _get(where.hostname or "127.0.0.1", where.port or 9222, "/json/version"))
        return str(version["webSocketDebuggerUrl"])
    except (OSError, ValueError, KeyError, TypeError, asyncio.TimeoutError, asyncio.IncompleteReadError):
        return ""


async def _free_page(host: str, port: int, page: str) -> bool:
    try:
        if await asyncio.wait_for(_page_responds(host, port, page), 4 * ANSWER_TIMEOUT):
            return False
    except (OSError, asyncio.TimeoutError, asyncio.IncompleteReadError):
        pass
    try:
        await _get(host, port, f"/json/close/{page}")
    except (OSError, asyncio.TimeoutError):
        return False
    return True


async def _page_responds(host: str, port: int, page: str) -> bool:
    reader, writer = await asyncio.open_connection(host, port)
    try:
        await _upgrade(reader, writer, host, port, page)
        if await _evaluates(reader, writer, 1):
            return True
        _send(writer, {"id": 2, "method": "Runtime.terminateExecution"})
        return await _evaluates(reader, writer, 3)
    finally:
        writer.close()


async def _evaluates(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> bool:
    _send(writer, {"id": number, "method": "Runtime.evaluate", "params": {"expression": "1"}})
    try:
        await asyncio.wait_for(_await_answer(reader, number), ANSWER_TIMEOUT)
    except asyncio.TimeoutError:
        return False
    return True


async def _await_answer(reader: asyncio.StreamReader, number: int) -> None:
    while True:
        head = await reader.readexactly(2)
        size = head[1] & 0x7F
        if size >= 126:
            wide = size == 127
            size = struct.unpack("!Q" if wide else "!H", await reader.readexactly(8 if wide else 2))[0]
        message = json.loads(await reader.readexactly(size)) if size else {}
        if message.get("id") == number:
            return


async def _upgrade(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str, port: int, page: str) -> None:
    writer.write(
        f"GET /devtools/page/{page} HTTP/1.1\r\nHost: {host}:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: cGFkZG9jayBwYWRkb2NrIQ==\r\n\r\n".encode()
    )
    await reader.readuntil(b"\r\n\r\n")


def _send(writer: asyncio.StreamWriter, message: dict[str, Any]) -> None:
    data, mask = json.dumps(message).encode(), os.urandom(4)
    masked = bytes(byte ^ mask[at % 4] for at, byte in enumerate(data))
    writer.write(struct.pack("!BBH", 0x81, 0x80 | 126, len(data)) + mask + masked)


async def _get(host: str, port: int, path: str) -> bytes:
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n\r\n".encode())
        answer = await asyncio.wait_for(_content(reader), 5.0)
    finally:
        writer.close()
    return answer


async def _content(reader: asyncio.StreamReader) -> bytes:
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    length = head.partition(b"content-length:")[2].split(b"\r\n")[0].strip()
    return await reader.readexactly(min(int(length or b"0"), MAX_LIST))

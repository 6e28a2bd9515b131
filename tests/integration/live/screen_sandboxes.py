"""Sandboxes with screens on a real server, and calls to their tools."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from tests.support.screen_images import share_screen_images
from tests.support.server import Server, eventually, run_server

IMAGES = {"linux": "desktop", "browser": "browser", "windows": "windows", "mobile": "mobile"}


@contextmanager
def screens_server(directory: Path, *kinds: str, **settings: Any) -> Iterator[Server]:
    """A server with the images of these kinds."""
    share_screen_images(directory / "data", *(IMAGES[kind] for kind in kinds))
    with run_server(directory, {"sandboxes": {"min_free_disk": 0}, **settings}) as server:
        yield server


@dataclass
class Sandbox:
    """One sandbox and its tools."""

    client: httpx.Client
    id: str

    @property
    def path(self) -> str:
        return f"/v1/sandboxes/{self.id}"

    def post(self, tool: str, arguments: Mapping[str, Any] | None = None, **query: Any) -> httpx.Response:
        return self.client.post(f"{self.path}/tools/{tool}", json=dict(arguments or {}), params=query)

    def call(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        """Return the result of a successful call."""
        answer = self.post(tool, arguments)
        assert answer.status_code == 200, answer.text
        result: dict[str, Any] = answer.json()
        assert result["isError"] is False, result["content"]
        return result

    def text(self, tool: str, /, **arguments: Any) -> str:
        return text_of(self.call(tool, **arguments))

    def fails(self, tool: str, /, **arguments: Any) -> str:
        """Return the error text of a failing call."""
        answer = self.post(tool, arguments)
        assert answer.status_code == 200, answer.text
        assert answer.json()["isError"] is True, answer.text
        return text_of(answer.json())

    def screen(self, **query: Any) -> Picture:
        """Return a screenshot through the API."""
        answer = self.client.get(f"{self.path}/screenshot", params={"format": "png", **query})
        assert answer.status_code == 200, answer.text
        return read_png(answer.content)

    def events(self, kind: str, after: int = 0) -> list[dict[str, Any]]:
        query = {"after": str(after), "limit": "1000"}
        answer = self.client.get(f"{self.path}/events", params=query, headers={"Accept": "application/json"})
        return [event for event in answer.json()["items"] if event["type"] == kind]

    def move(self, source: str | dict[str, Any], destination: Sandbox, path: str) -> dict[str, Any]:
        """Move a file, or a picture of the screen, to another sandbox."""
        body = {"from": source, "to": {"sandbox": destination.id, "path": path}}
        answer = self.client.post(f"{self.path}/move", json=body)
        assert answer.status_code == 200, answer.text
        moved: dict[str, Any] = answer.json()
        return moved


@contextmanager
def sandbox_of(client: httpx.Client, kind: str, **more: Any) -> Iterator[Sandbox]:
    """A sandbox of a kind, with a running screen if the kind has one."""
    extensions = {"paddock.kind": kind, **more.pop("extensions", {})}
    answer = client.post("/v1/sandboxes", json={"extensions": extensions, **more})
    assert answer.status_code == 202, answer.text
    sandbox = Sandbox(client, str(answer.json()["id"]))
    try:
        if kind != "code":
            eventually(lambda: client.get(f"{sandbox.path}/desktop").json().get("up"))
        yield sandbox
    finally:
        client.delete(sandbox.path)


def text_of(result: Mapping[str, Any]) -> str:
    return "\n".join(part["text"] for part in result["content"] if part["type"] == "text")


def data_of(result: Mapping[str, Any]) -> bytes:
    """Return the picture in a result."""
    return base64.b64decode(next(part["data"] for part in result["content"] if part["type"] == "image"))


@dataclass
class Picture:
    """Pixels, as red, green and blue."""

    width: int
    height: int
    rows: list[bytes]

    def at(self, x: int, y: int) -> tuple[int, int, int]:
        red, green, blue = self.rows[y][3 * x : 3 * x + 3]
        return red, green, blue

    def share(self, colour: tuple[int, int, int], distance: int = 24) -> float:
        """Return the share of pixels close to a colour."""
        near = sum(
            all(abs(a - b) <= distance for a, b in zip(self.at(x, y), colour, strict=True))
            for y in range(self.height)
            for x in range(self.width)
        )
        return near / (self.width * self.height)


def read_png(data: bytes) -> Picture:
    """Decode a PNG with eight bits per channel, such as a screenshot."""
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    position, packed, head = 8, b"", b""
    while position < len(data):
        size, kind = int.from_bytes(data[position : position + 4]), data[position + 4 : position + 8]
        content = data[position + 8 : position + 8 + size]
        head = content if kind == b"IHDR" else head
        packed += content if kind == b"IDAT" else b""
        position += size + 12
    width, height, channels = int.from_bytes(head[:4]), int.from_bytes(head[4:8]), {2: 3, 6: 4}[head[9]]
    assert head[8] == 8 and head[12] == 0
    raw, line = zlib.decompress(packed), width * channels + 1
    rows = [bytearray(line - 1)]
    for number in range(height):
        coded = raw[number * line : (number + 1) * line]
        rows.append(_unfiltered(coded[0], coded[1:], rows[-1], channels))
    plain = [bytes(row) if channels == 3 else b"".join(row[i : i + 3] for i in range(0, len(row), 4)) for row in rows]
    return Picture(width, height, plain[1:])


def _unfiltered(kind: int, coded: bytes, above: bytearray, step: int) -> bytearray:
    row = bytearray(coded)
    for i in range(len(row)):
        left, up = row[i - step] if i >= step else 0, above[i]
        corner = above[i - step] if i >= step else 0
        if kind == 1:
            row[i] = (row[i] + left) & 255
        elif kind == 2:
            row[i] = (row[i] + up) & 255
        elif kind == 3:
            row[i] = (row[i] + (left + up) // 2) & 255
        elif kind == 4:
            guess = left + up - corner
            nearest = min((left, up, corner), key=lambda near: abs(guess - near))
            row[i] = (row[i] + nearest) & 255
    return row

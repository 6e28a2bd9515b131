"""A hostile program in place of a sandbox's daemon, and checks of the server meanwhile."""

from __future__ import annotations

import base64
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.support.server import Server, run_in_sandbox

PROGRAM = r"""
import base64, hashlib, json, re, socket, threading

FRAMES = {"pings": b"\x89\0", "nothing": b"\x82\0", "words": b"\x81\x02{}", "letters": b"\x82\x02\x01x"}
TOOLS = (
    "lists keys digits deep infinite endless slowly halves newlines nothing text picture half_length html".split()
)

def answer(connection, body, kind=b"application/json", status=b"200 OK", more=b""):
    head = b"HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %d\r\n%s\r\n" % (status, kind, len(body), more)
    connection.sendall(head + body)

def result(text="", **more):
    return json.dumps({"content": [{"type": "text", "text": text}], **more}).encode()

def tool(connection, name):
    if name == "lists":
        answer(connection, b'{"content": [' + b"[]," * 5000000 + b"[]]}")
    elif name == "keys":
        many = b",".join(b'"%d":0' % i for i in range(1000000))
        answer(connection, b'{"content": [], "structuredContent": {' + many + b"}}")
    elif name == "digits":
        answer(connection, b'{"content": [], "structuredContent": {"a": ' + b"9" * 1000000 + b"}}")
    elif name == "deep":
        deep = b'{"a":' * 400 + b"1" + b"}" * 400
        answer(connection, b'{"content": [], "structuredContent": ' + deep + b"}")
    elif name == "infinite":
        answer(connection, b'{"content": [], "structuredContent": {"a": 1e999, "b": NaN}}')
    elif name == "endless":
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n")
        while True:
            connection.sendall(b"x" * 2**20)
    elif name == "slowly":
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            connection.sendall(b" ")
            threading.Event().wait(0.01)
    elif name == "halves":
        answer(connection, result("\ud800", _meta={"paddock": {"files": ["/\udfff"]}}))
    elif name == "newlines":
        files = ["/a\r\nSet-Cookie: x=y", "/\x1b]0;x\x07", "/" + "x" * 10000] * 200
        answer(connection, result("x", _meta={"paddock": {"files": files, "shot": "\r\nx: y" * 100}}))
    elif name == "picture":
        part = {"type": "image", "data": "AAAA", "mimeType": "image/png\r\nX: y"}
        answer(connection, json.dumps({"content": [part]}).encode())
    elif name == "html":
        answer(connection, b"<script>alert(1)</script>", b"text/html")
    elif name == "half_length":
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")
        connection.shutdown(socket.SHUT_WR)
    elif name == "nothing":
        connection.shutdown(socket.SHUT_WR)
    else:
        answer(connection, result("x" * 10000))

def shot(connection, quality):
    if quality == 1:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: image/png\r\n\r\n")
        while True:
            connection.sendall(b"x" * 2**20)
    elif quality == 2:
        answer(connection, b"<script>", b"text/html", more=b'ETag: "x"\r\n')
    elif quality == 3:
        answer(connection, b"<svg/>", b"image/svg+xml", more=b'ETag: "x"\r\n')
    elif quality == 4:
        answer(connection, b"x", b"image/png", more=b'ETag: "x" y\xff\r\nX-Paddock-Width: ' + b"9" * 4000 + b"\r\n")
    elif quality == 5:
        answer(connection, b"x", b"image/png\x0bX: y", more=b'ETag: "x"\r\n')
    elif quality == 6:
        answer(connection, b"x", b"image/png", b"206 Part", more=b'ETag: "x"\r\n')
    else:
        answer(connection, b"x" * 100, b"image/png", more=b'ETag: "x"\r\nX-Paddock-Width: 10\r\n')

def frames(connection, quality):
    connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
    number = 0
    while True:
        number += 1
        head = {"sequence": number, "width": 65535, "height": 65535, "at": 1, "bytes": 2**25}
        connection.sendall(json.dumps(head).encode() + b"\n" + b"\xff\xd8\xff" + b"x" * (2**25 - 3))

def send_frames(connection, head, frame):
    key = re.search(rb"(?i)sec-websocket-key: *(\S+)", head)[1]
    accept = base64.b64encode(hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
    connection.sendall(b"HTTP/1.1 101 Yes\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n")
    connection.sendall(b"Sec-WebSocket-Accept: " + accept + b"\r\n\r\n")
    word = b'{"type": "connected"}'
    connection.sendall(b"\x81" + bytes([len(word)]) + word)
    # The largest offset that a number can hold.
    connection.sendall(b"\x82\x7e\x00\x0d\x03" + b"\xff" * 8 + b"\nxyz")
    while True:
        connection.sendall(frame * 50000)

def serve(connection):
    stream = connection.makefile("rb")
    try:
        while line := stream.readline():
            head, size = b"", 0
            while (read := stream.readline()).strip():
                head += read
                if read.lower().startswith(b"content-length:"):
                    size = int(read.split(b":")[1])
            body = stream.read(size)
            method, path = line.split()[:2]
            where, _, query = path.decode().partition("?")
            quality = int((re.search(r"quality=(\d+)", query) or [0, "0"])[1])
            if where == "/tools":
                odd = ["a b", "a/b", "../x", "x\r\ny: z", "é", "", "x" * 1000, 5, None, []]
                schema = json.loads('{"a":' * 400 + "1" + "}" * 400)
                tools = [{"name": each, "inputSchema": schema, "description": [1]} for each in (*TOOLS, *odd)]
                answer(connection, json.dumps({"tools": tools}).encode())
            elif where.startswith("/tools/"):
                tool(connection, where[7:])
            elif where == "/mcp":
                asked = json.loads(body)
                name = asked.get("params", {}).get("name", "lists")
                if name in ("deep", "text"):
                    deep = {"a": json.loads("[" * 400 + "]" * 400)} if name == "deep" else {}
                    said = {"jsonrpc": "2.0", "id": asked["id"], "result": {"content": [], **deep}}
                    answer(connection, json.dumps(said).encode(), b"text/html", b"418 Teapot", b"Set-Cookie: a=b\r\n")
                else:
                    tool(connection, name)
            elif where == "/screen/shot":
                shot(connection, quality)
            elif where == "/screen/frames":
                frames(connection, quality)
            elif where == "/paddock/services":
                service = {"name": "display", "state": "x" * 1000, "ready": True, "starts": 10**4000, "exit_code": True}
                answer(connection, json.dumps({"services": [service]}).encode())
            elif where == "/pty":
                known = [{"session_id": name, "running": True, "launch_attempted": True} for name in FRAMES]
                answer(connection, json.dumps({"terminals": known}).encode())
            elif where.startswith("/pty/"):
                send_frames(connection, head, FRAMES[where.split("/")[2]])
            else:
                answer(connection, b"{}")
    except (OSError, ValueError, KeyError):
        pass
    finally:
        connection.close()

listener = socket.socket(fileno=3)
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
"""


def hostile_sandbox(client: httpx.Client) -> str:
    """Create a sandbox with this program as its daemon: a volume replaces the image's Python."""

    def volume(name: str, path: str, **part: str) -> dict[str, Any]:
        return {"name": name, "pvc": {"claimName": "hostile"}, "mountPath": path, **part}

    def create(**body: Any) -> str:
        answer = client.post("/v1/sandboxes", json=body)
        assert answer.status_code == 202, answer.text
        return str(answer.json()["id"])

    maker = create(volumes=[volume("made", "/made")])
    program = base64.b64encode(PROGRAM.encode()).decode()
    python, _ = run_in_sandbox(
        client,
        maker,
        "cp $(readlink -f /usr/bin/python3) /made/python; "
        f"echo {program} | base64 -d > /made/hostile.py; "
        "printf '#!/bin/sh\\nexec /made/python -I /made/hostile.py\\n' > /made/start; chmod 755 /made/*; "
        "readlink -f /usr/bin/python3",
    )
    client.delete(f"/v1/sandboxes/{maker}")
    return create(
        volumes=[volume("made", "/made"), volume("python", python, subPath="start")], entrypoint=["sleep", "inf"]
    )


def open_files(server: Server) -> int:
    assert server.process is not None
    return len(os.listdir(f"/proc/{server.process.pid}/fd"))


def memory(server: Server) -> int:
    assert server.process is not None
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) * 1024


@contextmanager
def server_stays_responsive(server: Server, within: float = 2.0) -> Iterator[None]:
    """Check that the server answers other clients all the time, with a margin for a busy machine."""
    over = threading.Event()
    waits: list[float] = []

    def poll() -> None:
        with server.client() as client:
            while not waits or not over.is_set():
                began = time.monotonic()
                try:
                    assert client.get("/healthz", timeout=30).status_code == 200
                finally:
                    waits.append(time.monotonic() - began)
                over.wait(0.01)

    poller = threading.Thread(target=poll)
    poller.start()
    try:
        yield
    finally:
        over.set()
        poller.join()
    assert max(waits) < within, f"a request took {max(waits):.2f} s"

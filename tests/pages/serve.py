"""Serves the pages beside it, and what no decent server does, inside a sandbox. Standard library only."""

import http.server
import os
import sys
import time
from typing import Any

HERE = os.path.dirname(os.path.abspath(__file__))
PIECE = bytes(65536)


class Handler(http.server.SimpleHTTPRequestHandler):
    """Files, and under names of their own: a download, an endless one, a silent server, a page that stops half way."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments, directory=HERE)

    def do_GET(self) -> None:
        name = self.path.partition("?")[0].strip("/")
        special = {"huge": self.huge, "endless": self.endless, "silent": self.silent, "half": self.half}
        if name == "file.txt":
            self.send(b"downloaded\n", "text/plain", ("Content-Disposition", 'attachment; filename="../file.txt"'))
        elif name == "missing":
            self.send_error(404)
        elif name in special:
            try:
                special[name]()
            except OSError:
                pass
            self.close_connection = True
        else:
            super().do_GET()

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", 0)))
        self.send(b"<title>Sent</title><h1>Sent</h1>", "text/html; charset=utf-8")

    def huge(self) -> None:
        """A download that says at once that it has five gigabytes."""
        self.head("application/octet-stream", ("Content-Disposition", "attachment"), ("Content-Length", str(5 * 10**9)))
        self.pour()

    def endless(self) -> None:
        """A download that does not say how much it is."""
        self.head("application/octet-stream", ("Content-Disposition", "attachment"))
        self.pour()

    def silent(self) -> None:
        time.sleep(60)

    def half(self) -> None:
        self.head("text/html; charset=utf-8")
        self.wfile.write(b"<title>Half</title><h1>The first half</h1>" + b" " * 2048)
        self.wfile.flush()
        time.sleep(60)

    def pour(self) -> None:
        while True:
            self.wfile.write(PIECE)

    def send(self, body: bytes, kind: str, *headers: "tuple[str, str]") -> None:
        self.head(kind, *headers, ("Content-Length", str(len(body))))
        self.wfile.write(body)

    def head(self, kind: str, *headers: "tuple[str, str]") -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, *arguments: Any) -> None:
        pass


if __name__ == "__main__":
    http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()

"""Serve the pages in this directory, and misbehaving responses, inside a sandbox. Standard library only."""

import http.server
import os
import sys
import time
from typing import Any

PAGES_DIRECTORY = os.path.dirname(os.path.abspath(__file__))
CHUNK = bytes(65536)


class PageRequestHandler(http.server.SimpleHTTPRequestHandler):
    """Files, a huge and an endless download, a request without response, and a page that stops half way."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments, directory=PAGES_DIRECTORY)

    def do_GET(self) -> None:
        name = self.path.partition("?")[0].strip("/")
        special = {
            "huge": self.send_huge_download,
            "endless": self.send_endless_download,
            "silent": self.send_nothing,
            "half": self.send_half_page,
        }
        if name == "file.txt":
            self.send_body(b"downloaded\n", "text/plain", ("Content-Disposition", 'attachment; filename="../file.txt"'))
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
        self.send_body(b"<title>Sent</title><h1>Sent</h1>", "text/html; charset=utf-8")

    def send_huge_download(self) -> None:
        """Send a download with a declared length of five gigabytes."""
        self.send_response_head(
            "application/octet-stream", ("Content-Disposition", "attachment"), ("Content-Length", str(5 * 10**9))
        )
        self.send_chunks_forever()

    def send_endless_download(self) -> None:
        """Send an endless download without a declared length."""
        self.send_response_head("application/octet-stream", ("Content-Disposition", "attachment"))
        self.send_chunks_forever()

    def send_nothing(self) -> None:
        time.sleep(60)

    def send_half_page(self) -> None:
        self.send_response_head("text/html; charset=utf-8")
        self.wfile.write(b"<title>Half</title><h1>The first half</h1>" + b" " * 2048)
        self.wfile.flush()
        time.sleep(60)

    def send_chunks_forever(self) -> None:
        while True:
            self.wfile.write(CHUNK)

    def send_body(self, body: bytes, kind: str, *headers: "tuple[str, str]") -> None:
        self.send_response_head(kind, *headers, ("Content-Length", str(len(body))))
        self.wfile.write(body)

    def send_response_head(self, kind: str, *headers: "tuple[str, str]") -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, *arguments: Any) -> None:
        pass


if __name__ == "__main__":
    http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), PageRequestHandler).serve_forever()

"""A real HTTP server for the official SDKs, with answers encoded by Paddock.

It can also simulate a provider with another format than the client: then requests and answers are translated as the
proxy does.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from paddock.llm.formats.answer_events import stream_events_from_answer
from paddock.llm.formats.base import WireFormat
from paddock.llm.formats.neutral import ModelAnswer, ModelFailure, ModelRequest
from paddock.llm.formats.registry import FORMATS

PATHS = {
    "/v1/chat/completions": "openai-chat",
    "/v1/responses": "openai-responses",
    "/v1/messages": "anthropic",
}
MODELS = {"anthropic": "claude-sonnet-4-5", "gemini": "gemini-3-pro", "openai-responses": "gpt-5", "openai-chat": "m"}
"""A model of each provider, by format."""


@dataclass
class Upstream:
    """Recorded requests, and the answers to send next."""

    url: str
    answers: list[ModelAnswer | ModelFailure] = field(default_factory=list)
    others: dict[str, bytes] = field(default_factory=dict)
    """Response bodies of other routes, by path."""
    provider: str | None = None
    """Format of the provider, if it differs from the client's."""
    requests: list[tuple[str, bytes]] = field(default_factory=list)
    """Format and body of each request."""
    provider_requests: list[bytes] = field(default_factory=list)
    """The translated request for each."""
    notes: list[list[str]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)

    def body(self, index: int = -1) -> Any:
        return json.loads(self.requests[index][1])

    def request(self, index: int = -1) -> ModelRequest:
        """Return one of the requests as parsed by Paddock."""
        form, body = self.requests[index]
        return FORMATS[form].read_request(body, model="gemini-3-pro" if form == "gemini" else None)

    def reply(self, client: WireFormat, request: ModelRequest) -> tuple[int, bytes]:
        answer = self.answers.pop(0)
        provider = FORMATS[self.provider] if self.provider is not None else client
        sent = ModelRequest(**{name: getattr(request, name) for name in request.__slots__})
        sent.model = MODELS[provider.name]
        self.provider_requests.append(provider.write_request(sent))
        self.notes.append(sent.notes)
        arrived = provider.read_request(self.provider_requests[-1], model=sent.model, stream=sent.stream)
        if isinstance(answer, ModelFailure):
            failure = provider.read_failure(answer.status, provider.write_failure(answer))
            return failure.status, client.write_failure(failure)
        if not request.stream:
            whole = provider.read_answer(provider.write_answer(answer, arrived))
            return 200, client.write_answer(whole, request)
        upstream, reader, writer = (
            provider.new_stream_writer(arrived),
            provider.new_stream_reader(),
            client.new_stream_writer(request),
        )
        events = reader.feed(b"".join(map(upstream.write, stream_events_from_answer(answer)))) + reader.close()
        return 200, b"".join(map(writer.write, events))


@contextmanager
def upstream() -> Iterator[Upstream]:
    known: list[Upstream] = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(lambda: known[0]))
    server.daemon_threads = False
    known.append(Upstream(f"http://127.0.0.1:{server.server_address[1]}"))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield known[0]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _handler(known: Callable[[], Upstream]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.answer(b"")

        def do_POST(self) -> None:
            self.answer(self.rfile.read(int(self.headers["content-length"])))

        def answer(self, body: bytes) -> None:
            up = known()
            up.paths.append(self.path)
            path = self.path.partition("?")[0]
            if path in up.others:
                up.requests.append(("", body))
                self.send(200, "application/json", up.others[path])
                return
            gemini = re.fullmatch(r"/v1(?:beta)?/models/([^:]+):(\w+)", path)
            client = FORMATS["gemini" if gemini else PATHS[path]]
            up.requests.append((client.name, body))
            stream = gemini[2] == "streamGenerateContent" if gemini else None
            request = client.read_request(body, model=gemini[1] if gemini else None, stream=stream)
            status, response = up.reply(client, request)
            streams = request.stream and status == 200
            self.send(status, "text/event-stream" if streams else "application/json", response)

        def send(self, status: int, kind: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    return Handler

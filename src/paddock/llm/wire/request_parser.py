"""Incremental parser for the requests of one client connection.

The client may be hostile: memory is bounded, and requests that two programs could read differently are refused.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser

from paddock.llm.wire.base import Headers, HttpRequest
from paddock.llm.wire.http_heads import MAX_HEADERS, headers_size
from paddock.llm.wire.memory_budget import UNCOUNTED_BYTES, MemoryBudget, MemoryReservation

MAX_PIPELINED = 100
"""Requests that may be buffered before the first is answered. Small ones take far more memory than bytes on the
wire."""
_NOTED = frozenset((b"host", b"content-length", b"transfer-encoding", b"expect"))


@dataclass(slots=True)
class ParsedHttpRequest:
    """A complete request, and whether its connection stays open."""

    request: HttpRequest
    keep_alive: bool
    """Whether another request may follow."""
    is_http_1_0: bool
    """Whether the client uses HTTP/1.0."""
    reservation: MemoryReservation | None
    """Memory reserved for the body, to be released when the request has been answered."""


class HttpRequestRefusal(Exception):
    """An error response that refuses a request and ends the connection."""

    def __init__(self, status: int, message: str, body: bytes | None = None) -> None:
        """`body` is the JSON body of the response, by default made from status and message."""
        super().__init__(message)
        self.status = status
        self.message = message
        self.body = body


class ConnectionRequestParser:
    """Parses the requests of one connection."""

    __slots__ = (
        "_admits_bodies", "_body", "_fed", "_framing", "_headers", "_is_http_1_0", "_keep_alive", "_listener_budget",
        "_max_body", "_max_header", "_memory_budget", "_method", "_noted", "_parser", "_progress", "_quiet", "_refusal",
        "_reservation", "_tag", "_url", "ended", "head_done", "in_request", "ready", "wants_admission",
        "wants_continue",
    )  # fmt: skip

    def __init__(
        self,
        max_header: int,
        max_body: int,
        tag: str | None,
        memory_budget: MemoryBudget,
        *,
        admits_bodies: bool = False,
    ) -> None:
        """With `admits_bodies`, each large body needs a call of `admit_body` before the rest of it is fed."""
        self.ready: deque[ParsedHttpRequest | HttpRequestRefusal] | None = None
        """Parsed requests and refusals that were not taken yet, in order."""
        self.in_request = False
        """Whether a request has been received in part."""
        self.head_done = False
        """Whether the head of the current request is complete."""
        self.wants_continue = False
        """Whether the client waits for `100 Continue`."""
        self.wants_admission = False
        """Whether a large body begins, which `admit_body` has to admit before more is fed."""
        self.ended = False
        """Whether all further bytes are ignored."""
        self._max_header = max_header
        self._max_body = max_body
        self._tag = tag
        self._admits_bodies = admits_bodies
        self._listener_budget = self._memory_budget = memory_budget
        self._reservation: MemoryReservation | None = None
        self._parser: HttpRequestParser | None = HttpRequestParser(self)
        self._refusal: HttpRequestRefusal | None = None
        self._progress = False
        self._quiet = 0
        """Bytes received since the last body byte or complete head."""
        self._fed = 0
        """Upper bound of the head's size: bytes received since it began."""
        self._framing = False
        """Whether the parser reads a head that was made here, see `_read_body_after_offer`."""
        self._keep_alive = True
        self._is_http_1_0 = False
        self._method = ""
        self._url = b""
        self._headers: Headers = []
        self._noted: dict[bytes, bytes] = {}
        self._body: bytes | bytearray = b""

    @property
    def has_partial_request(self) -> bool:
        """True if bytes of an incomplete request have been received."""
        return self.in_request or self._quiet > 0

    @property
    def in_sized_body(self) -> bool:
        """True within a body of known length, which takes one step to parse."""
        return self.head_done and self.in_request and b"content-length" in self._noted

    def unfinished_request(self) -> HttpRequest:
        """Return the request without its body, which is still being received. Raises `HttpRequestRefusal`."""
        path, query = self._target()
        return HttpRequest(self._method, path, query, self._headers, b"", self._tag)

    def admit_body(self, budget: MemoryBudget) -> bool:
        """Reserve memory for the current body from this budget; return False if it has too little."""
        self.wants_admission = False
        self._memory_budget = budget
        return self._reservation is None or self._reservation.move_to(budget)

    def take_next(self) -> ParsedHttpRequest | HttpRequestRefusal:
        """Remove and return the first ready item."""
        assert self.ready
        first = self.ready.popleft()
        if not self.ready:
            self.ready = None
        return first

    def feed(self, data: bytes) -> None:
        """Parse some bytes; requests that become complete are added to `ready`."""
        if self.ended or self._parser is None:
            return
        self._progress = False
        self._fed += len(data)
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade as offer:
            if self.in_request:
                self._read_body_after_offer(data[offer.args[0] :])
                return
        except HttpParserError as error:
            # The parser also reports errors in bytes after the last request; these are ignored.
            if not self.ended:
                self._refuse(self._refusal or HttpRequestRefusal(400, f"this is not valid HTTP: {error}"))
        if self.head_done or not self.in_request:
            self._fed = 0
        if self._progress:
            self._quiet = 0
        else:
            # Part of a head, trailers or chunk extensions: their total size is bounded.
            self._quiet += len(data)
            if self._quiet > self._max_header and not self.ended:
                self._refuse(HttpRequestRefusal(431, f"the headers are longer than {self._max_header} bytes"))

    def close(self) -> None:
        """Release all memory; nothing more will be parsed."""
        self.ended = True
        for item in self.ready or ():
            if isinstance(item, ParsedHttpRequest) and item.reservation is not None:
                item.reservation.release()
        self.ready = None
        self._parser = None
        self._discard_body()

    # Called by the parser.

    def on_message_begin(self) -> None:
        if self._framing:
            return
        self.in_request = True
        self.head_done = self.wants_continue = self.wants_admission = False
        self._memory_budget = self._listener_budget
        self._url = b""
        self._headers = []
        self._noted = {}
        self._discard_body()

    def on_url(self, url: bytes) -> None:
        if not self._framing:
            self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        # Headers after the head are trailers, which are ignored.
        if self.head_done:
            return
        name = name.lower()
        value = value.rstrip()
        self._headers.append((name, value))
        if name in _NOTED:
            if name in self._noted:
                raise self._refusal_error(400, f"the header {name.decode()} may be sent only once")
            self._noted[name] = value

    def on_headers_complete(self) -> None:
        self._progress = True
        if self._framing:
            self._framing = False
            return
        assert self._parser is not None
        self.head_done = True
        version = self._parser.get_http_version()
        self._is_http_1_0 = version == "1.0"
        self._keep_alive = self._parser.should_keep_alive()
        self._method = self._parser.get_method().decode("ascii")
        if not self._is_http_1_0 and version != "1.1":
            raise self._refusal_error(505, "only HTTP/1.1 and HTTP/1.0 are supported")
        # Most heads come in one short piece and need no measuring.
        if self._fed > self._max_header and len(self._url) + headers_size(self._headers) > self._max_header:
            raise self._refusal_error(431, f"the headers are longer than {self._max_header} bytes")
        if len(self._headers) > MAX_HEADERS:
            raise self._refusal_error(431, f"there are more than {MAX_HEADERS} headers")
        noted = self._noted
        if not self._is_http_1_0 and b"host" not in noted:
            raise self._refusal_error(400, "the header host is missing")
        coding = noted.get(b"transfer-encoding")
        if coding is not None and (self._is_http_1_0 or coding.lower() != b"chunked"):
            raise self._refusal_error(
                400, "a body needs a content-length or chunked transfer-encoding; no other encoding is supported"
            )
        # The parser has checked that it is a number.
        length = int(noted.get(b"content-length", b"0"))
        if length > self._max_body:
            raise self._refusal_error(413, f"the request is longer than {self._max_body} bytes")
        self.wants_admission = self._admits_bodies and (coding is not None or length > UNCOUNTED_BYTES)
        expected = noted.get(b"expect")
        if expected is not None and not self._is_http_1_0:
            if expected.lower() != b"100-continue":
                raise self._refusal_error(417, "only Expect: 100-continue is supported")
            self.wants_continue = True

    def on_body(self, data: bytes) -> None:
        self._progress = True
        self.wants_continue = False
        if len(self._body) + len(data) > self._max_body:
            raise self._refusal_error(413, f"the request is longer than {self._max_body} bytes")
        if not self._body:
            self._body = data
            if len(data) <= UNCOUNTED_BYTES:
                return
            self._body = b""
        if self._reservation is None:
            self._reservation = MemoryReservation(self._memory_budget)
            self._reservation.grow(len(self._body))
        if not self._reservation.grow(len(data)):
            self._discard_body()
            raise self._refusal_error(503, "too many large requests at once; try again later")
        if isinstance(self._body, bytes):
            # One buffer, so that many small pieces take no more memory than their content.
            self._body = bytearray(self._body)
        self._body += data

    def on_message_complete(self) -> None:
        assert self._parser is not None
        self._progress = True
        if self._parser.should_upgrade():
            self._keep_alive = False
            if b"transfer-encoding" in self._noted or int(self._noted.get(b"content-length", b"0")) > 0:
                return
        self.in_request = self.wants_continue = self.wants_admission = False
        if self.ready is not None and len(self.ready) >= MAX_PIPELINED:
            raise self._refusal_error(429, f"at most {MAX_PIPELINED} requests may be sent before the first is answered")
        path, query = self._target()
        request = HttpRequest(self._method, path, query, self._headers, bytes(self._body), self._tag)
        self._body = b""
        self._push(ParsedHttpRequest(request, self._keep_alive, self._is_http_1_0, self._reservation))
        self._reservation = None
        self.ended = not self._keep_alive

    # Helpers.

    def _read_body_after_offer(self, rest: bytes) -> None:
        """Parse the body of a request that offers a protocol upgrade.

        The parser takes the bytes that follow for the other protocol, so a new parser reads the body.
        """
        length = self._noted.get(b"content-length")
        framing = b"transfer-encoding: chunked" if length is None else b"content-length: " + length
        self._parser = HttpRequestParser(self)
        self._framing = True
        self._parser.feed_data(b"POST / HTTP/1.1\r\n%b\r\n\r\n" % framing)
        self.feed(rest)

    def _target(self) -> tuple[str, str]:
        url = self._url.decode("ascii")
        if url.lower().startswith(("http://", "https://")):
            # Clients that treat this server as a forward proxy send an absolute URL.
            _, _, rest = url.partition("://")
            cut = min((at for at in (rest.find("/"), rest.find("?")) if at >= 0), default=len(rest))
            url = rest[cut:] if rest[cut : cut + 1] == "/" else "/" + rest[cut:]
        if not url.startswith("/") or "#" in url:
            raise self._refusal_error(400, "the request target must be a path")
        path, _, query = url.partition("?")
        return path, query

    def _discard_body(self) -> None:
        self._body = b""
        if self._reservation is not None:
            self._reservation.release()
            self._reservation = None

    def _refusal_error(self, status: int, message: str) -> HttpRequestRefusal:
        """Return the exception that stops the parser with a refusal."""
        self._refusal = HttpRequestRefusal(status, message)
        return self._refusal

    def _refuse(self, refusal: HttpRequestRefusal) -> None:
        self.ended = True
        self._push(refusal)

    def _push(self, item: ParsedHttpRequest | HttpRequestRefusal) -> None:
        if self.ready is None:
            self.ready = deque()
        self.ready.append(item)

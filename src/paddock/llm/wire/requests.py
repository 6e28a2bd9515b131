"""Finds the requests in the bytes that a client sends, wherever they are cut.

The client may be hostile: what it can make us keep is bounded, and what two programs could read differently is refused.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser

from paddock.llm.wire.base import Headers, HttpRequest
from paddock.llm.wire.heads import MAX_HEADERS, size_of
from paddock.llm.wire.rooms import UNCOUNTED, Held, Room

MAX_AHEAD = 100
"""How many requests may come at once, before the first of them is answered. Small ones take far more room here than on
the wire."""
_NOTED = frozenset((b"host", b"content-length", b"transfer-encoding", b"expect"))


@dataclass(slots=True)
class Received:
    """A whole request, and what its sender said about the connection."""

    request: HttpRequest
    keep: bool
    """Whether another request may follow."""
    old: bool
    """Whether the client speaks HTTP/1.0."""
    held: Held | None
    """The room that its body takes, to be given back when it has been answered."""


class Refusal(Exception):
    """What a client is told instead of an answer, and the last thing it is told."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class RequestReader:
    """Reads the requests of one connection."""

    __slots__ = (
        "_body", "_fed", "_framing", "_headers", "_held", "_keep", "_max_body", "_max_header", "_method", "_noted",
        "_old", "_parser", "_progress", "_quiet", "_refusal", "_room", "_tag", "_url", "begun", "head_done", "last",
        "ready", "wants_leave",
    )  # fmt: skip

    def __init__(self, max_header: int, max_body: int, tag: str | None, room: Room) -> None:
        self.ready: deque[Received | Refusal] | None = None
        """What has come and not been taken, in order."""
        self.begun = False
        """Whether some of a request is here, but not all."""
        self.head_done = False
        """Whether the request that has begun lacks no more than its body."""
        self.wants_leave = False
        """Whether its sender waits to be told to go on."""
        self.last = False
        """Whether nothing that follows is for us to read."""
        self._max_header = max_header
        self._max_body = max_body
        self._tag = tag
        self._room = room
        self._held: Held | None = None
        self._parser: HttpRequestParser | None = HttpRequestParser(self)
        self._refusal: Refusal | None = None
        self._progress = False
        self._quiet = 0
        """How many bytes came since the last of a body, or since the last whole head."""
        self._fed = 0
        """How long the head may be at most, going by what came since it began."""
        self._framing = False
        """Whether what is parsed is ours, see `_read_body_after_offer`."""
        self._keep = True
        self._old = False
        self._method = ""
        self._url = b""
        self._headers: Headers = []
        self._noted: dict[bytes, bytes] = {}
        self._body: bytes | bytearray = b""

    @property
    def waits(self) -> bool:
        """Whether anything has come of a request that is not all here."""
        return self.begun or self._quiet > 0

    def take(self) -> Received | Refusal:
        """The first of what is ready."""
        assert self.ready
        first = self.ready.popleft()
        if not self.ready:
            self.ready = None
        return first

    def feed(self, data: bytes) -> None:
        """Read some bytes; what they complete is then `ready`."""
        if self.last or self._parser is None:
            return
        self._progress = False
        self._fed += len(data)
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade as offer:
            if self.begun:
                self._read_body_after_offer(data[offer.args[0] :])
                return
        except HttpParserError as error:
            # A parser also complains of what follows a last request, which is nobody's business.
            if not self.last:
                self._refuse(self._refusal or Refusal(400, f"this is not HTTP as it should be: {error}"))
        if self.head_done or not self.begun:
            self._fed = 0
        if self._progress:
            self._quiet = 0
        else:
            # Whatever this was (part of a head, trailers, chunk extensions), it may not go on for ever.
            self._quiet += len(data)
            if self._quiet > self._max_header and not self.last:
                self._refuse(Refusal(431, f"the headers are longer than {self._max_header} bytes"))

    def close(self) -> None:
        """Let go of everything; nothing more will be read."""
        self.last = True
        for item in self.ready or ():
            if isinstance(item, Received) and item.held is not None:
                item.held.release()
        self.ready = None
        self._parser = None
        self._let_go()

    # What the parser calls.

    def on_message_begin(self) -> None:
        if self._framing:
            return
        self.begun = True
        self.head_done = self.wants_leave = False
        self._url = b""
        self._headers = []
        self._noted = {}
        self._let_go()

    def on_url(self, url: bytes) -> None:
        if not self._framing:
            self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        # After the head come trailers, which nobody needs.
        if self.head_done:
            return
        name = name.lower()
        value = value.rstrip()
        self._headers.append((name, value))
        if name in _NOTED:
            if name in self._noted:
                raise self._stop(400, f"the header {name.decode()} may be given once")
            self._noted[name] = value

    def on_headers_complete(self) -> None:
        self._progress = True
        if self._framing:
            self._framing = False
            return
        assert self._parser is not None
        self.head_done = True
        version = self._parser.get_http_version()
        self._old = version == "1.0"
        self._keep = self._parser.should_keep_alive()
        self._method = self._parser.get_method().decode("ascii")
        if not self._old and version != "1.1":
            raise self._stop(505, "only HTTP/1.1 and HTTP/1.0 are spoken here")
        # Most heads come in one short piece, and need not be measured.
        if self._fed > self._max_header and len(self._url) + size_of(self._headers) > self._max_header:
            raise self._stop(431, f"the headers are longer than {self._max_header} bytes")
        if len(self._headers) > MAX_HEADERS:
            raise self._stop(431, f"there are more than {MAX_HEADERS} headers")
        noted = self._noted
        if not self._old and b"host" not in noted:
            raise self._stop(400, "the header host is missing")
        coding = noted.get(b"transfer-encoding")
        if coding is not None and (self._old or coding.lower() != b"chunked"):
            raise self._stop(400, "a body comes with its length or in chunks, and in no other coding")
        # The parser has checked that it is a number.
        if int(noted.get(b"content-length", b"0")) > self._max_body:
            raise self._stop(413, f"the request is longer than {self._max_body} bytes")
        expected = noted.get(b"expect")
        if expected is not None and not self._old:
            if expected.lower() != b"100-continue":
                raise self._stop(417, "nothing but 100-continue can be expected")
            self.wants_leave = True

    def on_body(self, data: bytes) -> None:
        self._progress = True
        self.wants_leave = False
        if len(self._body) + len(data) > self._max_body:
            raise self._stop(413, f"the request is longer than {self._max_body} bytes")
        if not self._body:
            self._body = data
            if len(data) <= UNCOUNTED:
                return
            self._body = b""
        if self._held is None:
            self._held = Held(self._room)
            self._held.grow(len(self._body))
        if not self._held.grow(len(data)):
            self._let_go()
            raise self._stop(503, "too many large requests are under way; try again later")
        if isinstance(self._body, bytes):
            # However small the pieces are, together they take no more room than what is in them.
            self._body = bytearray(self._body)
        self._body += data

    def on_message_complete(self) -> None:
        assert self._parser is not None
        self._progress = True
        if self._parser.should_upgrade():
            self._keep = False
            if b"transfer-encoding" in self._noted or int(self._noted.get(b"content-length", b"0")) > 0:
                return
        self.begun = self.wants_leave = False
        if self.ready is not None and len(self.ready) >= MAX_AHEAD:
            raise self._stop(429, f"no more than {MAX_AHEAD} requests may be sent before the first is answered")
        path, query = self._target()
        request = HttpRequest(self._method, path, query, self._headers, bytes(self._body), self._tag)
        self._body = b""
        self._push(Received(request, self._keep, self._old, self._held))
        self._held = None
        self.last = not self._keep

    # The rest is ours.

    def _read_body_after_offer(self, rest: bytes) -> None:
        """Some clients offer another protocol along with an ordinary request. The parser takes what follows for that
        other protocol, so another parser reads the body, told only how long it is."""
        length = self._noted.get(b"content-length")
        framing = b"transfer-encoding: chunked" if length is None else b"content-length: " + length
        self._parser = HttpRequestParser(self)
        self._framing = True
        self._parser.feed_data(b"POST / HTTP/1.1\r\n%b\r\n\r\n" % framing)
        self.feed(rest)

    def _target(self) -> tuple[str, str]:
        url = self._url.decode("ascii")
        if url.lower().startswith(("http://", "https://")):
            # Clients that take us for a forward proxy send the whole address.
            _, _, rest = url.partition("://")
            cut = min((at for at in (rest.find("/"), rest.find("?")) if at >= 0), default=len(rest))
            url = rest[cut:] if rest[cut : cut + 1] == "/" else "/" + rest[cut:]
        if not url.startswith("/") or "#" in url:
            raise self._stop(400, "the target of a request is a path")
        path, _, query = url.partition("?")
        return path, query

    def _let_go(self) -> None:
        self._body = b""
        if self._held is not None:
            self._held.release()
            self._held = None

    def _stop(self, status: int, message: str) -> Refusal:
        """What makes the parser stop."""
        self._refusal = Refusal(status, message)
        return self._refusal

    def _refuse(self, refusal: Refusal) -> None:
        self.last = True
        self._push(refusal)

    def _push(self, item: Received | Refusal) -> None:
        if self.ready is None:
            self.ready = deque()
        self.ready.append(item)

"""HTTP requests and replies of the edge, independent of the server that carries them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field

from paddock.errors import (
    Conflict,
    Forbidden,
    InvalidInput,
    McpTimeout,
    NotFound,
    PaddockError,
    QuotaExceeded,
    SandboxTimeout,
    TooLarge,
    Unauthorized,
    Unavailable,
)
from paddock.mcp.protocol.endpoint import CallContext
from paddock.mcp.protocol.messages import (
    HEADER_MISMATCH,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    MISSING_CLIENT_CAPABILITY,
    PARSE_ERROR,
    UNSUPPORTED_VERSION,
    JsonRpcMessage,
    MessageId,
    encode_message,
    make_error,
)

JSON_TYPE = "application/json"
EVENT_STREAM_TYPE = "text/event-stream"
EVENT_STREAM_HEADERS: Mapping[str, str] = {
    "content-type": EVENT_STREAM_TYPE,
    "cache-control": "no-cache, no-transform",
    "x-accel-buffering": "no",
}
KEEP_ALIVE_COMMENT = b":\r\n\r\n"

_ERROR_STATUSES: Mapping[type[PaddockError], int] = {
    InvalidInput: 400,
    Unauthorized: 401,
    Forbidden: 403,
    NotFound: 404,
    Conflict: 409,
    TooLarge: 413,
    QuotaExceeded: 429,
    SandboxTimeout: 504,
    McpTimeout: 504,
    Unavailable: 502,
    PaddockError: 500,
}
_CODE_STATUSES: Mapping[object, int] = {
    PARSE_ERROR: 400,
    INVALID_REQUEST: 400,
    INVALID_PARAMS: 400,
    HEADER_MISMATCH: 400,
    MISSING_CLIENT_CAPABILITY: 400,
    UNSUPPORTED_VERSION: 400,
    METHOD_NOT_FOUND: 404,
}


@dataclass(frozen=True, slots=True)
class McpHttpRequest:
    """A request to the path of one server, of all servers, or of a set."""

    method: str
    headers: Mapping[str, str]
    """Names in lower case; values of repeated headers are joined by commas."""
    body: bytes
    path: str
    """`NAME`, `sets/NAME`, or empty for all servers."""
    context: CallContext
    query: str = ""
    mount: str = ""
    """Path of the edge on its server, without a slash at its end."""

    def accepts_events(self) -> bool:
        accept = self.headers.get("accept")
        return accept is None or EVENT_STREAM_TYPE in accept or "*/*" in accept or "text/*" in accept


class ReplyStream(ABC):
    """A streamed body. The server that sends it must call `close`, also if the client disconnects before it starts."""

    @abstractmethod
    async def next_chunk(self) -> bytes | None:
        """Return the next bytes, or None at the end."""

    @abstractmethod
    async def close(self) -> None:
        """Release the stream: of an unfinished call, the exchange is cancelled or waits for the client to resume."""


@dataclass(frozen=True, slots=True)
class McpHttpReply:
    """A reply with a whole body or with a stream."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    stream: ReplyStream | None = None


class Refusal(Exception):
    """A request that is answered with an HTTP status and a JSON-RPC error."""

    def __init__(
        self, status: int, code: int, text: str, *, message_id: MessageId | None = None, data: object = None
    ) -> None:
        super().__init__(text)
        self.status = status
        self.message = make_error(message_id, code, text, data)
        self.headers: dict[str, str] = {}

    def reply(self) -> McpHttpReply:
        return json_reply(self.message, self.status, self.headers)


def json_reply(
    message: JsonRpcMessage, status: int | None = None, headers: Mapping[str, str] | None = None
) -> McpHttpReply:
    """Return a reply with one message; the status follows from its error code if it is not given."""
    if status is None:
        status = status_of_message(message)
    return McpHttpReply(status, {"content-type": JSON_TYPE, **(headers or {})}, encode_message(message))


def status_of_message(message: JsonRpcMessage) -> int:
    """Return the HTTP status of a response, as revision 2026-07-28 wants it."""
    try:
        error = message.error_object()
        return _CODE_STATUSES.get(error.get("code"), 200)
    except (InvalidInput, TypeError):
        return 200


def status_for_failure(error: PaddockError) -> int:
    return next(_ERROR_STATUSES[kind] for kind in type(error).__mro__ if kind in _ERROR_STATUSES)


def failure_message(error: PaddockError, message_id: MessageId | None) -> JsonRpcMessage:
    """Return the JSON-RPC error of a failure, with Paddock's code in its data."""
    is_request_wrong = isinstance(error, (InvalidInput, NotFound, Forbidden, TooLarge))
    code = INVALID_PARAMS if is_request_wrong else INTERNAL_ERROR
    return make_error(message_id, code, error.message, {"code": error.code})


def failure_reply(error: PaddockError, message_id: MessageId | None = None) -> McpHttpReply:
    status = status_for_failure(error)
    headers = {"www-authenticate": "Bearer"} if status == 401 else {"retry-after": "5"} if status == 429 else {}
    return json_reply(failure_message(error, message_id), status, headers)


def event_bytes(message: JsonRpcMessage, event_id: str | None = None) -> bytes:
    """Return a message as a server-sent event."""
    head = b"" if event_id is None else b"id: %s\r\n" % event_id.encode()
    return b"%sevent: message\r\ndata: %s\r\n\r\n" % (head, encode_line(message))


def encode_line(message: JsonRpcMessage) -> bytes:
    """Encode a message in one line: values that stayed bytes can have line breaks between their tokens."""
    data = encode_message(message)
    if b"\n" in data or b"\r" in data:
        data = data.replace(b"\r", b" ").replace(b"\n", b" ")
    return data

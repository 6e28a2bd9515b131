"""Filter the headers that pass through the gateway, in either direction."""

from __future__ import annotations

import re

from paddock.llm.wire.base import Headers, HttpRequest

_HOP_BY_HOP = frozenset(
    (
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
        b"content-length",
    )
)
_DROPPED_FROM_CLIENT = _HOP_BY_HOP | {
    b"host",
    b"expect",
    b"accept-encoding",  # Relayed bodies must be readable, for usage and archive.
    b"authorization",
    b"x-api-key",
    b"x-goog-api-key",
    b"open-sandbox-api-key",
    b"cookie",
    b"origin",
    b"referer",
    b"forwarded",
    b"x-forwarded-for",
    b"x-forwarded-host",
    b"x-forwarded-proto",
    b"x-real-ip",
    b"x-http-method-override",
    b"x-goog-user-project",
    b"x-paddock-client",
    b"x-paddock-console",  # The console's proof against forged requests.
}
_DROPPED_FROM_PROVIDER = _HOP_BY_HOP | {
    b"set-cookie",
    b"alt-svc",
    b"strict-transport-security",
    b"date",
    b"server",
    b"via",
    b"openai-organization",
    b"openai-project",
    b"anthropic-organization-id",
    b"x-paddock-exchange",  # Set by a Paddock server behind this one, for its own archive.
}
_SESSION_HEADERS = (b"x-claude-code-session-id", b"x-session-id", b"session_id", b"session-id", b"x-conversation-id")
_SESSION_HEADER_SET = frozenset(_SESSION_HEADERS)
_MAX_VALUE_CHARACTERS = 200
_TRACE_PARENT = re.compile(rb"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


def headers_for_provider(headers: Headers) -> Headers:
    """Return the client headers to forward: all but keys and connection headers."""
    return _with_one_user_agent([pair for pair in headers if pair[0] not in _DROPPED_FROM_CLIENT])


def _with_one_user_agent(headers: Headers) -> Headers:
    """Join repeated User-Agent headers, which strict servers refuse, into one."""
    agents = [value for name, value in headers if name == b"user-agent"]
    if len(agents) < 2:
        return headers
    other_headers = [pair for pair in headers if pair[0] != b"user-agent"]
    return [*other_headers, (b"user-agent", b" ".join(dict.fromkeys(agents)))]


def headers_for_client(headers: Headers) -> Headers:
    """Return the provider headers to forward: all but connection headers and headers that identify the key's owner."""
    return [pair for pair in headers if pair[0] not in _DROPPED_FROM_PROVIDER]


def header_value(headers: Headers, name: bytes) -> bytes:
    for known, value in headers:
        if known == name:
            return value
    return b""


def read_client_name(request: HttpRequest) -> str:
    """Return the client's own name for itself; browsers cannot change their user agent."""
    name = request.header(b"x-paddock-client") or request.header(b"user-agent") or b""
    return name[:_MAX_VALUE_CHARACTERS].decode("latin-1")


def read_trace_parent(request: HttpRequest) -> str | None:
    """Return the W3C trace context that a client sends, if it is well formed."""
    value = request.header(b"traceparent")
    return value.decode() if value is not None and _TRACE_PARENT.fullmatch(value) else None


def read_conversation_id(request: HttpRequest) -> str | None:
    """Return the client's own id of the conversation, if it sends one."""
    first = request.first_values
    if _SESSION_HEADER_SET.isdisjoint(first):
        return None
    for name in _SESSION_HEADERS:
        if value := first.get(name):
            return value[:_MAX_VALUE_CHARACTERS].decode("latin-1")
    return None


def parse_retry_after(headers: Headers) -> float | None:
    """Return the seconds of a `retry-after` header, if it is given as a number."""
    for name, factor in ((b"retry-after-ms", 0.001), (b"retry-after", 1.0)):
        try:
            seconds = float(header_value(headers, name)) * factor
        except ValueError:
            continue
        if 0 <= seconds < 86400:
            return seconds
    return None

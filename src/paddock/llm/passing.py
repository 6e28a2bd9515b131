"""Which headers pass through the gateway, in either direction."""

from __future__ import annotations

import re

from paddock.llm.wire.base import Headers, HttpRequest

_HOP = frozenset(
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
_FROM_CLIENT = _HOP | {
    b"host",
    b"expect",
    b"accept-encoding",  # What passes through must be read on the way, for usage and archive.
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
}
_FROM_PROVIDER = _HOP | {
    b"set-cookie",
    b"alt-svc",
    b"strict-transport-security",
    b"date",
    b"server",
    b"via",
    b"openai-organization",
    b"openai-project",
    b"anthropic-organization-id",
    b"x-paddock-exchange",  # Of a Paddock behind this one, which kept it for itself.
}
_SESSIONS = (b"x-claude-code-session-id", b"x-session-id", b"session_id", b"session-id", b"x-conversation-id")
_ANY_SESSION = frozenset(_SESSIONS)
_LONGEST = 200
_TRACE_PARENT = re.compile(rb"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


def from_client(headers: Headers) -> Headers:
    """What a provider is shown of a client's headers: all but its keys and what belongs to the connection."""
    return _with_one_user_agent([pair for pair in headers if pair[0] not in _FROM_CLIENT])


def _with_one_user_agent(headers: Headers) -> Headers:
    """Join repeated User-Agent headers, which strict servers refuse; their products stand one after the other."""
    agents = [value for name, value in headers if name == b"user-agent"]
    if len(agents) < 2:
        return headers
    others = [pair for pair in headers if pair[0] != b"user-agent"]
    return [*others, (b"user-agent", b" ".join(dict.fromkeys(agents)))]


def from_provider(headers: Headers) -> Headers:
    """What a client is shown of a provider's headers: all but the connection's, and what tells whose key it is."""
    return [pair for pair in headers if pair[0] not in _FROM_PROVIDER]


def value_of(headers: Headers, name: bytes) -> bytes:
    for known, value in headers:
        if known == name:
            return value
    return b""


def client_name(request: HttpRequest) -> str:
    return (request.header(b"user-agent") or b"")[:_LONGEST].decode("latin-1")


def trace_parent(request: HttpRequest) -> str | None:
    """Return the W3C trace context that a client sends, if it is well formed."""
    value = request.header(b"traceparent")
    return value.decode() if value is not None and _TRACE_PARENT.fullmatch(value) else None


def conversation_of(request: HttpRequest) -> str | None:
    """What a client itself calls the conversation, if it sends that."""
    first = request.first
    if _ANY_SESSION.isdisjoint(first):
        return None
    for name in _SESSIONS:
        if value := first.get(name):
            return value[:_LONGEST].decode("latin-1")
    return None


def retry_after(headers: Headers) -> float | None:
    """How many seconds a provider wants to be left alone, if it says so in seconds."""
    for name, factor in ((b"retry-after-ms", 0.001), (b"retry-after", 1.0)):
        try:
            seconds = float(value_of(headers, name)) * factor
        except ValueError:
            continue
        if 0 <= seconds < 86400:
            return seconds
    return None

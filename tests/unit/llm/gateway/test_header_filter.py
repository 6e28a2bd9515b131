"""Headers of model requests: which reach a provider, and which name the client."""

from __future__ import annotations

import pytest

from paddock.llm.gateway.header_filter import headers_for_provider, read_client_name
from paddock.llm.wire.base import Headers, HttpRequest


def request_with(headers: Headers) -> HttpRequest:
    return HttpRequest("POST", "/v1/chat/completions", "", headers, b"")


def test_headers_of_the_console_do_not_reach_a_provider() -> None:
    headers = [(b"x-paddock-console", b"proof"), (b"x-paddock-client", b"paddock-console"), (b"accept", b"*/*")]
    assert headers_for_provider(headers) == [(b"accept", b"*/*")]


@pytest.mark.parametrize(
    ("headers", "name"),
    [
        ([], ""),
        ([(b"user-agent", b"curl/8")], "curl/8"),
        ([(b"user-agent", b"Mozilla/5.0"), (b"x-paddock-client", b"paddock-console")], "paddock-console"),
    ],
)
def test_client_names_itself_or_else_has_the_name_of_its_user_agent(headers: Headers, name: str) -> None:
    assert read_client_name(request_with(headers)) == name

"""The login cookie is accepted only in requests of the console itself."""

from __future__ import annotations

import pytest

from paddock.api.http.authentication import (
    format_login_cookie,
    is_console_request,
    read_login_cookie,
    remove_login_cookie,
)
from paddock.api.sandboxes.proxy_headers import headers_from_sandbox, headers_to_sandbox

HOST = (b"host", b"127.0.0.1:8420")
OWN = (b"origin", b"http://127.0.0.1:8420")
OTHER = (b"origin", b"http://127.0.0.1:9000")
SIGN = (b"x-paddock-console", b"1")


def request_scope(*headers: tuple[bytes, bytes], method: str = "GET", type: str = "http") -> dict[str, object]:
    return {"type": type, "method": method, "headers": [HOST, *headers], "scheme": "http", "client": None}


def site(name: str) -> tuple[bytes, bytes]:
    return b"sec-fetch-site", name.encode()


@pytest.mark.parametrize(
    ("scope", "expected"),
    [
        (request_scope(), True),
        (request_scope(OWN, site("same-origin"), method="POST"), True),
        (request_scope(site("same-origin")), True),
        (request_scope(OTHER, method="POST"), False),
        (request_scope((b"origin", b"null"), method="POST"), False),
        (request_scope(site("same-site")), False),
        (request_scope(site("cross-site"), method="POST"), False),
        (request_scope(site("none")), False),
        (request_scope(OWN, type="websocket"), False),
        (request_scope(type="websocket"), False),
    ],
)
def test_console_requests_are_recognised_by_headers(scope: dict[str, object], expected: bool) -> None:
    assert is_console_request(scope) is expected


@pytest.mark.parametrize(
    ("cookies", "found"),
    [
        ([b"paddock_session=pds_1"], "pds_1"),
        ([b"a=b; paddock_session=pds_1 ; c=d"], "pds_1"),
        ([b"a=b", b"paddock_session=pds_1"], "pds_1"),
        ([b"paddock_session=pds_1; paddock_session=pds_2"], ""),
        ([b"xpaddock_session=pds_1"], ""),
        ([], ""),
    ],
)
def test_login_cookie_is_read_unless_ambiguous(cookies: list[bytes], found: str) -> None:
    assert read_login_cookie(request_scope(*((b"cookie", each) for each in cookies))) == found


def test_login_cookie_is_not_forwarded_to_sandbox() -> None:
    scope = request_scope((b"cookie", b"a=b; paddock_session=pds_1;c=d"), (b"cookie", b"paddock_session=pds_1"), SIGN)
    sent = headers_to_sandbox(scope, 8000, b"/p")
    assert sent.getall("cookie") == ["a=b; c=d"]
    assert "pds_1" not in str(sent) and "x-paddock-console" not in sent
    assert remove_login_cookie(" paddock_session = x ") == ""


def test_sandbox_cannot_set_login_cookie() -> None:
    answered = [(b"Set-Cookie", b"paddock_session=pds_evil; Path=/"), (b"Set-Cookie", b"mine=1")]
    assert [value for name, value in headers_from_sandbox(answered, b"/p") if name == b"set-cookie"] == [
        b"mine=1; Path=/p/"
    ]


def test_login_cookie_attributes_depend_on_tls() -> None:
    assert (
        format_login_cookie("x", secure=False, seconds=9)
        == "paddock_session=x; Path=/; HttpOnly; SameSite=Strict; Max-Age=9"
    )
    assert format_login_cookie("x", secure=True, seconds=9).endswith("; Secure")

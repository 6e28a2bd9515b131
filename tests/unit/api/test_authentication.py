"""The login cookie only counts in requests of the console itself."""

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


def asked(*headers: tuple[bytes, bytes], method: str = "GET", type: str = "http") -> dict[str, object]:
    return {"type": type, "method": method, "headers": [HOST, *headers], "scheme": "http", "client": None}


def site(name: str) -> tuple[bytes, bytes]:
    return b"sec-fetch-site", name.encode()


@pytest.mark.parametrize(
    ("scope", "counts"),
    [
        (asked(), True),
        (asked(OWN, site("same-origin"), method="POST"), True),
        (asked(site("same-origin")), True),
        (asked(OTHER, method="POST"), False),
        (asked((b"origin", b"null"), method="POST"), False),
        (asked(site("same-site")), False),
        (asked(site("cross-site"), method="POST"), False),
        (asked(site("none")), False),
        (asked(OWN, type="websocket"), False),
        (asked(type="websocket"), False),
    ],
)
def test_console_request_headers(scope: dict[str, object], counts: bool) -> None:
    assert is_console_request(scope) is counts


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
def test_session_cookie_selection(cookies: list[bytes], found: str) -> None:
    assert read_login_cookie(asked(*((b"cookie", each) for each in cookies))) == found


def test_a_sandbox_gets_its_own_cookies_only() -> None:
    scope = asked((b"cookie", b"a=b; paddock_session=pds_1;c=d"), (b"cookie", b"paddock_session=pds_1"), SIGN)
    sent = headers_to_sandbox(scope, 8000, b"/p")
    assert sent.getall("cookie") == ["a=b; c=d"]
    assert "pds_1" not in str(sent) and "x-paddock-console" not in sent
    assert remove_login_cookie(" paddock_session = x ") == ""


def test_a_sandbox_sets_its_own_cookies_only() -> None:
    answered = [(b"Set-Cookie", b"paddock_session=pds_evil; Path=/"), (b"Set-Cookie", b"mine=1")]
    assert [value for name, value in headers_from_sandbox(answered, b"/p") if name == b"set-cookie"] == [
        b"mine=1; Path=/p/"
    ]


def test_over_tls_the_cookie_stays_there() -> None:
    assert (
        format_login_cookie("x", secure=False, seconds=9)
        == "paddock_session=x; Path=/; HttpOnly; SameSite=Strict; Max-Age=9"
    )
    assert format_login_cookie("x", secure=True, seconds=9).endswith("; Secure")

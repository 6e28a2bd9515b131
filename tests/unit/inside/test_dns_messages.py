"""Responses of a sandbox's DNS server."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.inside.network.dns_messages import (
    BAD_VERSION,
    FORMAT_ERROR,
    NO_ERROR,
    NO_SUCH_NAME,
    NOT_IMPLEMENTED,
    REFUSED,
    TYPE_A,
    TYPE_ANY,
    TYPE_OPT,
    TYPE_PTR,
    answer_dns_query,
)
from paddock.inside.network.name_addresses import NameAddresses

TYPE_AAAA = 28
TYPE_HTTPS = 65
CLASS_IN = 1
CLASS_CHAOS = 3
RECURSION_DESIRED = 0x0100
TRUNCATED = 0x0200
RESPONSE = 0x8000
FIRST_MADE_UP = bytes([198, 18, 0, 1])


def encode_name(name: str | bytes) -> bytes:
    raw = name.encode() if isinstance(name, str) else name
    return b"".join(bytes([len(label)]) + label for label in raw.split(b".") if raw) + b"\0"


def query(
    name: str | bytes,
    record_type: int = TYPE_A,
    record_class: int = CLASS_IN,
    *,
    flags: int = RECURSION_DESIRED,
    questions: int = 1,
    options: bytes = b"",
) -> bytes:
    header = struct.pack(">6H", 0x1234, flags, questions, 0, 0, bool(options))
    return header + encode_name(name) + struct.pack(">HH", record_type, record_class) + options


def edns(version: int = 0) -> bytes:
    return struct.pack(">xHHIH", TYPE_OPT, 4096, version << 16, 0)


def answer(message: bytes, names: NameAddresses | None = None) -> bytes:
    response = answer_dns_query(message, names or NameAddresses())
    assert response is not None
    assert response[:2] == message[:2]
    assert response[2] & 0x80
    assert len(response) <= 512
    return response


def code(response: bytes) -> int:
    return response[3] & 0xF


def answers(response: bytes) -> int:
    return int.from_bytes(response[6:8], "big")


@pytest.mark.parametrize("record_type", [TYPE_A, TYPE_ANY])
def test_host_name_gets_made_up_address(record_type: int) -> None:
    names = NameAddresses()
    response = answer(query("Example.COM", record_type), names)
    assert (code(response), answers(response)) == (NO_ERROR, 1)
    assert response[-4:] == FIRST_MADE_UP
    assert encode_name("Example.COM") in response, "the question is repeated as it was asked"
    assert names.name_of(int.from_bytes(FIRST_MADE_UP, "big")) == "example.com"


@pytest.mark.parametrize("record_type", [TYPE_AAAA, TYPE_HTTPS, 15, 16, 33])
def test_other_record_types_are_empty(record_type: int) -> None:
    response = answer(query("example.com", record_type))
    assert (code(response), answers(response)) == (NO_ERROR, 0)


@pytest.mark.parametrize("name", ["localhost", "a.b.LocalHost"])
def test_localhost_is_the_sandbox(name: str) -> None:
    assert answer(query(name))[-4:] == bytes([127, 0, 0, 1])
    assert answers(answer(query(name, TYPE_AAAA))) == 0


@pytest.mark.parametrize("name", ["1.2.3.4", "example.10", b"a b.com", b"\xff.com", b"a\0.com", b"a/b"])
def test_names_that_are_not_of_hosts_do_not_exist(name: str | bytes) -> None:
    response = answer(query(name))
    assert (code(response), answers(response)) == (NO_SUCH_NAME, 0)


def test_made_up_address_has_its_name() -> None:
    names = NameAddresses()
    assert code(answer(query("1.0.18.198.in-addr.arpa", TYPE_PTR), names)) == NO_SUCH_NAME
    answer(query("example.com"), names)
    assert answer(query("1.0.18.198.in-addr.arpa", TYPE_PTR), names).endswith(encode_name("example.com"))
    assert answer(query("1.0.0.127.in-addr.arpa", TYPE_PTR), names).endswith(encode_name("localhost"))
    for other in ("8.8.8.8.in-addr.arpa", "0.18.198.in-addr.arpa", "x.0.18.198.in-addr.arpa", "1.ip6.arpa"):
        assert code(answer(query(other, TYPE_PTR), names)) == NO_SUCH_NAME


def test_root_has_no_address() -> None:
    response = answer(query(""))
    assert (code(response), answers(response)) == (NO_ERROR, 0)


def test_longest_name_is_answered() -> None:
    name = ".".join(["a" * 63] * 3 + ["a" * 61])
    names = NameAddresses()
    assert answer(query(name), names)[-4:] == FIRST_MADE_UP
    assert answer(query("1.0.18.198.in-addr.arpa", TYPE_PTR), names).endswith(encode_name(name))
    assert code(answer(query(name + "a"))) == FORMAT_ERROR


def test_edns_is_answered_with_edns() -> None:
    response = answer(query("example.com", options=edns()))
    assert (code(response), answers(response), response[11]) == (NO_ERROR, 1, 1)
    assert response[-10:-8] == struct.pack(">H", TYPE_OPT)
    assert answer(query("example.com"))[11] == 0


def test_unknown_edns_version_is_refused() -> None:
    response = answer(query("example.com", options=edns(version=1)))
    extended = response[-6]
    assert extended << 4 | code(response) == BAD_VERSION
    assert answers(response) == 0


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (query("example.com", flags=0x2800), NOT_IMPLEMENTED),
        (query("example.com", record_class=CLASS_CHAOS), REFUSED),
        (query("example.com", questions=0), FORMAT_ERROR),
        (query("example.com", questions=2), FORMAT_ERROR),
        (query("example.com")[:-1], FORMAT_ERROR),
        (query("example.com")[:15], FORMAT_ERROR),
        (query("example.com")[:12], FORMAT_ERROR),
        (query("example.com")[:12] + b"\xc0\x0c\0\1\0\1", FORMAT_ERROR),
        (query("example.com")[:12] + b"\1a\xc0\x0c\0\1\0\1", FORMAT_ERROR),
        (query("example.com", options=edns())[:-3], FORMAT_ERROR),
        (query("example.com", flags=RECURSION_DESIRED | TRUNCATED), NO_ERROR),
    ],
    ids="opcode class none two cut-type cut-name empty pointer pointer-in-name cut-edns truncated".split(),
)
def test_unusual_queries_get_the_right_code(message: bytes, expected: int) -> None:
    assert code(answer(message)) == expected


@pytest.mark.parametrize("message", [b"", b"\0" * 11, query("example.com", flags=RESPONSE)])
def test_messages_that_are_no_queries_are_dropped(message: bytes) -> None:
    assert answer_dns_query(message, NameAddresses()) is None


@given(st.binary(max_size=600))
def test_random_bytes_never_raise(message: bytes) -> None:
    response = answer_dns_query(message, NameAddresses())
    assert response is None or len(response) <= 512


@given(
    st.lists(st.binary(min_size=1, max_size=70), max_size=6),
    st.integers(0, 300),
    st.integers(0, 0x7FFF),
    st.integers(0, 3),
    st.integers(0, 60),
    st.binary(max_size=30),
)
def test_almost_valid_queries_never_raise(
    labels: list[bytes], record_type: int, flags: int, questions: int, cut: int, options: bytes
) -> None:
    name = b"".join(bytes([len(label)]) + label for label in labels) + b"\0"
    header = struct.pack(">6H", 1, flags, questions, 0, 0, bool(options))
    message = header + name + struct.pack(">HH", record_type, CLASS_IN) + options
    for each in (message, message[: len(message) - cut]):
        response = answer_dns_query(each, NameAddresses())
        assert response is None or (len(response) <= 600 and response[2] & 0x80)

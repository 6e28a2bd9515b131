"""The server name of TLS connections, read from their first bytes."""

from __future__ import annotations

import ssl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.network.tls_server_name import read_client_hello


def client_hello(name: str | None) -> bytes:
    """Return what a real TLS client sends first."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    outgoing = ssl.MemoryBIO()
    connection = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=name)
    with pytest.raises(ssl.SSLWantReadError):
        connection.do_handshake()
    return outgoing.read()


def test_server_name_of_a_real_client_is_read() -> None:
    hello = read_client_hello(client_hello("Shop.Example"))
    assert hello.complete and hello.is_tls and hello.server_name == "shop.example"


def test_missing_server_name_is_none() -> None:
    hello = read_client_hello(client_hello(None))
    assert hello.complete and hello.is_tls and hello.server_name is None


def test_hello_split_at_every_byte_is_incomplete_until_its_end() -> None:
    data = client_hello("shop.example")
    for end in range(len(data)):
        assert not read_client_hello(data[:end]).complete
    assert read_client_hello(data).server_name == "shop.example"


def test_hello_in_many_records_is_joined() -> None:
    body = client_hello("shop.example")[5:]
    records = b"".join(b"\x16\x03\x01" + (1).to_bytes(2, "big") + body[i : i + 1] for i in range(len(body)))
    assert read_client_hello(records).server_name == "shop.example"


@pytest.mark.parametrize(
    "prefix",
    [
        b"\x16\x03\x01\x00\x00",  # An empty record.
        b"\x15\x03\x01\x00\x02\x01\x00",  # A warning.
        b"\x14\x03\x01\x00\x01\x01",  # A change of ciphers.
        b"\x16\x03\x01\x00\x04\x02\x00\x00\x00",  # Another handshake message.
        b"\x16\x03\x01\xff\xff",  # A record that is too long.
        b"\x16\x03\x01\x00\x04\x01\xff\xff\xff",  # A hello that is too long.
        b"\x16\x03\x01\x00\x06\x01\x00\x00\x02\x03\x03",  # A hello without its fields.
    ],
)
def test_tls_that_servers_may_tolerate_is_malformed(prefix: bytes) -> None:
    hello = read_client_hello(prefix + client_hello("shop.example"))
    assert hello.complete and hello.is_tls and hello.server_name == ""


@pytest.mark.parametrize(
    "data", [b"GET / HTTP/1.1\r\n", b"SSH-2.0-x", b"\x16\x02\x00", b"\x00\x00\x00\x08\x04\xd2\x16\x2f"]
)
def test_other_protocols_are_complete_at_once(data: bytes) -> None:
    hello = read_client_hello(data)
    assert hello.complete and not hello.is_tls


@given(st.binary(max_size=300), st.integers(0, 300), st.binary(max_size=20))
def test_no_bytes_raise(data: bytes, position: int, inserted: bytes) -> None:
    read_client_hello(data)
    read_client_hello(b"\x16\x03\x01" + data)
    hello = bytearray(_HELLO)
    hello[position : position + len(inserted)] = inserted
    read_client_hello(bytes(hello))


_HELLO = client_hello("shop.example")

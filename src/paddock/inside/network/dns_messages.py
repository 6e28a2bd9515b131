"""DNS messages: answers every query from the table of synthetic addresses."""

from __future__ import annotations

import struct

from .name_addresses import NameAddresses

TTL_SECONDS = 60
EDNS_PAYLOAD_BYTES = 1232
MAX_NAME_BYTES = 255
MAX_LABEL_BYTES = 63
LABEL_BYTES = b"abcdefghijklmnopqrstuvwxyz0123456789-_"
LOCALHOST = 127 << 24 | 1

TYPE_A = 1
TYPE_PTR = 12
TYPE_OPT = 41
TYPE_ANY = 255
CLASS_IN = 1
CLASS_ANY = 255
FLAG_RESPONSE = 0x8000
FLAG_RECURSION_AVAILABLE = 0x0080
OPCODE_MASK = 0x7800
COPIED_FLAGS = 0x0110
"""Recursion desired and checking disabled."""
POINTER_TO_QUESTION = 0xC00C
NO_ERROR = 0
FORMAT_ERROR = 1
NO_SUCH_NAME = 3
NOT_IMPLEMENTED = 4
REFUSED = 5
BAD_VERSION = 16

_HEADER = struct.Struct(">6H")
_OPT_RECORD = struct.Struct(">xHHIH")


class InvalidDnsMessage(Exception):
    """A query breaks the format."""


class DnsQuestion:
    """The question of a query, with lower-case labels and the bytes to repeat in the response."""

    __slots__ = ("end", "labels", "raw", "record_class", "record_type")

    def __init__(self, message: bytes) -> None:
        self.labels: list[bytes] = []
        position = _HEADER.size
        while True:
            length = _byte_at(message, position)
            if length > MAX_LABEL_BYTES:  # Also compression, which has nothing to refer to here.
                raise InvalidDnsMessage("a label is too long")
            if length == 0:
                break
            self.labels.append(message[position + 1 : position + 1 + length].lower())
            position += 1 + length
            if position + 1 - _HEADER.size > MAX_NAME_BYTES:
                raise InvalidDnsMessage("the name is too long")
        self.end = position + 5
        self.raw = message[_HEADER.size : self.end]
        if len(message) < self.end:
            raise InvalidDnsMessage("the question is cut off")
        self.record_type, self.record_class = struct.unpack_from(">HH", message, position + 1)

    @property
    def host_name(self) -> str | None:
        """The name, unless it is none of a host: empty, with unusual characters, or like an address."""
        if (
            not self.labels
            or self.labels[-1].isdigit()
            or any(each.translate(None, LABEL_BYTES) for each in self.labels)
        ):
            return None
        return b".".join(self.labels).decode()


def answer_dns_query(message: bytes, names: NameAddresses) -> bytes | None:
    """Return the response to a query; None if the message deserves none."""
    if len(message) < _HEADER.size:
        return None
    identifier, flags, questions, _, _, additional = _HEADER.unpack_from(message)
    if flags & FLAG_RESPONSE:
        return None
    question, answer, options, code = b"", b"", b"", NO_ERROR
    if flags & OPCODE_MASK:
        code = NOT_IMPLEMENTED
    elif questions != 1:
        code = FORMAT_ERROR
    else:
        try:
            asked = DnsQuestion(message)
            edns_version = _edns_version(message, asked.end) if additional else None
        except InvalidDnsMessage:
            code = FORMAT_ERROR
        else:
            question = asked.raw
            if edns_version:
                code = BAD_VERSION
            else:
                code, answer = _resolve(asked, names)
            if edns_version is not None:
                options = _OPT_RECORD.pack(TYPE_OPT, EDNS_PAYLOAD_BYTES, code >> 4 << 24, 0)
    flags = FLAG_RESPONSE | flags & (OPCODE_MASK | COPIED_FLAGS) | FLAG_RECURSION_AVAILABLE | code & 0xF
    return _HEADER.pack(identifier, flags, bool(question), bool(answer), 0, bool(options)) + question + answer + options


def _resolve(question: DnsQuestion, names: NameAddresses) -> tuple[int, bytes]:
    """Return the response code and the answer record, which may be empty."""
    if question.record_class not in (CLASS_IN, CLASS_ANY):
        return REFUSED, b""
    if not question.labels:
        return NO_ERROR, b""
    if question.record_type == TYPE_PTR:
        name = _name_of_reverse_labels(question.labels, names)
        return (NO_SUCH_NAME, b"") if name is None else (NO_ERROR, _record(TYPE_PTR, _encode_name(name)))
    name = question.host_name
    if name is None:
        return NO_SUCH_NAME, b""
    if question.record_type not in (TYPE_A, TYPE_ANY):
        return NO_ERROR, b""
    address = LOCALHOST if question.labels[-1] == b"localhost" else names.address_of(name)
    return NO_ERROR, _record(TYPE_A, address.to_bytes(4, "big"))


def _name_of_reverse_labels(labels: list[bytes], names: NameAddresses) -> str | None:
    """Return the name of an address like `7.0.18.198.in-addr.arpa`."""
    if len(labels) != 6 or labels[4:] != [b"in-addr", b"arpa"]:
        return None
    address = 0
    for label in reversed(labels[:4]):
        if not label.isdigit() or len(label) > 3 or int(label) > 255:
            return None
        address = address << 8 | int(label)
    return "localhost" if address == LOCALHOST else names.name_of(address)


def _record(record_type: int, data: bytes) -> bytes:
    return struct.pack(">HHHIH", POINTER_TO_QUESTION, record_type, CLASS_IN, TTL_SECONDS, len(data)) + data


def _encode_name(name: str) -> bytes:
    return b"".join(bytes([len(label)]) + label.encode() for label in name.split(".")) + b"\0"


def _edns_version(message: bytes, position: int) -> int | None:
    """Return the EDNS version that the client asks for; None without EDNS."""
    if len(message) < position + _OPT_RECORD.size:
        raise InvalidDnsMessage("the additional record is cut off")
    record_type, _, extended_flags, _ = _OPT_RECORD.unpack_from(message, position)
    if message[position] or record_type != TYPE_OPT:
        return None
    return int(extended_flags >> 16 & 0xFF)


def _byte_at(message: bytes, position: int) -> int:
    if position >= len(message):
        raise InvalidDnsMessage("the name is cut off")
    return message[position]

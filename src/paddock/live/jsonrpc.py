"""MCP's messages, as far as somebody in the middle must understand them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from paddock.errors import BoxTimeout, Conflict, InvalidInput, NotFound, PaddockError, QuotaExceeded, TooLarge
from paddock.sandbox.exchange import MOST_VALUES, crowded

VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")
"""Revisions of MCP that boxes speak. The last has no `initialize`: every request says its own revision."""
PROTOCOL_HEADER = "mcp-protocol-version"
LARGEST_REQUEST = 16 * 2**20
LONGEST_LINE = 500
LONGEST_TROUBLE = 2**16
PARSE_ERROR = -32700
INVALID_REQUEST = -32600
INVALID_PARAMETERS = -32602
REFUSED = -32000
"""Of the numbers that are left to servers."""
UNSUPPORTED_VERSION = -32022
_REVISION = "io.modelcontextprotocol/protocolVersion"
_PASSED = frozenset({200, 400, 404})
_STATUSES: Mapping[type[PaddockError], int] = {
    NotFound: 404,
    Conflict: 409,
    TooLarge: 413,
    QuotaExceeded: 429,
    BoxTimeout: 504,
    InvalidInput: 400,
}


@dataclass(frozen=True)
class Message:
    """What a client sends: a request, or with no `id` something that is not answered."""

    method: str
    id: str | int | None
    parameters: Mapping[str, Any]

    @property
    def alone(self) -> bool:
        """Whether it is a request of the kind that says its own revision."""
        meta = self.parameters.get("_meta")
        return isinstance(meta, dict) and _REVISION in meta

    @property
    def tool(self) -> str | None:
        """The name of the tool that is to be called, if one is."""
        name = self.parameters.get("name")
        return name if self.method == "tools/call" and isinstance(name, str) else None


@dataclass(frozen=True)
class Answer:
    """What goes back: JSON, or nothing for what is not answered."""

    status: int
    body: bytes = b""


class Refusal(Exception):
    """A message that is not passed on, and the answer that says why."""

    def __init__(self, status: int, code: int, message: str, id: str | int | None = None, data: Any = None) -> None:
        super().__init__(message)
        self.answer = failure(status, code, message, id, data)


def read_message(body: bytes) -> Message | None:
    """The one message of a body; None for a client's answer, which nobody has asked for. Raises `Refusal`."""
    if len(body) > LARGEST_REQUEST:
        raise Refusal(413, INVALID_REQUEST, f"the message is larger than {LARGEST_REQUEST >> 20} MiB")
    if crowded(body):
        raise Refusal(413, INVALID_REQUEST, f"the message has more than {MOST_VALUES} values and commas in it")
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        raise Refusal(400, PARSE_ERROR, "the body is not JSON") from None
    if isinstance(document, list):
        raise Refusal(400, INVALID_REQUEST, "send one message at a time; MCP has no batches any more")
    if not isinstance(document, dict) or document.get("jsonrpc") != "2.0":
        raise Refusal(400, INVALID_REQUEST, 'the body is no message of JSON-RPC; it has "jsonrpc": "2.0" in it')
    number, method, parameters = document.get("id"), document.get("method"), document.get("params", {})
    if "method" not in document and ("result" in document or "error" in document):
        return None
    if isinstance(number, bool) or not isinstance(number, (str, int, type(None))):
        raise Refusal(400, INVALID_REQUEST, "id: must be a string or a whole number")
    if not isinstance(method, str) or not method:
        raise Refusal(400, INVALID_REQUEST, "method: must be the name of a method", number)
    if not isinstance(parameters, dict):
        raise Refusal(400, INVALID_PARAMETERS, "params: must be an object", number)
    if "id" in document and number is None:
        raise Refusal(400, INVALID_REQUEST, "id: must not be null")
    return Message(method, number, parameters)


def check_version(said: str | None) -> None:
    """Raise `Refusal` for a header that names a revision of MCP which boxes do not speak."""
    if said is not None and said not in VERSIONS:
        data = {"supported": list(VERSIONS), "requested": said[:100]}
        message = f"MCP {said[:100]} is not spoken here; use one of {', '.join(VERSIONS)}"
        raise Refusal(400, UNSUPPORTED_VERSION, message, data=data)


def read_answer(body: bytes, asked: Message) -> dict[str, Any] | None:
    """What a box answers to a request, or None for nonsense."""
    if crowded(body):
        return None
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(document, dict) or document.get("jsonrpc") != "2.0" or document.get("id") != asked.id:
        return None
    kind = "result" if "result" in document else "error"
    return document if isinstance(document.get(kind), dict) else None


def trouble(body: bytes) -> str | None:
    """What a box's daemon says is wrong when its tools cannot even be asked, in one line."""
    try:
        message = json.loads(body[:LONGEST_TROUBLE])["message"]
    except (ValueError, RecursionError, LookupError, TypeError):
        return None
    line = message.strip().partition("\n")[0] if isinstance(message, str) else ""
    return f"the tools of the sandbox do not work: {line[:LONGEST_LINE]}" if line else None


def passed(status: int, body: bytes) -> Answer:
    """A box's answer as it is; of its statuses only those that mean something in MCP."""
    return Answer(status if status in _PASSED else 200, body)


def result(asked: Message, document: Mapping[str, Any]) -> Answer:
    whole = {"resultType": "complete", **document} if asked.alone else document
    return Answer(200, json.dumps({"jsonrpc": "2.0", "id": asked.id, "result": whole}).encode())


def failure(status: int, code: int, message: str, id: str | int | None = None, data: Any = None) -> Answer:
    error = {"code": code, "message": message} | ({} if data is None else {"data": data})
    return Answer(status, json.dumps({"jsonrpc": "2.0", "id": id, "error": error}).encode())


def refusal(error: PaddockError, id: str | int | None = None) -> Answer:
    """An error of ours in the words of MCP."""
    status = next((code for kind, code in _STATUSES.items() if isinstance(error, kind)), 502)
    return failure(status, REFUSED, error.message, id)

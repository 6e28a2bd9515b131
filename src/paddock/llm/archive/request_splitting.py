"""Split a request body at its messages, and join it again byte for byte.

The bytes are cut, never re-encoded, so everything between the messages is restored too: unusual spaces, unknown and
duplicate fields. A request that cannot be parsed is one piece.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import msgspec
from msgspec.structs import astuple

MAX_ELEMENTS = 10_000
"""More than any conversation has; larger lists are stored as one piece."""
_LITERAL, _PROMPT, _THREAD = 0, 1, 2
_CONVERSATIONS = ("messages", "input", "contents")
_PROMPTS = ("system", "systemInstruction", "system_instruction", "instructions", "tools")
_SPACE = b" \t\n\r"
_INSTRUCTION = re.compile(rb'\{\s*(?:"type"\s*:\s*"message"\s*,\s*)?"role"\s*:\s*"(?:system|developer)"')
"""The beginning of an instruction in a conversation, as all known clients write it. Unrecognised ones are stored as
part of the conversation, which costs space only if they change with every request."""
_ABSENT = msgspec.Raw()


class _Body(msgspec.Struct):
    messages: msgspec.Raw = _ABSENT
    input: msgspec.Raw = _ABSENT
    contents: msgspec.Raw = _ABSENT
    system: msgspec.Raw = _ABSENT
    systemInstruction: msgspec.Raw = _ABSENT  # noqa: N815 - the format's field name
    system_instruction: msgspec.Raw = _ABSENT
    instructions: msgspec.Raw = _ABSENT
    tools: msgspec.Raw = _ABSENT


_body = msgspec.json.Decoder(_Body)
_list = msgspec.json.Decoder(list[msgspec.Raw])
_skeleton = msgspec.msgpack.Decoder(list[tuple[int, int, list[bytes]]])
_to_msgpack = msgspec.msgpack.Encoder().encode
_NAMES = (*_CONVERSATIONS, *_PROMPTS)
_KEYS = {name: (f'"{name}":'.encode(), re.compile(rb'"%b"[ \t\r\n]*:[ \t\r\n]*' % name.encode())) for name in _NAMES}


@dataclass(slots=True)
class RequestBodyParts:
    """A request in parts. `skeleton` describes how to join them."""

    prompt: list[bytes] = field(default_factory=list)
    """Tools and instructions."""
    thread: list[bytes] = field(default_factory=list)
    """The messages of the conversation."""
    steps: list[tuple[int, int, list[bytes]]] = field(default_factory=list)
    """Kind, number of elements (-1 for all remaining), and bytes: of a literal, or the separators of elements."""
    json: bool = True
    """Whether the request is valid JSON."""

    @property
    def skeleton(self) -> bytes:
        return _to_msgpack(self.steps)


def split_request_body(body: bytes, operation: str = "generate") -> RequestBodyParts:
    """Split a request. Never fails."""
    try:
        fields = _body.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return RequestBodyParts(steps=[(_LITERAL, 0, [body])], json=_is_json(body))
    parts = RequestBodyParts()
    cursor = 0
    found = [] if operation == "embed" else _find_fields(body, fields)
    for start, end, name in found:
        if start < cursor:
            continue  # Nested in another field, which only a very unusual request has.
        elements = _find_elements(body, start, end)
        if name in _CONVERSATIONS:
            if elements is None:
                continue
            cursor = _split_conversation(parts, body, cursor, elements)
        elif elements is None or name == "tools":
            # Tools rarely change, and then together: one piece costs less than forty.
            _add_literal(parts, body[cursor:start])
            parts.prompt.append(body[start:end])
            parts.steps.append((_PROMPT, 1, []))
            cursor = end
        else:
            _add_literal(parts, body[cursor : elements[0][0]])
            _add_elements(parts, body, elements, _PROMPT)
            cursor = elements[-1][1]
    _add_literal(parts, body[cursor:])
    return parts


def join_request_body(skeleton: bytes, prompt: Sequence[bytes], thread: Sequence[bytes]) -> bytes:
    """Join the parts of a request."""
    instructions, messages = iter(prompt), iter(thread)
    result: list[bytes] = []
    for kind, count, between in _skeleton.decode(skeleton):
        if kind == _LITERAL:
            result += between
            continue
        elements = list(messages) if count < 0 else _take_elements(instructions if kind == _PROMPT else messages, count)
        if len(between) <= 1:
            result.append(b"".join(between).join(elements))
            continue
        for index, element in enumerate(elements):
            if index:
                result.append(between[index - 1])
            result.append(element)
    return b"".join(result)


def map_literal_bytes(parts: RequestBodyParts, change: Callable[[bytes], bytes]) -> None:
    """Apply a change to the bytes of a request that are neither messages nor instructions."""
    parts.steps = [
        (kind, count, [change(content[0])] if kind == _LITERAL else content) for kind, count, content in parts.steps
    ]


def literal_request_bytes(parts: RequestBodyParts) -> list[bytes]:
    """Return the bytes of a request that are neither messages nor instructions."""
    return [content[0] for kind, _, content in parts.steps if kind == _LITERAL]


def _find_fields(body: bytes, fields: _Body) -> list[tuple[int, int, str]]:
    """Return the positions of known fields, in order. A field with an ambiguous position is left out."""
    found = []
    has_conversation = False
    for value, name in zip(astuple(fields), _NAMES, strict=True):
        if value is _ABSENT or (has_conversation and name in _CONVERSATIONS):
            continue
        raw = bytes(value)
        start = _find_value(body, name, raw)
        if start >= 0:
            found.append((start, start + len(raw), name))
            has_conversation = has_conversation or name in _CONVERSATIONS
    if len(found) > 1:
        found.sort()
    return found


def _find_value(body: bytes, name: str, raw: bytes) -> int:
    """Return where a field's value begins; -1 if its name is written in an unusual way."""
    plain, pattern = _KEYS[name]
    start = body.find(plain) + len(plain)
    if body.startswith(raw, start):
        return start
    if body.startswith(raw, start + 1):
        return start + 1
    for match in pattern.finditer(body):
        if body.startswith(raw, match.end()):
            return match.end()
    return -1


def _find_elements(body: bytes, start: int, end: int) -> list[tuple[int, int]] | None:
    """Return the positions of the objects in a list; `None` if it is empty, too long, or has other elements."""
    if body[start : start + 1] != b"[":
        return None
    try:
        elements = _list.decode(memoryview(body)[start:end])
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None
    if not elements or len(elements) > MAX_ELEMENTS:
        return None
    positions = []
    offset = start + 1
    for element in elements:
        while body[offset] in _SPACE or body[offset] == 0x2C:
            offset += 1
        if body[offset] != 0x7B:
            return None
        positions.append((offset, offset + len(element)))
        offset += len(element)
    return positions


def _split_conversation(parts: RequestBodyParts, body: bytes, cursor: int, elements: list[tuple[int, int]]) -> int:
    """Add a conversation. Leading instructions go to the prompt, so that a clock in them does not change every turn."""
    instruction_count = 0
    while instruction_count < len(elements) and _INSTRUCTION.match(body, elements[instruction_count][0]):
        instruction_count += 1
    _add_literal(parts, body[cursor : elements[0][0]])
    if instruction_count:
        _add_elements(parts, body, elements[:instruction_count], _PROMPT)
    if instruction_count < len(elements):
        if instruction_count:
            _add_literal(parts, body[elements[instruction_count - 1][1] : elements[instruction_count][0]])
        _add_elements(parts, body, elements[instruction_count:], _THREAD)
    return elements[-1][1]


def _add_elements(parts: RequestBodyParts, body: bytes, elements: list[tuple[int, int]], kind: int) -> None:
    into = parts.thread if kind == _THREAD else parts.prompt
    if len(elements) == 1:
        start, end = elements[0]
        into.append(body[start:end])
        parts.steps.append((_THREAD, -1, [b","]) if kind == _THREAD else (_PROMPT, 1, []))
        return
    into += [body[start:end] for start, end in elements]
    between = [body[end:start] for (_, end), (start, _) in pairwise(elements)]
    same = len(set(between)) == 1
    if kind == _THREAD and same:
        # Without their number and with one separator, all turns of a conversation have the same skeleton.
        parts.steps.append((_THREAD, -1, between[:1]))
    else:
        parts.steps.append((kind, len(elements), between[:1] if same else between))


def _add_literal(parts: RequestBodyParts, content: bytes) -> None:
    if content:
        parts.steps.append((_LITERAL, 0, [content]))


def _take_elements(elements: Iterator[bytes], count: int) -> list[bytes]:
    return [element for _, element in zip(range(count), elements, strict=False)]


def _is_json(body: bytes) -> bool:
    try:
        msgspec.json.decode(body, type=msgspec.Raw)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return False
    return True

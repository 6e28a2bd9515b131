"""Takes a request apart at its messages, and puts it together again byte for byte.

The bytes are cut, never written anew, so whatever stands between the messages comes back too: odd spaces, unknown
fields, fields that are there twice. A request that cannot be understood is one piece.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import msgspec
from msgspec.structs import astuple

MOST_ELEMENTS = 10_000
"""More than any conversation has; whoever sends more gets them stored as one piece."""
_LITERAL, _PROMPT, _THREAD = 0, 1, 2
_CONVERSATIONS = ("messages", "input", "contents")
_PROMPTS = ("system", "systemInstruction", "system_instruction", "instructions", "tools")
_SPACE = b" \t\n\r"
_INSTRUCTION = re.compile(rb'\{\s*(?:"type"\s*:\s*"message"\s*,\s*)?"role"\s*:\s*"(?:system|developer)"')
"""How an instruction in the conversation begins, as all known clients write it. One that is not recognised is kept as
part of the conversation, which only costs space when it changes with every request."""
_ABSENT = msgspec.Raw()


class _Body(msgspec.Struct):
    messages: msgspec.Raw = _ABSENT
    input: msgspec.Raw = _ABSENT
    contents: msgspec.Raw = _ABSENT
    system: msgspec.Raw = _ABSENT
    systemInstruction: msgspec.Raw = _ABSENT  # noqa: N815 - the format's own word
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
class Parts:
    """A request in parts. `skeleton` says how they are put together."""

    prompt: list[bytes] = field(default_factory=list)
    """Tools and instructions."""
    thread: list[bytes] = field(default_factory=list)
    """The messages of the conversation."""
    steps: list[tuple[int, int, list[bytes]]] = field(default_factory=list)
    """Kind, number of elements (-1 for all that are left), and the bytes: a literal's own, or what stands between."""
    json: bool = True
    """Whether the request is JSON at all."""

    @property
    def skeleton(self) -> bytes:
        return _to_msgpack(self.steps)


def split(body: bytes, operation: str = "generate") -> Parts:
    """Take a request apart. Never fails."""
    try:
        fields = _body.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return Parts(steps=[(_LITERAL, 0, [body])], json=_is_json(body))
    parts = Parts()
    cursor = 0
    found = [] if operation == "embed" else _values(body, fields)
    for start, end, name in found:
        if start < cursor:
            continue  # Inside another one, which only a very odd request has.
        elements = _elements(body, start, end)
        if name in _CONVERSATIONS:
            if elements is None:
                continue
            cursor = _conversation(parts, body, cursor, elements)
        elif elements is None or name == "tools":
            # Tools change together or not at all, and one piece costs less than forty.
            _literal(parts, body[cursor:start])
            parts.prompt.append(body[start:end])
            parts.steps.append((_PROMPT, 1, []))
            cursor = end
        else:
            _literal(parts, body[cursor : elements[0][0]])
            _run(parts, body, elements, _PROMPT)
            cursor = elements[-1][1]
    _literal(parts, body[cursor:])
    return parts


def join(skeleton: bytes, prompt: Sequence[bytes], thread: Sequence[bytes]) -> bytes:
    """Put a request together again."""
    told, said = iter(prompt), iter(thread)
    result: list[bytes] = []
    for kind, count, between in _skeleton.decode(skeleton):
        if kind == _LITERAL:
            result += between
            continue
        elements = list(said) if count < 0 else _take(told if kind == _PROMPT else said, count)
        if len(between) <= 1:
            result.append(b"".join(between).join(elements))
            continue
        for index, element in enumerate(elements):
            if index:
                result.append(between[index - 1])
            result.append(element)
    return b"".join(result)


def map_literals(parts: Parts, change: Callable[[bytes], bytes]) -> None:
    """Change the bytes of a request that are neither messages nor instructions."""
    parts.steps = [
        (kind, count, [change(content[0])] if kind == _LITERAL else content) for kind, count, content in parts.steps
    ]


def literals(parts: Parts) -> list[bytes]:
    """The bytes of a request that are neither messages nor instructions."""
    return [content[0] for kind, _, content in parts.steps if kind == _LITERAL]


def _values(body: bytes, fields: _Body) -> list[tuple[int, int, str]]:
    """Where the values of the fields we know stand, in order. One whose place is not plain is left out."""
    found = []
    talks = False
    for value, name in zip(astuple(fields), _NAMES, strict=True):
        if value is _ABSENT or (talks and name in _CONVERSATIONS):
            continue
        raw = bytes(value)
        start = _place(body, name, raw)
        if start >= 0:
            found.append((start, start + len(raw), name))
            talks = talks or name in _CONVERSATIONS
    if len(found) > 1:
        found.sort()
    return found


def _place(body: bytes, name: str, raw: bytes) -> int:
    """Where a field's value begins; -1 if its name is written in an odd way."""
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


def _elements(body: bytes, start: int, end: int) -> list[tuple[int, int]] | None:
    """Where the objects of a list begin and end; `None` if it is empty, too long, or holds anything else."""
    if body[start : start + 1] != b"[":
        return None
    try:
        elements = _list.decode(memoryview(body)[start:end])
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None
    if not elements or len(elements) > MOST_ELEMENTS:
        return None
    places = []
    place = start + 1
    for element in elements:
        while body[place] in _SPACE or body[place] == 0x2C:
            place += 1
        if body[place] != 0x7B:
            return None
        places.append((place, place + len(element)))
        place += len(element)
    return places


def _conversation(parts: Parts, body: bytes, cursor: int, elements: list[tuple[int, int]]) -> int:
    """Instructions at the beginning belong to the prompt, so that a clock in them does not make every turn new."""
    told = 0
    while told < len(elements) and _INSTRUCTION.match(body, elements[told][0]):
        told += 1
    _literal(parts, body[cursor : elements[0][0]])
    if told:
        _run(parts, body, elements[:told], _PROMPT)
    if told < len(elements):
        if told:
            _literal(parts, body[elements[told - 1][1] : elements[told][0]])
        _run(parts, body, elements[told:], _THREAD)
    return elements[-1][1]


def _run(parts: Parts, body: bytes, elements: list[tuple[int, int]], kind: int) -> None:
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


def _literal(parts: Parts, content: bytes) -> None:
    if content:
        parts.steps.append((_LITERAL, 0, [content]))


def _take(elements: Iterator[bytes], count: int) -> list[bytes]:
    return [element for _, element in zip(range(count), elements, strict=False)]


def _is_json(body: bytes) -> bool:
    try:
        msgspec.json.decode(body, type=msgspec.Raw)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return False
    return True

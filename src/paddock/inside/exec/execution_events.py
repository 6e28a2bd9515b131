"""Events of an execution as OpenSandbox streams them: one JSON object and a blank line per event."""

from __future__ import annotations

import time
from binascii import b2a_base64
from json import dumps
from json.encoder import encode_basestring_ascii

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

CONTENT_TYPE = "text/event-stream"
MAX_PIECE = 64 * 1024


def now_ms() -> int:
    return int(time.time() * 1000)


def format_execution_event(kind: str, **fields: Any) -> bytes:
    return (dumps({"type": kind, **fields, "timestamp": now_ms()}) + "\n\n").encode("ascii")


def execution_completed_event(duration: float) -> bytes:
    return format_execution_event("execution_complete", execution_time=int(duration * 1000))


def execution_error_event(duration: float, name: str, value: str, traceback: list[str]) -> bytes:
    error = {"ename": name, "evalue": value, "traceback": traceback}
    return format_execution_event("error", error=error, execution_time=int(duration * 1000))


def command_ended_event(duration: float, exit_code: int, reason: str = "") -> bytes:
    """Return the last event of a command; clients read the exit code from `evalue`."""
    if exit_code == 0 and not reason:
        return execution_completed_event(duration)
    return execution_error_event(duration, "CommandExecError", str(exit_code), [reason or f"exit status {exit_code}"])


class OutputEventEncoder:
    """Encodes the bytes of one output stream as events, one per line without its newline.

    `eol` says whether a newline followed. Lines longer than `MAX_PIECE` are split, and bytes that are
    not UTF-8 are repeated exactly as base64 in `data`; so the text, or `data` if present, plus a newline
    if `eol`, rebuilds the stream byte for byte. With `raw`, newlines stay in the text and each event has
    the bytes of one read.
    """

    def __init__(self, stream: str, raw: bool = False) -> None:
        self._prefix = f'{{"type":"{stream}","text":'
        self._raw = raw
        self._partial = b""

    @property
    def pending(self) -> bool:
        return bool(self._partial)

    def feed(self, data: bytes) -> bytes:
        data = self._partial + data if self._partial else data
        self._partial = b""
        stamp = str(now_ms())
        if self._raw:
            return self._pieces(data, stamp, final=False)
        *lines, rest = data.split(b"\n")
        frames = [self._line(line, stamp) for line in lines]
        while len(rest) >= MAX_PIECE:
            cut = utf8_boundary(rest, MAX_PIECE)
            frames.append(self._frame(rest[:cut], stamp, eol=False))
            rest = rest[cut:]
        self._partial = rest
        return b"".join(frames)

    def flush(self, final: bool = True) -> bytes:
        """Encode the unfinished line; unless `final`, an incomplete character is kept for later."""
        data, self._partial = self._partial, b""
        return self._pieces(data, str(now_ms()), final)

    def _pieces(self, data: bytes, stamp: str, final: bool) -> bytes:
        if not final:
            cut = utf8_boundary(data, len(data))
            data, self._partial = data[:cut], data[cut:]
        frames = []
        while data:
            cut = utf8_boundary(data, MAX_PIECE) if len(data) > MAX_PIECE else len(data)
            frames.append(self._frame(data[:cut], stamp, eol=False))
            data = data[cut:]
        return b"".join(frames)

    def _line(self, line: bytes, stamp: str) -> bytes:
        frames = []
        while len(line) > MAX_PIECE:
            cut = utf8_boundary(line, MAX_PIECE)
            frames.append(self._frame(line[:cut], stamp, eol=False))
            line = line[cut:]
        frames.append(self._frame(line, stamp, eol=True))
        return b"".join(frames)

    def _frame(self, data: bytes, stamp: str, eol: bool) -> bytes:
        exact = ""
        try:
            text = data.decode()
        except UnicodeDecodeError:
            text = data.decode("utf-8", "replace")
            exact = f',"data":"{b2a_base64(data, newline=False).decode("ascii")}"'
        ending = ',"eol":true}\n\n' if eol else ',"eol":false}\n\n'
        return f'{self._prefix}{encode_basestring_ascii(text)}{exact},"timestamp":{stamp}{ending}'.encode("ascii")


def utf8_boundary(data: bytes, limit: int) -> int:
    """Return the largest cut up to `limit` that does not split a UTF-8 character."""
    for back in range(1, min(4, limit) + 1):
        byte = data[limit - back]
        if byte < 0x80:
            return limit
        if byte >= 0xC0:
            needed = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            cut = limit if back >= needed else limit - back
            return cut or limit
    return limit

"""Recordings: files of exchanges, one JSON object a line, that a `replay` provider answers from.

A recording says nothing about who asked. Files whose name ends in `.zst` are compressed, each exchange by itself, so
that both kinds are only ever appended to, and one that was cut short by a crash loses its last exchange at most.
"""

from __future__ import annotations

import base64
import binascii
import fcntl
import io
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import zstandard

from paddock.errors import ConfigError
from paddock.llm.exchange import Exchange, Outcome
from paddock.llm.formats.registry import FORMATS

VERSION = 1
LARGEST_LINE = 512 * 2**20
_UNRECORDED = frozenset({Outcome.REFUSED, Outcome.CLIENT_GONE})


class RecordingError(ConfigError):
    """The recording cannot be used."""

    code = "INVALID_RECORDING"


@dataclass(frozen=True, slots=True)
class Recorded:
    """An exchange as far as answering from it needs it."""

    id: str
    format: str
    operation: str
    model: str
    """As it was asked for."""
    stream: bool
    request: bytes
    status: int
    response: tuple[tuple[float, bytes], ...]
    """Seconds since the request, and the bytes that came then."""
    at: float = 0.0
    conversation: str | None = None
    complete: bool = True
    """Whether the answer was told to its end."""
    provider_kind: str | None = None

    @property
    def body(self) -> bytes:
        return b"".join(data for _, data in self.response)


def is_recordable(exchange: Exchange) -> bool:
    """Whether an exchange is worth recording: not when Paddock itself said no, or nobody heard the end."""
    return exchange.outcome not in _UNRECORDED and exchange.status > 0 and exchange.provider_kind != "replay"


def recorded_of(exchange: Exchange) -> Recorded:
    """An exchange that has just ended, or that comes from the archive, as one of a recording."""
    return Recorded(
        id=exchange.id,
        format=exchange.format,
        operation=exchange.operation,
        model=exchange.model,
        stream=exchange.stream,
        request=bytes(exchange.request),
        status=exchange.status,
        response=tuple((round(moment, 6), bytes(data)) for moment, data in exchange.response),
        at=exchange.at,
        conversation=exchange.conversation,
        complete=exchange.outcome in (Outcome.OK, Outcome.FAILED),
        provider_kind=exchange.provider_kind,
    )


def exchange_to_line(exchange: Exchange | Recorded) -> bytes:
    """An exchange as a line of a recording, its end included."""
    kept = recorded_of(exchange) if isinstance(exchange, Exchange) else exchange
    line: dict[str, Any] = {
        "version": VERSION,
        "id": kept.id,
        "at": kept.at,
        "format": kept.format,
        "operation": kept.operation,
        "model": kept.model,
        "stream": kept.stream,
        "conversation": kept.conversation,
        "provider_kind": kept.provider_kind,
        "request": _to_json(kept.request),
        "status": kept.status,
        "complete": kept.complete,
        "response": [[moment, _to_json(data)] for moment, data in kept.response],
    }
    return msgspec.json.encode(line) + b"\n"


class _Base64(msgspec.Struct, forbid_unknown_fields=True):
    base64: str


class _Line(msgspec.Struct):
    version: int
    format: str
    request: str | _Base64
    status: int
    response: list[tuple[float, str | _Base64]]
    id: str = ""
    at: float = 0.0
    operation: str = "generate"
    model: str = ""
    stream: bool = False
    conversation: str | None = None
    provider_kind: str | None = None
    complete: bool = True


_decoder = msgspec.json.Decoder(_Line)


def line_to_recorded(line: bytes, id: str = "") -> Recorded:
    """The exchange on a line; `id` is for one that has none. Raises `RecordingError` saying what is wrong."""
    try:
        read = _decoder.decode(line)
        if read.version != VERSION:
            raise RecordingError(f"version {read.version} is not known here; this Paddock reads version {VERSION}")
        if read.format not in FORMATS:
            raise RecordingError(f"there is no format {read.format!r}; known are: {', '.join(FORMATS)}")
        if not 100 <= read.status <= 599:
            raise RecordingError(f"{read.status} is no status of an answer")
        return Recorded(
            id=read.id or id,
            format=read.format,
            operation=read.operation,
            model=read.model,
            stream=read.stream,
            request=_from_json(read.request),
            status=read.status,
            response=tuple((max(0.0, moment), _from_json(data)) for moment, data in read.response),
            at=read.at,
            conversation=read.conversation,
            complete=read.complete,
            provider_kind=read.provider_kind,
        )
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, binascii.Error) as error:
        raise RecordingError(f"not a recorded exchange: {error}") from error


def read_recording(path: Path, setting: str = "") -> list[Recorded]:
    """All exchanges of a recording. Raises `RecordingError` naming file and line, or the setting that names a file.

    A last line without an end was being written when its writer died, and is left out.
    """
    found: list[Recorded] = []
    try:
        with path.open("rb") as file:
            for number, line in enumerate(_lines(file, compressed=_is_compressed(path)), 1):
                if line.isspace():
                    continue
                try:
                    found.append(line_to_recorded(line, f"line-{number}"))
                except RecordingError as error:
                    if not found and isinstance(error.__cause__, msgspec.DecodeError):
                        # Not one line of it is: it is some other file, and what its first line lacks helps nobody.
                        raise RecordingError(
                            f"{path} is no recording; make one with: paddock llm record FILE"
                        ) from error
                    raise RecordingError(f"{path}:{number}: {error.message}") from error
    except OSError as error:
        reason = "there is no such file" if isinstance(error, FileNotFoundError) else error.strerror or str(error)
        raise RecordingError(f"{setting and f'{setting}: '}{path} cannot be read: {reason}") from error
    return found


class RecordingWriter:
    """Appends exchanges to a recording; each is on disk when `add` returns. Safe from several threads and processes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()

    def add(self, exchange: Exchange | Recorded) -> None:
        """Append one exchange. Raises `OSError` when the disk does."""
        data = exchange_to_line(exchange)
        if _is_compressed(self.path):
            data = zstandard.ZstdCompressor(level=6).compress(data)
        with self._lock:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            # What was said to a model is its user's business alone.
            number = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            with os.fdopen(number, "r+b", buffering=0) as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                end = _sound_end(file, compressed=_is_compressed(self.path))
                file.truncate(end)
                file.seek(end)
                written = 0
                while written < len(data):
                    written += file.write(data[written:])
                os.fsync(file.fileno())


def _is_compressed(path: Path) -> bool:
    return path.suffix == ".zst"


def _lines(file: BinaryIO, *, compressed: bool) -> Iterator[bytes]:
    """Whole lines; a last one without an end is left out."""
    source: BinaryIO = file
    if compressed:
        reader = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True, closefd=False)
        source = io.BufferedReader(reader)
    while True:
        try:
            line = source.readline(LARGEST_LINE)
        except zstandard.ZstdError as error:
            raise RecordingError(f"not compressed with zstd, or damaged: {error}") from error
        if not line:
            return
        if not line.endswith(b"\n"):
            if len(line) >= LARGEST_LINE:
                raise RecordingError(f"a line is longer than {LARGEST_LINE >> 20} MiB")
            return
        yield line


def _sound_end(file: Any, *, compressed: bool) -> int:
    """Where the last whole exchange of a file ends, so that the next can follow it."""
    size: int = file.seek(0, os.SEEK_END)
    if size == 0:
        return 0
    if not compressed:
        position = size
        while position > 0:
            start = max(0, position - 65536)
            file.seek(start)
            found = file.read(position - start).rfind(b"\n")
            if found >= 0:
                return start + int(found) + 1
            position = start
        return 0
    return _sound_frames(file)


def _sound_frames(file: Any) -> int:
    """The end of the last whole frame; frames are gone through from the start."""
    file.seek(0)
    end = read = 0
    decoder = zstandard.ZstdDecompressor().decompressobj()
    begun = False
    while data := file.read(1 << 20):
        read += len(data)
        while data:
            begun = True
            try:
                decoder.decompress(data)
            except zstandard.ZstdError:
                return end
            if not decoder.eof:
                break
            data = decoder.unused_data
            end = read - len(data)
            decoder = zstandard.ZstdDecompressor().decompressobj()
            begun = False
    return end if begun else read


def _to_json(data: bytes) -> str | dict[str, str]:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def _from_json(value: str | _Base64) -> bytes:
    return value.encode() if isinstance(value, str) else base64.b64decode(value.base64, validate=True)

"""Recording files: exchanges as JSON lines, which a `replay` provider answers from.

A recording does not contain callers. Files named `.zst` are compressed, each exchange as a frame of its own, so that
both kinds are append-only and a crash loses the last exchange at most.
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
from paddock.llm.exchange import Exchange, ExchangeOutcome
from paddock.llm.formats.registry import FORMATS

RECORDING_VERSION = 1
MAX_LINE_BYTES = 512 * 2**20
_UNRECORDED = frozenset({ExchangeOutcome.REFUSED, ExchangeOutcome.CLIENT_GONE})


class RecordingFileError(ConfigError):
    """The recording file cannot be used."""

    code = "INVALID_RECORDING"


@dataclass(frozen=True, slots=True)
class RecordedExchange:
    """The parts of an exchange that a replay needs."""

    id: str
    format: str
    operation: str
    model: str
    """The model name that the client sent."""
    stream: bool
    request: bytes
    status: int
    response: tuple[tuple[float, bytes], ...]
    """Pieces of the body: seconds since the request, and the bytes received then."""
    at: float = 0.0
    conversation: str | None = None
    complete: bool = True
    """Whether the response was complete."""
    provider_kind: str | None = None

    @property
    def body(self) -> bytes:
        return b"".join(data for _, data in self.response)


def is_recordable(exchange: Exchange) -> bool:
    """Return whether an exchange can be recorded: not if Paddock refused it or the client left early."""
    return exchange.outcome not in _UNRECORDED and exchange.status > 0 and exchange.provider_kind != "replay"


def to_recorded_exchange(exchange: Exchange) -> RecordedExchange:
    """Convert a finished or archived exchange for a recording."""
    return RecordedExchange(
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
        complete=exchange.outcome in (ExchangeOutcome.OK, ExchangeOutcome.FAILED),
        provider_kind=exchange.provider_kind,
    )


def encode_recording_line(exchange: Exchange | RecordedExchange) -> bytes:
    """Encode an exchange as a line of a recording, line break included."""
    recorded = to_recorded_exchange(exchange) if isinstance(exchange, Exchange) else exchange
    line: dict[str, Any] = {
        "version": RECORDING_VERSION,
        "id": recorded.id,
        "at": recorded.at,
        "format": recorded.format,
        "operation": recorded.operation,
        "model": recorded.model,
        "stream": recorded.stream,
        "conversation": recorded.conversation,
        "provider_kind": recorded.provider_kind,
        "request": _to_json(recorded.request),
        "status": recorded.status,
        "complete": recorded.complete,
        "response": [[moment, _to_json(data)] for moment, data in recorded.response],
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


def decode_recording_line(line: bytes, id: str = "") -> RecordedExchange:
    """Decode a line; `id` is used if the line has none. Raises `RecordingFileError` with the reason."""
    try:
        read = _decoder.decode(line)
        if read.version != RECORDING_VERSION:
            raise RecordingFileError(
                f"version {read.version} is unknown; this Paddock reads version {RECORDING_VERSION}"
            )
        if read.format not in FORMATS:
            raise RecordingFileError(f"there is no format {read.format!r}; known are: {', '.join(FORMATS)}")
        if not 100 <= read.status <= 599:
            raise RecordingFileError(f"{read.status} is not an HTTP status")
        return RecordedExchange(
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
        raise RecordingFileError(f"not a recorded exchange: {error}") from error


def read_recording(path: Path, setting: str = "") -> list[RecordedExchange]:
    """Read all exchanges of a recording. Raises `RecordingFileError` with file and line, or the setting of the file.

    An incomplete last line, from a writer that died, is skipped.
    """
    found: list[RecordedExchange] = []
    try:
        with path.open("rb") as file:
            for number, line in enumerate(_read_lines(file, compressed=_is_compressed(path)), 1):
                if line.isspace():
                    continue
                try:
                    found.append(decode_recording_line(line, f"line-{number}"))
                except RecordingFileError as error:
                    if not found and isinstance(error.__cause__, msgspec.DecodeError):
                        # The first line is invalid: this is some other file, and details of the line do not help.
                        raise RecordingFileError(
                            f"{path} is no recording; make one with: paddock llm record FILE"
                        ) from error
                    raise RecordingFileError(f"{path}:{number}: {error.message}") from error
    except OSError as error:
        reason = "there is no such file" if isinstance(error, FileNotFoundError) else error.strerror or str(error)
        raise RecordingFileError(f"{setting and f'{setting}: '}{path} cannot be read: {reason}") from error
    return found


class RecordingWriter:
    """Appends exchanges to a recording; each is on disk when `add` returns. Thread-safe and process-safe."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()

    def add(self, exchange: Exchange | RecordedExchange) -> None:
        """Append one exchange. Raises `OSError`."""
        data = encode_recording_line(exchange)
        if _is_compressed(self.path):
            data = zstandard.ZstdCompressor(level=6).compress(data)
        with self._lock:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            # Conversations are private: readable by the owner only.
            number = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            with os.fdopen(number, "r+b", buffering=0) as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                end = _end_of_last_exchange(file, compressed=_is_compressed(self.path))
                file.truncate(end)
                file.seek(end)
                written = 0
                while written < len(data):
                    written += file.write(data[written:])
                os.fsync(file.fileno())


def _is_compressed(path: Path) -> bool:
    return path.suffix == ".zst"


def _read_lines(file: BinaryIO, *, compressed: bool) -> Iterator[bytes]:
    """Yield complete lines; an incomplete last line is skipped."""
    source: BinaryIO = file
    if compressed:
        reader = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True, closefd=False)
        source = io.BufferedReader(reader)
    while True:
        try:
            line = source.readline(MAX_LINE_BYTES)
        except zstandard.ZstdError as error:
            raise RecordingFileError(f"not compressed with zstd, or damaged: {error}") from error
        if not line:
            return
        if not line.endswith(b"\n"):
            if len(line) >= MAX_LINE_BYTES:
                raise RecordingFileError(f"a line is longer than {MAX_LINE_BYTES >> 20} MiB")
            return
        yield line


def _end_of_last_exchange(file: Any, *, compressed: bool) -> int:
    """Return the offset after the last complete exchange of a file."""
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
    return _end_of_last_frame(file)


def _end_of_last_frame(file: Any) -> int:
    """Return the offset after the last complete zstd frame, scanning from the start."""
    file.seek(0)
    end = read = 0
    decoder = zstandard.ZstdDecompressor().decompressobj()
    in_frame = False
    while data := file.read(1 << 20):
        read += len(data)
        while data:
            in_frame = True
            try:
                decoder.decompress(data)
            except zstandard.ZstdError:
                return end
            if not decoder.eof:
                break
            data = decoder.unused_data
            end = read - len(data)
            decoder = zstandard.ZstdDecompressor().decompressobj()
            in_frame = False
    return end if in_frame else read


def _to_json(data: bytes) -> str | dict[str, str]:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def _from_json(value: str | _Base64) -> bytes:
    return value.encode() if isinstance(value, str) else base64.b64decode(value.base64, validate=True)

"""Archives of session bundles: gzipped tars that contain only plain files.

The reader is written for untrusted archives: it accepts only plain headers, and writes only files with expected names.
"""

from __future__ import annotations

import gzip
import hashlib
import re
import tarfile
import zlib
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from paddock.agents.session_files import create_private_file
from paddock.config.units import format_size
from paddock.errors import InvalidInput, TooLarge

BLOCK_SIZE = 512
_FILE_NAME = re.compile(r"files/([0-9a-f]{64})")
_FILE_TYPES = (b"0", b"\0")
_DIRECTORY = b"5"
_CHUNK_SIZE = 2**20
_MAX_HEADERS = 100_000
_EXPORT_AGAIN = "export the session again"


@dataclass(frozen=True)
class SessionArchiveLimits:
    """Limits of the content of an archive."""

    part_names: Collection[str]
    """Allowed file names, besides `files/SHA256`."""
    part_size: int
    """Maximum bytes of each part."""
    file_size: int
    """Maximum bytes of each file below `files/`."""
    file_count: int
    total_size: int


class SessionArchiveWriter:
    """Writes an archive in chunks."""

    def __init__(self) -> None:
        self._compressor = zlib.compressobj(level=6, wbits=31)
        self._size = 0

    def add_file(self, name: str, data: bytes) -> bytes:
        return self.begin_file(name, len(data)) + self.compress(data) + self.end_file()

    def begin_file(self, name: str, size: int) -> bytes:
        header = tarfile.TarInfo(name)
        header.size, header.mode = size, 0o600
        self._size = size
        return self._compressor.compress(header.tobuf(tarfile.USTAR_FORMAT if size < 8**11 else tarfile.GNU_FORMAT))

    def compress(self, data: bytes) -> bytes:
        return self._compressor.compress(data)

    def end_file(self) -> bytes:
        return self._compressor.compress(bytes(-self._size % BLOCK_SIZE))

    def finish(self) -> bytes:
        return self._compressor.compress(bytes(2 * BLOCK_SIZE)) + self._compressor.flush()


def unpack_session_archive(archive: Path, directory: Path, limits: SessionArchiveLimits) -> None:
    """Unpack an archive below a directory; on error, written files stay. Raises `InvalidInput`, `TooLarge`."""
    try:
        with gzip.open(archive, "rb") as opened:
            _ArchiveReader(cast(BinaryIO, opened), directory, limits).read()
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InvalidInput(f"this is not a bundle, or a damaged one ({error}); {_EXPORT_AGAIN}") from None


class _ArchiveReader:
    def __init__(self, opened: BinaryIO, directory: Path, limits: SessionArchiveLimits) -> None:
        self._opened = opened
        self._directory = directory
        self._limits = limits
        self._bytes_left = limits.total_size
        self._files = 0

    def read(self) -> None:
        (self._directory / "files").mkdir(mode=0o700)
        for _ in range(_MAX_HEADERS):
            header = self._read_exactly(BLOCK_SIZE)
            if header == bytes(BLOCK_SIZE):
                # The end block is followed by padding.
                while self._opened.read(_CHUNK_SIZE):
                    self._count_bytes(_CHUNK_SIZE)
                return
            self._read_member(header)
        raise InvalidInput("the bundle has too many files")

    def _read_member(self, header: bytes) -> None:
        if _parse_octal(header[148:156]) != sum(header[:148]) + 8 * 32 + sum(header[156:]):
            raise InvalidInput(f"this is not a bundle, or a damaged one; {_EXPORT_AGAIN}")
        name = header[:100].split(b"\0", 1)[0].decode(errors="replace").removeprefix("./")
        kind, size = header[156:157], _parse_octal(header[124:136])
        if kind == _DIRECTORY and size == 0 and name.rstrip("/") in ("", ".", "files"):
            return
        if kind not in _FILE_TYPES or header[345:500].strip(b"\0"):
            raise InvalidInput(f"the bundle contains something other than a plain file: {name[:100]!a}")
        file_match = _FILE_NAME.fullmatch(name)
        if file_match is None and name not in self._limits.part_names:
            raise InvalidInput(f"the bundle contains an unexpected file: {name[:100]!a}")
        max_size = self._limits.part_size if file_match is None else self._limits.file_size
        if size > max_size:
            raise TooLarge(f"{name} in the bundle is too large; it may have {format_size(max_size)}")
        if file_match is not None:
            self._files += 1
            if self._files > self._limits.file_count:
                raise InvalidInput(f"the bundle has more than {self._limits.file_count} files")
        digest = self._extract_file(name, size)
        if file_match is not None and digest != file_match[1]:
            raise InvalidInput(f"{name} in the bundle is damaged: its digest does not match its name")

    def _extract_file(self, name: str, size: int) -> str:
        digest = hashlib.sha256()
        try:
            file = create_private_file(self._directory / name)
        except FileExistsError:
            raise InvalidInput(f"the bundle has {name} twice") from None
        left = size
        with file:
            while left:
                piece = self._read_exactly(min(left, _CHUNK_SIZE))
                left -= len(piece)
                digest.update(piece)
                file.write(piece)
        self._read_exactly(-size % BLOCK_SIZE)
        return digest.hexdigest()

    def _read_exactly(self, size: int) -> bytes:
        self._count_bytes(size)
        data = self._opened.read(size)
        if len(data) != size:
            raise InvalidInput(f"the bundle is incomplete; {_EXPORT_AGAIN}")
        return data

    def _count_bytes(self, size: int) -> None:
        self._bytes_left -= size
        if self._bytes_left < 0:
            raise TooLarge(f"a bundle may have {format_size(self._limits.total_size)} once it is unpacked")


def _parse_octal(field: bytes) -> int:
    digits = field.strip(b" \0")
    if not re.fullmatch(rb"[0-7]{0,12}", digits):
        raise InvalidInput(f"this is not a bundle, or a damaged one; {_EXPORT_AGAIN}")
    return int(digits or b"0", 8)

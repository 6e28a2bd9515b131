"""Receive files from a sandbox and write them below one directory only.

The stream is untrusted: names are checked, sizes are counted on receipt, and a sandbox that violates
protocol is disconnected. The format is described in `inside/files/deliverable_sender.py`.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paddock.config.units import format_size
from paddock.errors import HostFull, SandboxError
from paddock.model.file_names import escape_file_name
from paddock.model.runs import DeliveredFile
from paddock.model.task import WORKSPACE, Deliverable

MAX_LINE_BYTES = 64 * 1024
MAX_NAME_BYTES = 255
MAX_PATH_BYTES = 1024
"""Maximum bytes of a path below `deliverables/`; the folder's own path must fit in front of it."""
MAX_BLOCK_BYTES = 2**24
PARTIAL_FILE_NAME = ".paddock-partial"
MAX_LISTED_PROBLEMS = 100
"""Maximum listed problems; further ones are counted."""

REFUSAL_REASONS = {
    "link": "is a symbolic link",
    "pipe": "is a named pipe",
    "socket": "is a socket",
    "device": "is a device",
    "kernel": "is not a file but a view into the kernel",
    "denied": "may not be read",
    "empty": "is an empty directory",
    "deep": "has too many directories within each other",
    "changed": "became something else while it was looked at",
}
"""Problems that a sandbox may report by code. Its own texts are not used."""
BAD_LINK_REASON = "is a symbolic link that does not lead to a file in the sandbox"
WILL_BE_SENT_AGAIN = "again"
"""The file became shorter within a block. It is sent again."""
CHANGE_NOTES = {
    "": "",
    "grew": "grew while it was read: these are the bytes that it had at first",
    "shrank": "shrank while it was read",
    "changed": "was written to while it was read",
}


class DeliveryProtocolViolation(SandboxError):
    """The sandbox violates the protocol."""


class DeliveredFileRefused(Exception):
    """A rejected file; the message is the reason."""


@dataclass
class DeliverableReport:
    """Received files and problems of one deliverable."""

    wanted: Deliverable
    files: int = 0
    size: int = 0
    skipped: int = 0
    done: bool = False
    problems: list[str] = field(default_factory=list)
    more_problems: int = 0

    def add_problem(self, text: str) -> None:
        if len(self.problems) < 3:
            self.problems.append(text)
        else:
            self.more_problems += 1


@dataclass
class _PartialFile:
    """Partial file. Without a descriptor, its bytes are counted and dropped."""

    report: DeliverableReport
    path: str
    relative_path: str = ""
    partial: str = ""
    """Path of the partial file, beside its target for an atomic rename."""
    descriptor: int | None = None
    size: int = 0
    digest: Any = None


class DeliverableReceiver:
    """Writer of received files. Call `feed` from one thread at a time."""

    def __init__(self, directory: Path, wanted: Sequence[Deliverable], *, most_files: int, most_bytes: int) -> None:
        self.reports = [DeliverableReport(each) for each in wanted]
        self.files: dict[str, DeliveredFile] = {}
        self.notes: list[str] = []
        self.more_notes = 0
        self.over = False
        self._directory = directory
        self._most_files = most_files
        self._files_left = most_files
        self._bytes_left = most_bytes
        self._buffer = bytearray()
        self._file: _PartialFile | None = None
        self._block = 0
        self._ending = False
        self._created_directories: set[str] = set()

    def feed(self, pieces: Iterable[bytes]) -> None:
        """Process the next data. Raises `DeliveryProtocolViolation`, and `HostFull` if the disk is full."""
        for piece in pieces:
            self._bytes_left -= len(piece)
            if self._bytes_left < 0:
                raise DeliveryProtocolViolation("the sandbox sent more than a run may deliver in total")
            try:
                self._process_data(piece)
            except OSError as error:
                if error.errno in (errno.ENOSPC, errno.EDQUOT):
                    raise HostFull("the disk of this machine is full") from error
                raise SandboxError(f"could not store the file: {error.strerror}") from error

    def close(self) -> None:
        """Drop an incomplete file."""
        file, self._file = self._file, None
        if file is not None and file.descriptor is not None:
            os.close(file.descriptor)
            os.unlink(file.partial)

    def _process_data(self, data: bytes) -> None:
        view, position = memoryview(data), 0
        while position < len(data):
            if self.over:
                raise DeliveryProtocolViolation("the sandbox sent data after the end")
            if self._block:
                count = min(self._block, len(data) - position)
                self._write_data(view[position : position + count])
                self._block -= count
                position += count
            elif self._file is not None and not self._ending:
                count = min(4 - len(self._buffer), len(data) - position)
                self._buffer += view[position : position + count]
                position += count
                if len(self._buffer) == 4:
                    self._block = int.from_bytes(self._buffer, "big")
                    self._ending = not self._block
                    self._buffer.clear()
                    if self._block > MAX_BLOCK_BYTES:
                        raise DeliveryProtocolViolation
            else:
                end = data.find(b"\n", position)
                stop = len(data) if end < 0 else end
                self._buffer += view[position:stop]
                position = stop + 1
                if len(self._buffer) > MAX_LINE_BYTES:
                    raise DeliveryProtocolViolation("the sandbox sent an overlong line")
                if end >= 0:
                    line, self._buffer = bytes(self._buffer), bytearray()
                    self._process_line(line)

    def _process_line(self, line: bytes) -> None:
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            raise DeliveryProtocolViolation from None
        if not isinstance(record, dict):
            raise DeliveryProtocolViolation
        if self._file is not None:
            self._finish_file(self._file, record.get("end"))
        elif record.get("over") is True:
            self.over = True
        elif record:
            self._process_record(record)

    def _process_record(self, record: dict[str, Any]) -> None:
        number = record.get("of")
        if not isinstance(number, int) or not 0 <= number < len(self.reports):
            raise DeliveryProtocolViolation
        report = self.reports[number]
        if report.done:
            raise DeliveryProtocolViolation
        why = record.get("why")
        if isinstance(path := record.get("file"), str):
            self._open_file(report, path, record.get("executable") is True)
        elif isinstance(path := record.get("again"), str):
            report.files += _workspace_path(path) in self.files
        elif isinstance(path := record.get("skipped"), str):
            report.skipped += 1
            self._add_note(f"{printable_path(path)} {REFUSAL_REASONS.get(str(why), 'cannot be read')} and was left out")
        elif isinstance(path := record.get("refused"), str):
            report.add_problem(self._record_reason(report, path, str(why), record.get("size")))
        elif record.get("done") is True:
            report.done = True
        else:
            raise DeliveryProtocolViolation

    def _record_reason(self, report: DeliverableReport, path: str, why: str, size: object) -> str:
        if why == "many":
            return f"there are more than {self._most_files} files, which is as many as a run may deliver"
        if why == "large":
            has = f"{size} bytes" if isinstance(size, int) and 0 <= size < 2**63 else "more"
            limit = format_size(report.wanted.max_size)
            so_far = f", {report.size} bytes of which other files have" if report.size else ""
            return f"{printable_path(path)} has {has}; the deliverable's max_size is {limit}{so_far}"
        if why == "link" and path == report.wanted.path:
            return f"{printable_path(path)} {BAD_LINK_REASON}"
        return f"{printable_path(path)} {REFUSAL_REASONS.get(why, 'cannot be read')}"

    def _open_file(self, report: DeliverableReport, path: str, executable: bool) -> None:
        self._files_left -= 1
        if self._files_left < 0:
            raise DeliveryProtocolViolation("the sandbox sent more files than requested")
        self._file = file = _PartialFile(report, path)
        self._ending = False
        try:
            file.relative_path = deliverable_path(path, report.wanted.path)
            if file.relative_path in self.files:
                raise DeliveredFileRefused("would replace a file received before it")
            if file.relative_path in self._created_directories:
                raise DeliveredFileRefused("has the name of a directory received before it")
            file.partial = f"{self._create_parent(file.relative_path)}/{PARTIAL_FILE_NAME}"
        except DeliveredFileRefused as reason:
            report.add_problem(f"{printable_path(path)} {reason}")
            return
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        file.descriptor = os.open(file.partial, flags, 0o700 if executable else 0o600)
        file.digest = hashlib.sha256()

    def _write_data(self, data: memoryview) -> None:
        file = self._file
        assert file is not None
        file.report.size += len(data)
        if file.report.size > file.report.wanted.max_size:
            raise DeliveryProtocolViolation("the sandbox sent more than requested")
        file.size += len(data)
        if file.descriptor is None:
            return
        file.digest.update(data)
        while data:
            data = data[os.write(file.descriptor, data) :]

    def _finish_file(self, file: _PartialFile, end: object) -> None:
        self._file = None
        if end == WILL_BE_SENT_AGAIN:
            file.report.size -= file.size
        if file.descriptor is None:
            return
        os.close(file.descriptor)
        if end == WILL_BE_SENT_AGAIN:
            os.unlink(file.partial)
            return
        if not isinstance(end, str) or end not in CHANGE_NOTES:
            os.unlink(file.partial)
            file.report.add_problem(f"{printable_path(file.path)} could not be read to its end")
            return
        target = f"{self._directory}/{file.relative_path}"
        try:
            os.rename(file.partial, target)
        except IsADirectoryError:
            shutil.rmtree(target)  # Left by an earlier collection.
            os.rename(file.partial, target)
        note = CHANGE_NOTES[end]
        if note:
            self._add_note(f"{printable_path(file.path)} {note}")
        if file.relative_path != file.path[-len(file.relative_path) :]:
            self._add_note(
                f"{printable_path(file.path)} has control characters in its name; "
                f"it is kept as {printable_path(file.relative_path)}"
            )
        self.files[file.relative_path] = DeliveredFile(
            path=file.relative_path, size=file.size, sha256=file.digest.hexdigest(), note=note
        )
        file.report.files += 1

    def _create_parent(self, relative_path: str) -> str:
        """Return the parent directory of a file; create it if missing."""
        parent = relative_path.rpartition("/")[0]
        if not parent:
            return str(self._directory)
        if parent not in self._created_directories:
            if parent in self.files:
                raise DeliveredFileRefused("is below a path received before it as a file")
            path = f"{self._create_parent(parent)}/{parent.rpartition('/')[2]}"
            try:
                os.mkdir(path, 0o700)
            except FileExistsError:
                if not stat.S_ISDIR(os.lstat(path).st_mode):
                    os.unlink(path)  # Left by an earlier collection.
                    os.mkdir(path, 0o700)
            self._created_directories.add(parent)
        return f"{self._directory}/{parent}"

    def _add_note(self, text: str) -> None:
        if len(self.notes) < MAX_LISTED_PROBLEMS:
            self.notes.append(text)
        else:
            self.more_notes += 1


def deliverable_path(path: str, wanted: str = "/") -> str:
    """Return the path of a sandbox file below `deliverables/`. Raises `DeliveredFileRefused`.

    Workspace files keep their relative path, others their absolute path. Control characters
    are percent-escaped.
    """
    parts = path.split("/")
    if "\0" in path or parts[0] or any(part in ("", ".", "..") for part in parts[1:]) or path in ("", WORKSPACE):
        raise DeliveredFileRefused("is not a plain path")
    try:
        sizes = [len(escape_file_name(part).encode()) for part in parts]
    except UnicodeEncodeError:
        raise DeliveredFileRefused("has a name that is not UTF-8") from None
    if max(sizes) > MAX_NAME_BYTES or sum(sizes) + len(parts) > MAX_PATH_BYTES:
        raise DeliveredFileRefused("has too long a name")
    if PARTIAL_FILE_NAME in parts:
        raise DeliveredFileRefused("has a name reserved for partial files")
    base = pattern_directory(wanted)
    if path != wanted and path != base and not path.startswith(base.rstrip("/") + "/"):
        raise DeliveredFileRefused("was not requested")
    return escape_file_name(path[len(WORKSPACE) + 1 :] if path.startswith(f"{WORKSPACE}/") else path[1:])


def pattern_directory(pattern: str) -> str:
    """Return the fixed directory of a pattern; a path without wildcards as it is."""
    kept: list[str] = []
    for part in pattern.strip("/").split("/"):
        if has_wildcards(part):
            break
        kept.append(part)
    return "/" + "/".join(kept)


def has_wildcards(pattern: str) -> bool:
    return any(character in pattern for character in "*?[")


def printable_path(path: str) -> str:
    """Return a short path without terminal control characters."""
    text = path.removeprefix(f"{WORKSPACE}/")
    text = text if len(text) <= 200 else f"{text[:100]}…{text[-99:]}"
    return text if text.isprintable() else ascii(text)


def _workspace_path(path: str) -> str:
    try:
        return deliverable_path(path)
    except DeliveredFileRefused:
        return ""

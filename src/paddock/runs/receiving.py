"""Takes in the files that a box sends, and lets it write nowhere but below one directory.

Everything in the stream is from a box: names are checked, sizes are counted as they come, and a box that breaks the
rules it was given is not listened to any longer. How the stream is made is told in `inside/deliveries.py`.
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
from paddock.errors import BoxError, HostFull
from paddock.model.file_names import escape_name
from paddock.model.runs import Delivered
from paddock.model.task import WORKSPACE, Deliverable

MAX_LINE = 64 * 1024
MAX_NAME = 255
MAX_PATH = 1024
"""Bytes of a path below `deliverables/`; the way there has to fit in front of it."""
MAX_BLOCK = 2**24
PARTIAL = ".paddock-partial"
"""The name of a file that is under way."""
MOST_TOLD = 100
"""Things that are told of; of more only the number."""

WHY = {
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
"""What a box may say is wrong with a path. Words of its own are not passed on."""
NAMED_LINK = "is a symbolic link that does not lead to a file in the sandbox"
AGAIN = "again"
"""The file became shorter in the middle of a block. It follows once more."""
MOVED = {
    "": "",
    "grew": "grew while it was read: these are the bytes that it had at first",
    "shrank": "shrank while it was read",
    "changed": "was written to while it was read",
}


class Nonsense(BoxError):
    """The sandbox sends what makes no sense."""


class Refused(Exception):
    """A file that is not taken in; the message says why."""


@dataclass
class Account:
    """What came for one deliverable, and what did not."""

    wanted: Deliverable
    files: int = 0
    size: int = 0
    skipped: int = 0
    done: bool = False
    problems: list[str] = field(default_factory=list)
    more_problems: int = 0

    def trouble(self, text: str) -> None:
        if len(self.problems) < 3:
            self.problems.append(text)
        else:
            self.more_problems += 1


@dataclass
class _Incoming:
    """A file under way. Without a descriptor its bytes are counted and dropped."""

    account: Account
    path: str
    place: str = ""
    partial: str = ""
    """Where it is until it is whole: beside its place, which is where file systems want it."""
    descriptor: int | None = None
    size: int = 0
    digest: Any = None


class Receiver:
    """Writes what a box sends. `feed` is to be called in a thread, and in one at a time."""

    def __init__(self, directory: Path, wanted: Sequence[Deliverable], *, most_files: int, most_bytes: int) -> None:
        self.accounts = [Account(each) for each in wanted]
        self.files: dict[str, Delivered] = {}
        self.notes: list[str] = []
        self.more_notes = 0
        self.over = False
        self._directory = directory
        self._most_files = most_files
        self._files_left = most_files
        self._bytes_left = most_bytes
        self._head = bytearray()
        self._file: _Incoming | None = None
        self._block = 0
        self._ending = False
        self._made: set[str] = set()

    def feed(self, pieces: Iterable[bytes]) -> None:
        """Take in what came next. Raises `Nonsense`, and `HostFull` if it cannot be written."""
        for piece in pieces:
            self._bytes_left -= len(piece)
            if self._bytes_left < 0:
                raise Nonsense("the sandbox has sent more than a run may deliver in all")
            try:
                self._feed(piece)
            except OSError as error:
                if error.errno in (errno.ENOSPC, errno.EDQUOT):
                    raise HostFull("the disk of this machine is full") from error
                raise BoxError(f"the file cannot be kept here: {error.strerror}") from error

    def close(self) -> None:
        """Drop a file that has not come to its end."""
        file, self._file = self._file, None
        if file is not None and file.descriptor is not None:
            os.close(file.descriptor)
            os.unlink(file.partial)

    def _feed(self, data: bytes) -> None:
        view, position = memoryview(data), 0
        while position < len(data):
            if self.over:
                raise Nonsense("the sandbox goes on after the end")
            if self._block:
                count = min(self._block, len(data) - position)
                self._write(view[position : position + count])
                self._block -= count
                position += count
            elif self._file is not None and not self._ending:
                count = min(4 - len(self._head), len(data) - position)
                self._head += view[position : position + count]
                position += count
                if len(self._head) == 4:
                    self._block = int.from_bytes(self._head, "big")
                    self._ending = not self._block
                    self._head.clear()
                    if self._block > MAX_BLOCK:
                        raise Nonsense
            else:
                end = data.find(b"\n", position)
                stop = len(data) if end < 0 else end
                self._head += view[position:stop]
                position = stop + 1
                if len(self._head) > MAX_LINE:
                    raise Nonsense("the sandbox sends an endless line")
                if end >= 0:
                    line, self._head = bytes(self._head), bytearray()
                    self._line(line)

    def _line(self, line: bytes) -> None:
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            raise Nonsense from None
        if not isinstance(record, dict):
            raise Nonsense
        if self._file is not None:
            self._finish(self._file, record.get("end"))
        elif record.get("over") is True:
            self.over = True
        elif record:
            self._tell(record)

    def _tell(self, record: dict[str, Any]) -> None:
        number = record.get("of")
        if not isinstance(number, int) or not 0 <= number < len(self.accounts):
            raise Nonsense
        account = self.accounts[number]
        if account.done:
            raise Nonsense
        why = record.get("why")
        if isinstance(path := record.get("file"), str):
            self._begin(account, path, record.get("executable") is True)
        elif isinstance(path := record.get("again"), str):
            account.files += _known_place(path) in self.files
        elif isinstance(path := record.get("skipped"), str):
            account.skipped += 1
            self._note(f"{shown(path)} {WHY.get(str(why), 'cannot be read')} and was left out")
        elif isinstance(path := record.get("refused"), str):
            account.trouble(self._reason(account, path, str(why), record.get("size")))
        elif record.get("done") is True:
            account.done = True
        else:
            raise Nonsense

    def _reason(self, account: Account, path: str, why: str, size: object) -> str:
        if why == "many":
            return f"there are more than {self._most_files} files, which is as many as a run may deliver"
        if why == "large":
            has = f"{size} bytes" if isinstance(size, int) and 0 <= size < 2**63 else "more"
            room = format_size(account.wanted.max_size)
            so_far = f", {account.size} bytes of which other files have" if account.size else ""
            return f"{shown(path)} has {has}; the deliverable's max_size is {room}{so_far}"
        if why == "link" and path == account.wanted.path:
            return f"{shown(path)} {NAMED_LINK}"
        return f"{shown(path)} {WHY.get(why, 'cannot be read')}"

    def _begin(self, account: Account, path: str, executable: bool) -> None:
        self._files_left -= 1
        if self._files_left < 0:
            raise Nonsense("the sandbox sends more files than it was asked for")
        self._file = file = _Incoming(account, path)
        self._ending = False
        try:
            file.place = place_of(path, account.wanted.path)
            if file.place in self.files:
                raise Refused("would take the place of a file that came before it")
            if file.place in self._made:
                raise Refused("has the name of a directory that came before it")
            file.partial = f"{self._parent(file.place)}/{PARTIAL}"
        except Refused as reason:
            account.trouble(f"{shown(path)} {reason}")
            return
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        file.descriptor = os.open(file.partial, flags, 0o700 if executable else 0o600)
        file.digest = hashlib.sha256()

    def _write(self, data: memoryview) -> None:
        file = self._file
        assert file is not None
        file.account.size += len(data)
        if file.account.size > file.account.wanted.max_size:
            raise Nonsense("the sandbox sends more than it was asked for")
        file.size += len(data)
        if file.descriptor is None:
            return
        file.digest.update(data)
        while data:
            data = data[os.write(file.descriptor, data) :]

    def _finish(self, file: _Incoming, end: object) -> None:
        self._file = None
        if end == AGAIN:
            file.account.size -= file.size
        if file.descriptor is None:
            return
        os.close(file.descriptor)
        if end == AGAIN:
            os.unlink(file.partial)
            return
        if not isinstance(end, str) or end not in MOVED:
            os.unlink(file.partial)
            file.account.trouble(f"{shown(file.path)} could not be read to its end")
            return
        target = f"{self._directory}/{file.place}"
        try:
            os.rename(file.partial, target)
        except IsADirectoryError:
            shutil.rmtree(target)  # From an earlier collection.
            os.rename(file.partial, target)
        note = MOVED[end]
        if note:
            self._note(f"{shown(file.path)} {note}")
        if file.place != file.path[-len(file.place) :]:
            self._note(f"{shown(file.path)} has control characters in its name and is kept as {shown(file.place)}")
        self.files[file.place] = Delivered(path=file.place, size=file.size, sha256=file.digest.hexdigest(), note=note)
        file.account.files += 1

    def _parent(self, place: str) -> str:
        """The directory a file goes into, made if it is not there."""
        parent = place.rpartition("/")[0]
        if not parent:
            return str(self._directory)
        if parent not in self._made:
            if parent in self.files:
                raise Refused("is below what came before it as a file")
            path = f"{self._parent(parent)}/{parent.rpartition('/')[2]}"
            try:
                os.mkdir(path, 0o700)
            except FileExistsError:
                if not stat.S_ISDIR(os.lstat(path).st_mode):
                    os.unlink(path)  # From an earlier collection.
                    os.mkdir(path, 0o700)
            self._made.add(parent)
        return f"{self._directory}/{parent}"

    def _note(self, text: str) -> None:
        if len(self.notes) < MOST_TOLD:
            self.notes.append(text)
        else:
            self.more_notes += 1


def place_of(path: str, wanted: str = "/") -> str:
    """Where a file of the box goes below `deliverables/`. Raises `Refused`.

    What was in the workspace keeps its way from there, everything else its whole way. Characters that would be obeyed
    instead of shown are percent-escaped.
    """
    parts = path.split("/")
    if "\0" in path or parts[0] or any(part in ("", ".", "..") for part in parts[1:]) or path in ("", WORKSPACE):
        raise Refused("is not a plain path")
    try:
        sizes = [len(escape_name(part).encode()) for part in parts]
    except UnicodeEncodeError:
        raise Refused("has a name that is not UTF-8") from None
    if max(sizes) > MAX_NAME or sum(sizes) + len(parts) > MAX_PATH:
        raise Refused("has too long a name")
    if PARTIAL in parts:
        raise Refused("has a name that is kept for files under way")
    base = fixed_part(wanted)
    if path != wanted and path != base and not path.startswith(base.rstrip("/") + "/"):
        raise Refused("was not asked for")
    return escape_name(path[len(WORKSPACE) + 1 :] if path.startswith(f"{WORKSPACE}/") else path[1:])


def fixed_part(pattern: str) -> str:
    """The directory that all is below that fits a pattern; a path without wildcards itself."""
    kept: list[str] = []
    for part in pattern.strip("/").split("/"):
        if has_wildcards(part):
            break
        kept.append(part)
    return "/" + "/".join(kept)


def has_wildcards(pattern: str) -> bool:
    return any(letter in pattern for letter in "*?[")


def shown(path: str) -> str:
    """A path as it may be printed: short, and without what a terminal would obey."""
    text = path.removeprefix(f"{WORKSPACE}/")
    text = text if len(text) <= 200 else f"{text[:100]}…{text[-99:]}"
    return text if text.isprintable() else ascii(text)


def _known_place(path: str) -> str:
    try:
        return place_of(path)
    except Refused:
        return ""

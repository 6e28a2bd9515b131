"""Finds what a task puts into its sandbox, and packs it into one tar of what goes below the workspace."""

from __future__ import annotations

import hashlib
import io
import os
import stat
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, BinaryIO, cast

from paddock.errors import InvalidInput
from paddock.model.task import WORKSPACE, Input, Task
from paddock.runs.clones import GitProblem, cloned, look
from paddock.runs.problems import Problem, TaskError

if TYPE_CHECKING:
    from paddock.runs.taskfile import Loaded

_PIECE = 2**20
_EPOCH = 946_684_800
"""When what has no time of its own was made: the same input gives the same tar, and some tools mistrust 1970."""
_MOST_COMPLAINTS = 10
_SORTS = (
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


@dataclass(frozen=True)
class Packed:
    """What was packed."""

    size: int
    """Bytes of the tar."""
    count: int
    """Files and links in it; directories are not counted."""
    sha256: str
    """Of the tar."""


@dataclass(frozen=True)
class Entry:
    """One thing that goes into the tar."""

    name: str
    """Below the workspace."""
    mode: int
    """As `stat` has it, with the sort of thing it is."""
    time: int
    size: int = 0
    path: Path | None = None
    link: str = ""
    content: bytes = b""


def find(named: str, directory: Path, root: Path) -> Path | str:
    """The file or directory that a task file names, or what is wrong with that."""
    try:
        path = (directory / named).resolve()
        if not path.is_relative_to(root):
            return f"{named!r} is outside {root}, the project of this task; copy it there"
        path.stat()
    except FileNotFoundError:
        return f"there is no file {named!r}; paths are relative to the task file"
    except (OSError, RuntimeError, ValueError) as error:
        return f"{named!r} cannot be read: {getattr(error, 'strerror', None) or 'its links lead in a circle'}"
    if not os.access(path, os.R_OK | (os.X_OK if path.is_dir() else 0)):
        return f"{named!r} cannot be read: you are not allowed to"
    return path


def target_of(each: Input, directory: Path) -> str:
    """Where an input goes, relative to the workspace; `.` is the workspace itself."""
    if each.target is not None:
        return str(PurePosixPath(each.target).relative_to(WORKSPACE))
    named = each.source or each.git or ""
    name = Path(named).name
    # `.` and `..` have no name of their own, but what they lead to has.
    name = (directory / named).resolve().name if name in ("", "..") else name
    return name.removesuffix(".bundle").removesuffix(".git") or name if each.git is not None else name


def examine(inputs: Mapping[int, Input], directory: Path, root: Path) -> Iterator[tuple[int, str]]:
    """What is wrong with inputs, by their numbers, without reading what is in them."""
    seen = _Names()
    targets: dict[str, int] = {}
    for i, each in inputs.items():
        left = _MOST_COMPLAINTS
        first = targets.setdefault(target := target_of(each, directory), i)
        if first != i:
            # Where both say it themselves, the task has been told already.
            if each.target is None or inputs[first].target is None:
                yield i, f"goes to '{target}', as inputs.{first} does; give one of them another 'target'"
            continue
        for found in _entries(each, directory, root):
            problem = found if isinstance(found, str) else seen.add(i, found)
            if problem:
                yield i, problem
                left -= 1
            if not left:
                break
        if each.git is not None and isinstance(path := find(each.git, directory, root), Path):
            try:
                look(path, each.ref)
            except (GitProblem, OSError) as error:
                yield i, f"{each.git!r} {error}"


def pack_inputs(loaded: Loaded, sink: BinaryIO) -> Packed | None:
    """Write all inputs of a task as one tar relative to the workspace. None, and nothing written, if it has none.

    Raises `TaskError` for what cannot be read or put where it should go. What was written by then is of no use.
    """
    return _pack(loaded.task, loaded.directory, loaded.root, sink, str(loaded.path))


def pack_content(task: Task, sink: BinaryIO) -> Packed | None:
    """As `pack_inputs`, for a task that came without a file: its inputs are texts. Raises `InvalidInput` for others."""
    if any(each.content is None for each in task.inputs):
        raise InvalidInput("inputs: a request cannot carry files; upload a bundle, or use 'content'")
    nowhere = Path("/nonexistent")
    return _pack(task, nowhere, nowhere, sink, "the task")


def contents(loaded: Loaded) -> tuple[Input, ...]:
    """Return a task's inputs with each file as a text of its own. Raises `InvalidInput` for what is no text."""
    found: list[Input] = []
    for each in loaded.task.inputs:
        if each.content is not None or each.git is not None:
            found.append(each)
            continue
        for entry in _entries(each, loaded.directory, loaded.root):
            if isinstance(entry, str):
                raise InvalidInput(entry)
            if entry.path is not None:
                try:
                    found.append(Input(target=entry.name, content=entry.path.read_text(encoding="utf-8")))
                except (OSError, ValueError) as error:
                    raise InvalidInput(f"{entry.name!r} cannot be read as text: {error}") from None
    return tuple(found)


def _pack(task: Task, directory: Path, root: Path, sink: BinaryIO, shown: str) -> Packed | None:
    if not task.inputs:
        return None
    counted = _Counted(sink)
    seen = _Names()
    count = 0
    with tarfile.TarFile(fileobj=cast(BinaryIO, counted), mode="w", copybufsize=_PIECE) as archive:
        for i, each in enumerate(task.inputs):
            try:
                for entry in _packable(each, directory, root):
                    problem = entry if isinstance(entry, str) else seen.add(i, entry)
                    if isinstance(entry, str) or problem:
                        raise InvalidInput(problem or "")
                    if not seen.repeats:
                        _write(archive, entry)
                        count += not stat.S_ISDIR(entry.mode)
            except InvalidInput as error:
                raise TaskError([Problem(shown, None, f"inputs.{i}", error.message)]) from error
    counted.flush()
    return Packed(counted.size, count, counted.hash.hexdigest())


def _packable(each: Input, directory: Path, root: Path) -> Iterator[Entry | str]:
    if each.git is None:
        yield from _entries(each, directory, root)
        return
    path = find(each.git, directory, root)
    if isinstance(path, str):
        yield path
        return
    yield from _above(target_of(each, directory))
    try:
        with cloned(path, each.ref) as (clone, committed):
            for entry in _tree(clone, target_of(each, directory), fenced=False):
                yield entry if isinstance(entry, str) else Entry(**{**vars(entry), "time": committed})
    except GitProblem as error:
        yield f"{each.git!r} {error}"


def _entries(each: Input, directory: Path, root: Path) -> Iterator[Entry | str]:
    """What an input puts into the workspace, in an order that is always the same; of a git repository, its place."""
    target = target_of(each, directory)
    yield from _above(target)
    if each.content is not None:
        data = each.content.encode()
        yield Entry(target, stat.S_IFREG | 0o644, _EPOCH, size=len(data), content=data)
        return
    named = each.source or each.git or ""
    path = find(named, directory, root)
    if isinstance(path, str):
        yield path
    elif each.git is not None:
        yield Entry(target, stat.S_IFDIR | 0o755, _EPOCH)
    elif path.is_dir():
        yield from _tree(path, target, fenced=True)
    elif target == ".":
        yield f"{named!r} is a file, so 'target' must name a file too"
    else:
        yield _file(path, path.lstat(), target, named)


def _above(target: str) -> Iterator[Entry]:
    for parent in reversed(PurePosixPath(target).parents):
        if str(parent) != ".":
            yield Entry(str(parent), stat.S_IFDIR | 0o755, _EPOCH)


def _tree(top: Path, target: str, *, fenced: bool) -> Iterator[Entry | str]:
    """A directory and all in it. If it is `fenced`, links that lead out of it are refused."""
    if target != ".":
        yield Entry(target, top.stat().st_mode, int(top.stat().st_mtime))
    waiting: list[tuple[Path, str]] = [(top, target)]
    while waiting:
        directory, name = waiting.pop()
        shown = directory.relative_to(top)
        try:
            with os.scandir(directory) as scan:
                found = sorted(scan, key=lambda entry: entry.name)
        except OSError as error:
            yield f"{_shown(shown)} cannot be read: {error.strerror}"
            continue
        deeper = []
        for item in found:
            path = directory / item.name
            inner = item.name if name == "." else f"{name}/{item.name}"
            try:
                info = item.stat(follow_symlinks=False)
            except OSError as error:
                yield f"{_shown(shown / item.name)} cannot be read: {error.strerror}"
                continue
            if stat.S_ISDIR(info.st_mode):
                yield Entry(inner, info.st_mode, int(info.st_mtime))
                deeper.append((path, inner))
            elif stat.S_ISLNK(info.st_mode):
                yield _link(path, info, inner, top if fenced else None)
            else:
                yield _file(path, info, inner, str(shown / item.name))
        waiting += reversed(deeper)


def _file(path: Path, info: os.stat_result, name: str, shown: str) -> Entry | str:
    if not stat.S_ISREG(info.st_mode):
        sort = next((sort for test, sort in _SORTS if test(info.st_mode)), "no ordinary file")
        return f"{_shown(shown)} is {sort}; inputs are files, directories and links"
    if not os.access(path, os.R_OK):
        return f"{_shown(shown)} cannot be read: you are not allowed to"
    return Entry(name, info.st_mode, int(info.st_mtime), size=info.st_size, path=path)


def _link(path: Path, info: os.stat_result, name: str, top: Path | None) -> Entry | str:
    to = os.readlink(path)
    if top is not None:
        shown = path.relative_to(top)
        if os.path.isabs(to):
            return f"{_shown(shown)} is a link to {to!r}, which is not the same place in the sandbox; make it relative"
        if not Path(os.path.realpath(path)).is_relative_to(top):
            return f"{_shown(shown)} is a link to {to!r}, which leaves the directory; copy what it leads to"
    return Entry(name, info.st_mode, int(info.st_mtime), link=to)


class _Names:
    """What is at which name in the tar so far."""

    def __init__(self) -> None:
        self._sorts: dict[str, tuple[int, int]] = {}
        self.repeats = False
        """Whether the last one is a directory that is there already."""

    def add(self, number: int, entry: Entry) -> str | None:
        """Note an entry, or say why it cannot go there."""
        sort = stat.S_IFMT(entry.mode)
        other, before = self._sorts.setdefault(entry.name, (-1, sort))
        self.repeats = other >= 0
        if not self.repeats:
            self._sorts[entry.name] = (number, sort)
        elif before != sort or not stat.S_ISDIR(sort):
            return f"{_shown(entry.name)} comes from inputs.{other} too; give one of them another 'target'"
        return None


class _Counted:
    """Passes bytes on in large pieces, and knows how many there were and what they hash to."""

    def __init__(self, sink: BinaryIO) -> None:
        self._sink = sink
        self._waiting = bytearray()
        self.size = 0
        self.hash = hashlib.sha256()

    def write(self, data: bytes) -> int:
        self._waiting += data
        self.size += len(data)
        if len(self._waiting) >= _PIECE:
            self.flush()
        return len(data)

    def tell(self) -> int:
        return self.size

    def flush(self) -> None:
        piece = bytes(self._waiting)
        self._waiting.clear()
        self.hash.update(piece)
        rest = memoryview(piece)
        while rest:
            rest = rest[self._sink.write(rest) :]


def _write(archive: tarfile.TarFile, entry: Entry) -> None:
    member = tarfile.TarInfo(entry.name)
    # Bits that lend rights stay behind, and so does the owner: in the sandbox it is all the agent's.
    member.mode = stat.S_IMODE(entry.mode) & 0o777
    member.mtime = entry.time
    if stat.S_ISDIR(entry.mode):
        member.type = tarfile.DIRTYPE
        archive.addfile(member)
    elif stat.S_ISLNK(entry.mode):
        member.type, member.linkname = tarfile.SYMTYPE, entry.link
        archive.addfile(member)
    elif entry.path is None:
        member.size = len(entry.content)
        archive.addfile(member, io.BytesIO(entry.content))
    else:
        _copy(archive, member, entry.path)
    # It would remember every member, and there may be millions.
    archive.getmembers().clear()


def _copy(archive: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise InvalidInput(f"{_shown(path.name)} cannot be read: {error.strerror}") from error
    with open(descriptor, "rb") as file:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode):
            raise InvalidInput(f"{_shown(path.name)} was replaced while it was packed; try again")
        member.size = info.st_size
        try:
            archive.addfile(member, file)
        except OSError as error:
            if error.errno is not None:  # Whoever takes the tar failed, and says so itself.
                raise
            raise InvalidInput(f"{_shown(path.name)} became shorter while it was packed; try again") from error


def _shown(name: object) -> str:
    """A name in a complaint, which must be text whatever bytes the name has."""
    return f"'{os.fsencode(str(name)).decode(errors='replace')}'"

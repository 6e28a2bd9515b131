"""Find a task's inputs and pack them into one tar relative to the workspace."""

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
from paddock.model.task import WORKSPACE, Task, TaskInput
from paddock.runs.inputs.git_clones import UnusableGitRepository, check_git_source, clone_git_repository
from paddock.runs.tasks.task_problems import InvalidTaskError, TaskProblem

if TYPE_CHECKING:
    from paddock.runs.tasks.task_file_loader import LoadedTask

_CHUNK_SIZE = 2**20
_FIXED_MODIFICATION_TIME = 946_684_800
"""Fixed modification time of inline files, for reproducible tars; some tools reject 1970."""
_MAX_PROBLEMS_PER_INPUT = 10
_UNSUPPORTED_FILE_TYPES = (
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


@dataclass(frozen=True)
class PackedInputs:
    """Result of packing."""

    size: int
    """Bytes of the tar."""
    count: int
    """Number of files and links, without directories."""
    sha256: str
    """Of the tar."""


@dataclass(frozen=True)
class InputTarEntry:
    """Entry of the tar."""

    name: str
    """Path relative to the workspace."""
    mode: int
    """Mode of `stat`, including the file type."""
    time: int
    size: int = 0
    path: Path | None = None
    link: str = ""
    content: bytes = b""


def resolve_input_path(source: str, directory: Path, root: Path) -> Path | str:
    """Return the path of an input, or the problem with it."""
    try:
        path = (directory / source).resolve()
        if not path.is_relative_to(root):
            return f"{source!r} is outside {root}, the project of this task; copy it there"
        path.stat()
    except FileNotFoundError:
        return f"there is no file {source!r}; paths are relative to the task file"
    except (OSError, RuntimeError, ValueError) as error:
        return f"{source!r} cannot be read: {getattr(error, 'strerror', None) or 'its links lead in a circle'}"
    if not os.access(path, os.R_OK | (os.X_OK if path.is_dir() else 0)):
        return f"{source!r} cannot be read: you are not allowed to"
    return path


def input_target_path(each: TaskInput, directory: Path) -> str:
    """Return the target of an input relative to the workspace; `.` is the workspace."""
    if each.target is not None:
        return str(PurePosixPath(each.target).relative_to(WORKSPACE))
    source = each.source or each.git or ""
    name = Path(source).name
    # `.` and `..` have no name; their resolved path has.
    name = (directory / source).resolve().name if name in ("", "..") else name
    return name.removesuffix(".bundle").removesuffix(".git") or name if each.git is not None else name


def find_input_problems(inputs: Mapping[int, TaskInput], directory: Path, root: Path) -> Iterator[tuple[int, str]]:
    """Return problems of inputs by index, without reading their content."""
    seen = _TargetNames()
    targets: dict[str, int] = {}
    for i, each in inputs.items():
        left = _MAX_PROBLEMS_PER_INPUT
        first = targets.setdefault(target := input_target_path(each, directory), i)
        if first != i:
            # Two explicit targets are reported by the task's own validation.
            if each.target is None or inputs[first].target is None:
                yield i, f"goes to '{target}', as inputs.{first} does; give one of them another 'target'"
            continue
        for found in _input_entries(each, directory, root):
            problem = found if isinstance(found, str) else seen.add(i, found)
            if problem:
                yield i, problem
                left -= 1
            if not left:
                break
        if each.git is not None and isinstance(path := resolve_input_path(each.git, directory, root), Path):
            try:
                check_git_source(path, each.ref)
            except (UnusableGitRepository, OSError) as error:
                yield i, f"{each.git!r} {error}"


def pack_inputs(loaded: LoadedTask, sink: BinaryIO) -> PackedInputs | None:
    """Pack all inputs of a task into one tar. Return None and write nothing if it has no inputs.

    Raises `InvalidTaskError` for unreadable inputs and invalid targets; discard the partial tar.
    """
    return _pack_inputs(loaded.task, loaded.directory, loaded.root, sink, str(loaded.path))


def pack_inline_inputs(task: Task, sink: BinaryIO) -> PackedInputs | None:
    """Pack the inline inputs of a task without a file. Raises `InvalidInput` for other inputs."""
    if any(each.content is None for each in task.inputs):
        raise InvalidInput("inputs: a request cannot carry files; upload a bundle, or use 'content'")
    no_directory = Path("/nonexistent")
    return _pack_inputs(task, no_directory, no_directory, sink, "the task")


def inline_input_files(loaded: LoadedTask) -> tuple[TaskInput, ...]:
    """Return a task's inputs with file contents inlined. Raises `InvalidInput` for binary files."""
    found: list[TaskInput] = []
    for each in loaded.task.inputs:
        if each.content is not None or each.git is not None:
            found.append(each)
            continue
        for entry in _input_entries(each, loaded.directory, loaded.root):
            if isinstance(entry, str):
                raise InvalidInput(entry)
            if entry.path is not None:
                try:
                    found.append(TaskInput(target=entry.name, content=entry.path.read_text(encoding="utf-8")))
                except (OSError, ValueError) as error:
                    raise InvalidInput(f"{entry.name!r} cannot be read as text: {error}") from None
    return tuple(found)


def _pack_inputs(task: Task, directory: Path, root: Path, sink: BinaryIO, shown: str) -> PackedInputs | None:
    if not task.inputs:
        return None
    counted = _CountingWriter(sink)
    seen = _TargetNames()
    count = 0
    with tarfile.TarFile(fileobj=cast(BinaryIO, counted), mode="w", copybufsize=_CHUNK_SIZE) as archive:
        for i, each in enumerate(task.inputs):
            try:
                for entry in _check_packable(each, directory, root):
                    problem = entry if isinstance(entry, str) else seen.add(i, entry)
                    if isinstance(entry, str) or problem:
                        raise InvalidInput(problem or "")
                    if not seen.repeats:
                        _write_entry(archive, entry)
                        count += not stat.S_ISDIR(entry.mode)
            except InvalidInput as error:
                raise InvalidTaskError([TaskProblem(shown, None, f"inputs.{i}", error.message)]) from error
    counted.flush()
    return PackedInputs(counted.size, count, counted.hash.hexdigest())


def _check_packable(each: TaskInput, directory: Path, root: Path) -> Iterator[InputTarEntry | str]:
    if each.git is None:
        yield from _input_entries(each, directory, root)
        return
    path = resolve_input_path(each.git, directory, root)
    if isinstance(path, str):
        yield path
        return
    yield from _parent_directories(input_target_path(each, directory))
    try:
        with clone_git_repository(path, each.ref) as (clone, committed):
            for entry in _directory_entries(clone, input_target_path(each, directory), reject_outside_links=False):
                yield entry if isinstance(entry, str) else InputTarEntry(**{**vars(entry), "time": committed})
    except UnusableGitRepository as error:
        yield f"{each.git!r} {error}"


def _input_entries(each: TaskInput, directory: Path, root: Path) -> Iterator[InputTarEntry | str]:
    """Return the sorted entries of an input; for a git repository, its directory."""
    target = input_target_path(each, directory)
    yield from _parent_directories(target)
    if each.content is not None:
        data = each.content.encode()
        yield InputTarEntry(target, stat.S_IFREG | 0o644, _FIXED_MODIFICATION_TIME, size=len(data), content=data)
        return
    source = each.source or each.git or ""
    path = resolve_input_path(source, directory, root)
    if isinstance(path, str):
        yield path
    elif each.git is not None:
        yield InputTarEntry(target, stat.S_IFDIR | 0o755, _FIXED_MODIFICATION_TIME)
    elif path.is_dir():
        yield from _directory_entries(path, target, reject_outside_links=True)
    elif target == ".":
        yield f"{source!r} is a file, so 'target' must name a file too"
    else:
        yield _file_entry(path, path.lstat(), target, source)


def _parent_directories(target: str) -> Iterator[InputTarEntry]:
    for parent in reversed(PurePosixPath(target).parents):
        if str(parent) != ".":
            yield InputTarEntry(str(parent), stat.S_IFDIR | 0o755, _FIXED_MODIFICATION_TIME)


def _directory_entries(top: Path, target: str, *, reject_outside_links: bool) -> Iterator[InputTarEntry | str]:
    """Return the entries of a directory tree. If `reject_outside_links`, links that lead out of it are rejected."""
    if target != ".":
        yield InputTarEntry(target, top.stat().st_mode, int(top.stat().st_mtime))
    waiting: list[tuple[Path, str]] = [(top, target)]
    while waiting:
        directory, name = waiting.pop()
        shown = directory.relative_to(top)
        try:
            with os.scandir(directory) as scan:
                found = sorted(scan, key=lambda entry: entry.name)
        except OSError as error:
            yield f"{_printable(shown)} cannot be read: {error.strerror}"
            continue
        deeper = []
        for item in found:
            path = directory / item.name
            inner = item.name if name == "." else f"{name}/{item.name}"
            try:
                info = item.stat(follow_symlinks=False)
            except OSError as error:
                yield f"{_printable(shown / item.name)} cannot be read: {error.strerror}"
                continue
            if stat.S_ISDIR(info.st_mode):
                yield InputTarEntry(inner, info.st_mode, int(info.st_mtime))
                deeper.append((path, inner))
            elif stat.S_ISLNK(info.st_mode):
                yield _link_entry(path, info, inner, top if reject_outside_links else None)
            else:
                yield _file_entry(path, info, inner, str(shown / item.name))
        waiting += reversed(deeper)


def _file_entry(path: Path, info: os.stat_result, name: str, shown: str) -> InputTarEntry | str:
    if not stat.S_ISREG(info.st_mode):
        file_type = next(
            (file_type for test, file_type in _UNSUPPORTED_FILE_TYPES if test(info.st_mode)), "no ordinary file"
        )
        return f"{_printable(shown)} is {file_type}; inputs are files, directories and links"
    if not os.access(path, os.R_OK):
        return f"{_printable(shown)} cannot be read: you are not allowed to"
    return InputTarEntry(name, info.st_mode, int(info.st_mtime), size=info.st_size, path=path)


def _link_entry(path: Path, info: os.stat_result, name: str, top: Path | None) -> InputTarEntry | str:
    to = os.readlink(path)
    if top is not None:
        shown = path.relative_to(top)
        if os.path.isabs(to):
            return (
                f"{_printable(shown)} is a link to {to!r}, which is not the same place in the sandbox; make it relative"
            )
        if not Path(os.path.realpath(path)).is_relative_to(top):
            return f"{_printable(shown)} is a link to {to!r}, which leaves the directory; copy what it leads to"
    return InputTarEntry(name, info.st_mode, int(info.st_mtime), link=to)


class _TargetNames:
    """Names already used in the tar."""

    def __init__(self) -> None:
        self._types: dict[str, tuple[int, int]] = {}
        self.repeats = False
        """Whether the last entry is a directory that exists already."""

    def add(self, number: int, entry: InputTarEntry) -> str | None:
        """Register an entry. Return the problem if its name is taken."""
        file_type = stat.S_IFMT(entry.mode)
        other, before = self._types.setdefault(entry.name, (-1, file_type))
        self.repeats = other >= 0
        if not self.repeats:
            self._types[entry.name] = (number, file_type)
        elif before != file_type or not stat.S_ISDIR(file_type):
            return f"{_printable(entry.name)} comes from inputs.{other} too; give one of them another 'target'"
        return None


class _CountingWriter:
    """Buffered writer that counts and hashes its bytes."""

    def __init__(self, sink: BinaryIO) -> None:
        self._sink = sink
        self._buffer = bytearray()
        self.size = 0
        self.hash = hashlib.sha256()

    def write(self, data: bytes) -> int:
        self._buffer += data
        self.size += len(data)
        if len(self._buffer) >= _CHUNK_SIZE:
            self.flush()
        return len(data)

    def tell(self) -> int:
        return self.size

    def flush(self) -> None:
        chunk = bytes(self._buffer)
        self._buffer.clear()
        self.hash.update(chunk)
        rest = memoryview(chunk)
        while rest:
            rest = rest[self._sink.write(rest) :]


def _write_entry(archive: tarfile.TarFile, entry: InputTarEntry) -> None:
    member = tarfile.TarInfo(entry.name)
    # Drop setuid bits and the owner: in the sandbox, all inputs belong to the agent.
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
        _copy_file(archive, member, entry.path)
    # tarfile keeps a list of all members, and there may be millions.
    archive.getmembers().clear()


def _copy_file(archive: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise InvalidInput(f"{_printable(path.name)} cannot be read: {error.strerror}") from error
    with open(descriptor, "rb") as file:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode):
            raise InvalidInput(f"{_printable(path.name)} was replaced while it was packed; try again")
        member.size = info.st_size
        try:
            archive.addfile(member, file)
        except OSError as error:
            if error.errno is not None:  # The consumer of the tar failed and reports its own error.
                raise
            raise InvalidInput(f"{_printable(path.name)} became shorter while it was packed; try again") from error


def _printable(name: object) -> str:
    """Return a file name for messages; undecodable bytes are replaced."""
    return f"'{os.fsencode(str(name)).decode(errors='replace')}'"

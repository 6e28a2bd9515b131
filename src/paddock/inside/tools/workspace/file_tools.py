"""Tools for files: read, write, list, create, move and delete."""

from __future__ import annotations

import errno
import os
import stat

from ..tool_registry import CallableTool
from ..tool_result import MAX_TEXT, ToolCallResult, ToolError, encode_base64, replace_surrogates

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from ..tool_context import ToolContext

MAX_BYTES = 8 * 1024 * 1024
"""Bytes that read_file returns at once as base64 or as a picture."""
MAX_SCAN = 1024 * 1024 * 1024
"""Bytes that read_file scans for the first line to return."""
MAX_ENTRIES = 1000

_BLOCK = 256 * 1024
_PICTURES = ((b"\x89PNG\r\n\x1a\n", "image/png"), (b"\xff\xd8\xff", "image/jpeg"), (b"GIF8", "image/gif"))
_BASE64 = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_PATH = {"type": "string", "minLength": 1, "maxLength": 4096}


def file_tools(context: ToolContext) -> list[CallableTool]:
    return [
        CallableTool(
            "read_file",
            "Read a file: text by lines, PNG, JPEG, GIF and WebP as pictures, and any bytes with encoding base64.",
            {
                "path": {**_PATH, "description": "Absolute, or relative to the working directory."},
                "start_line": {"type": "integer", "minimum": 1, "default": 1, "description": "First line, from 1."},
                "lines": {"type": "integer", "minimum": 1, "description": "Number of lines; as many as fit if absent."},
                "encoding": {"type": "string", "enum": ["auto", "utf-8", "base64"], "default": "auto"},
                "start_byte": {"type": "integer", "minimum": 0, "default": 0, "description": "With base64 only."},
                "bytes": {"type": "integer", "minimum": 1, "maximum": MAX_BYTES, "description": "With base64 only."},
            },
            ["path"],
            read_file,
            read_only=True,
        ),
        CallableTool(
            "write_file",
            "Write a file atomically; missing parent directories are created.",
            {
                "path": _PATH,
                "content": {"type": "string"},
                "encoding": {"type": "string", "enum": ["utf-8", "base64"], "default": "utf-8"},
                "append": {"type": "boolean", "default": False, "description": "Append to the existing content."},
            },
            ["path", "content"],
            write_file,
        ),
        CallableTool(
            "list_directory",
            f"List a directory with kinds and sizes, up to {MAX_ENTRIES} entries.",
            {
                "path": {**_PATH, "default": "."},
                "depth": {"type": "integer", "minimum": 1, "maximum": 20, "default": 1, "description": "Levels down."},
            },
            [],
            list_directory,
            read_only=True,
        ),
        CallableTool(
            "create_directory",
            "Create a directory and its parents; an existing one is fine.",
            {"path": _PATH},
            ["path"],
            create_directory,
        ),
        CallableTool(
            "move_file",
            "Move or rename a file or directory; an existing directory as destination keeps the name.",
            {
                "source": _PATH,
                "destination": _PATH,
                "overwrite": {"type": "boolean", "default": False, "description": "Replace an existing file."},
            },
            ["source", "destination"],
            move_file,
        ),
        CallableTool(
            "delete_file",
            "Delete a file, a link or an empty directory; with recursive, a directory and its contents.",
            {"path": _PATH, "recursive": {"type": "boolean", "default": False}},
            ["path"],
            delete_file,
        ),
    ]


def read_file(
    context: ToolContext,
    path: str,
    start_line: int,
    encoding: str,
    start_byte: int,
    lines: int | None = None,
    bytes: int | None = None,
) -> ToolCallResult:
    path = context.absolute_path(path)
    descriptor = _open_regular(path)
    with open(descriptor, "rb", buffering=0) as stream:
        size = os.fstat(descriptor).st_size
        beginning = stream.read(4096)
        mime = _image_type(beginning) if encoding == "auto" else ""
        if mime:
            if size > MAX_BYTES:
                raise ToolError(f"{path} is a picture of {size} bytes; read_file shows up to {MAX_BYTES}")
            stream.seek(0)
            data = stream.read(MAX_BYTES)
            return ToolCallResult(
                f"{path}: {mime}, {size} bytes", images=[(data, mime)], structured=_path_and_size(path, size)
            )
        if encoding == "base64":
            return _read_bytes(stream, path, size, start_byte, bytes or MAX_BYTES // 8)
        if b"\0" in beginning and encoding == "auto":
            raise ToolError(f"{path} is not text but {size} bytes of binary data; read it with encoding base64")
        stream.seek(0)
        return _read_lines(stream, path, size, start_line, lines)


def _open_regular(path: str) -> int:
    # Non-blocking, because opening a pipe would wait for a writer.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        if stat.S_ISDIR(mode):
            raise ToolError(f"{path} is a directory; use list_directory")
        raise ToolError(f"{path} is not a regular file")
    return descriptor


def _image_type(beginning: bytes) -> str:
    for magic, mime in _PICTURES:
        if beginning.startswith(magic):
            return mime
    return "image/webp" if beginning[:4] == b"RIFF" and beginning[8:12] == b"WEBP" else ""


def _read_bytes(stream: Any, path: str, size: int, start: int, count: int) -> ToolCallResult:
    stream.seek(start)
    data = stream.read(count)
    note = f"{path}: bytes {start} to {start + len(data)} of {size}, as base64"
    structured = {**_path_and_size(path, size), "start_byte": start, "bytes": len(data), "encoding": "base64"}
    return ToolCallResult(f"{note}\n{encode_base64(data)}", structured={**structured, "end": start + len(data) >= size})


def _read_lines(stream: Any, path: str, size: int, start: int, count: int | None) -> ToolCallResult:
    found, last, complete = _select_lines(stream, start, count)
    text = found.decode("utf-8", "replace")
    structured = {**_path_and_size(path, size), "start_line": start, "lines": last - start + 1, "end": complete}
    if found and "\ufffd" in text and not _is_text(found):
        structured["note"] = "bytes that are not UTF-8 are shown as \ufffd"
    if start > 1 and last < start:
        raise ToolError(f"{path} has {last} lines; start_line {start} is past its end")
    if complete:
        return ToolCallResult(text, structured=structured)
    more = f"[lines {start} to {last} of a file of {size} bytes; continue with start_line {last + 1}]"
    return ToolCallResult(f"{text}\n{more}", structured=structured)


def _select_lines(stream: Any, start: int, count: int | None) -> tuple[bytes, int, bool]:
    """Return the lines from `start`, the number of the last one, and whether the file ends there."""
    selected: list[bytes] = []
    number, size, scanned = 1, 0, 0
    limit = MAX_TEXT
    for piece, ends in _line_pieces(stream):
        scanned += len(piece)
        if number >= start:
            if count is not None and number >= start + count:
                return b"".join(selected), number - 1, False
            if size + len(piece) > limit:
                selected.append(piece[: limit - size] if not selected else b"")
                return b"".join(selected), number if size == 0 else number - 1, False
            selected.append(piece)
            size += len(piece)
        elif scanned > MAX_SCAN:
            raise ToolError(f"line {start} is more than {MAX_SCAN} bytes into the file; use sed or tail in the shell")
        if ends:
            number += 1
    return b"".join(selected), number - 1 if not selected or selected[-1].endswith(b"\n") else number, True


def _line_pieces(stream: Any) -> Iterator[tuple[bytes, bool]]:
    """Yield a file's lines with True; a very long line comes in pieces, of which only the last has True."""
    pending = b""
    while data := stream.read(_BLOCK):
        *whole, pending = (pending + data).split(b"\n")
        for line in whole:
            yield line + b"\n", True
        if len(pending) > _BLOCK:
            yield pending, False
            pending = b""
    if pending:
        yield pending, True


def _is_text(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        return error.end >= len(data) and error.reason == "unexpected end of data"
    return True


def _path_and_size(path: str, size: int) -> dict[str, Any]:
    return {"path": replace_surrogates(path), "size": size}


def write_file(context: ToolContext, path: str, content: str, encoding: str, append: bool) -> ToolCallResult:
    given, path = path, context.absolute_path(path)
    shown = context.display_path(path, given)
    data = _decode_base64(content) if encoding == "base64" else content.encode("utf-8", "surrogateescape")
    if os.path.isdir(path):
        raise ToolError(f"{shown} is a directory")
    existed = os.path.lexists(path)
    if append:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "ab") as stream:
            stream.write(data)
    else:
        write_file_atomically(path, data)
    size = os.stat(path).st_size
    verb = "appended" if append and existed else "wrote"
    structured = {"path": replace_surrogates(shown), "bytes": len(data), "size": size, "created": not existed}
    return ToolCallResult(
        f"{verb} {len(data)} bytes to {shown}", structured=structured, files=[replace_surrogates(path)]
    )


def _decode_base64(content: str) -> bytes:
    from binascii import Error, a2b_base64

    try:
        data = "".join(content.split()).encode("ascii")
        if data.rstrip(b"=").translate(None, _BASE64):
            raise ToolError("the content is not base64: only A-Z, a-z, 0-9, + and / are allowed")
        return a2b_base64(data)
    except (Error, UnicodeEncodeError) as error:
        raise ToolError(f"the content is not base64: {error}") from None


def write_file_atomically(path: str, data: bytes) -> None:
    """Write a file atomically; a symbolic link is followed to its target."""
    from ...files.atomic_file import AtomicFile
    from ...files.paths import ResolvedPath

    path = os.path.realpath(path)
    if os.path.exists(path) and not os.path.isfile(path):
        raise ToolError(f"{path} is not a regular file")
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with AtomicFile(ResolvedPath(None, path, path)) as target:
        target.write(data)
        target.commit()


def list_directory(context: ToolContext, path: str, depth: int) -> ToolCallResult:
    path = context.absolute_path(path)
    entries: list[dict[str, Any]] = []
    complete = _collect_entries(path, "", depth, entries)
    lines = [_entry_line(entry) for entry in entries]
    if not complete:
        lines.append(f"[only the first {MAX_ENTRIES} entries]")
    text = "\n".join(lines) or f"{path} is empty"
    return ToolCallResult(text, structured={"path": replace_surrogates(path), "entries": entries, "complete": complete})


def _collect_entries(root: str, below: str, depth: int, entries: list[dict[str, Any]]) -> bool:
    """Append a directory's entries, each directory before its contents; False when there are too many."""
    names = []
    with os.scandir(os.path.join(root, below)) as found:
        for entry in found:
            names.append(entry.name)
            if len(names) > 100_000:
                return False
    for name in sorted(names):
        if len(entries) >= MAX_ENTRIES:
            return False
        relative = os.path.join(below, name)
        full = os.path.join(root, relative)
        try:
            status = os.lstat(full)
        except OSError:
            continue
        kind = _entry_kind(status.st_mode)
        document = {
            "name": replace_surrogates(relative),
            "kind": kind,
            "size": status.st_size,
            "modified": status.st_mtime,
        }
        if kind == "link":
            try:
                document["target"] = replace_surrogates(os.readlink(full))
            except OSError:
                pass
        entries.append(document)
        if kind == "directory" and depth > 1:
            try:
                if not _collect_entries(root, relative, depth - 1, entries):
                    return False
            except PermissionError:
                document["note"] = "permission denied"
    return True


def _entry_kind(mode: int) -> str:
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "directory"
    return "link" if stat.S_ISLNK(mode) else "special"


def _entry_line(entry: dict[str, Any]) -> str:
    name, kind = str(entry["name"]), entry["kind"]
    if kind == "directory":
        return name + "/"
    if kind == "link":
        return f"{name} -> {entry.get('target', '?')}"
    return f"{name}  {entry['size']} bytes" if kind == "file" else f"{name}  (special)"


def create_directory(context: ToolContext, path: str) -> ToolCallResult:
    given, path = path, context.absolute_path(path)
    shown = context.display_path(path, given)
    existed = os.path.isdir(path)
    if not existed and os.path.lexists(path):
        raise ToolError(f"{shown} already exists and is not a directory")
    os.makedirs(path, exist_ok=True)
    text = f"{shown} already existed" if existed else f"created {shown}"
    return ToolCallResult(
        text, structured={"path": replace_surrogates(shown), "created": not existed}, files=[replace_surrogates(path)]
    )


def move_file(context: ToolContext, source: str, destination: str, overwrite: bool) -> ToolCallResult:
    given, source, target = source, context.absolute_path(source), context.absolute_path(destination)
    before = context.display_path(source, given)
    if not os.path.lexists(source):
        raise ToolError(f"no such file or directory: {before}")
    if os.path.isdir(target) and not os.path.islink(target):
        target = os.path.join(target, os.path.basename(source))
    after = context.display_path(target, destination)
    if target == source:
        raise ToolError(f"{before} is already there")
    if target.startswith(source + "/"):
        raise ToolError(f"{before} cannot be moved into itself")
    if os.path.lexists(target) and (not overwrite or os.path.isdir(target)):
        advice = "; delete it first" if os.path.isdir(target) else "; pass overwrite to replace it"
        raise ToolError(f"{after} already exists{advice}")
    os.makedirs(os.path.dirname(target), exist_ok=True)
    try:
        os.rename(source, target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        import shutil

        shutil.move(source, target)
    structured = {"source": replace_surrogates(before), "destination": replace_surrogates(after)}
    return ToolCallResult(
        f"moved {before} to {after}",
        structured=structured,
        files=[replace_surrogates(source), replace_surrogates(target)],
    )


def delete_file(context: ToolContext, path: str, recursive: bool) -> ToolCallResult:
    given, path = path, context.absolute_path(path)
    shown = context.display_path(path, given)
    if path == "/":
        raise ToolError("the root directory cannot be deleted")
    if os.path.isdir(path) and not os.path.islink(path):
        if recursive:
            import shutil

            shutil.rmtree(path)
        else:
            try:
                os.rmdir(path)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
                raise ToolError(f"{shown} is not empty; pass recursive to delete its contents") from None
    else:
        os.unlink(path)
    return ToolCallResult(
        f"deleted {shown}", structured={"path": replace_surrogates(shown)}, files=[replace_surrogates(path)]
    )

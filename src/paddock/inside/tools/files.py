"""Tools for files: read, write, list, make, move and delete."""

from __future__ import annotations

import errno
import os
import stat

from .registry import Tool
from .results import MAX_TEXT, Result, ToolError, base64, readable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from .context import Context

MAX_BYTES = 8 * 1024 * 1024
"""Bytes that read_file hands out as base64, or as a picture, at once."""
MAX_SCAN = 1024 * 1024 * 1024
"""Bytes that read_file goes through to find a line."""
MAX_ENTRIES = 1000

_BLOCK = 256 * 1024
_PICTURES = ((b"\x89PNG\r\n\x1a\n", "image/png"), (b"\xff\xd8\xff", "image/jpeg"), (b"GIF8", "image/gif"))
_BASE64 = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_PATH = {"type": "string", "minLength": 1, "maxLength": 4096}


def tools(context: Context) -> list[Tool]:
    return [
        Tool(
            "read_file",
            "Read a file. Text comes as it is, by lines where it is long; PNG, JPEG, GIF and WebP come as pictures; "
            "any other bytes with encoding base64.",
            {
                "path": {**_PATH, "description": "Absolute, or relative to the working directory."},
                "start_line": {"type": "integer", "minimum": 1, "default": 1, "description": "First line, from 1."},
                "lines": {"type": "integer", "minimum": 1, "description": "How many lines; as many as fit if absent."},
                "encoding": {"type": "string", "enum": ["auto", "utf-8", "base64"], "default": "auto"},
                "start_byte": {"type": "integer", "minimum": 0, "default": 0, "description": "With base64 only."},
                "bytes": {"type": "integer", "minimum": 1, "maximum": MAX_BYTES, "description": "With base64 only."},
            },
            ["path"],
            read_file,
            read_only=True,
        ),
        Tool(
            "write_file",
            "Write a file, whole or not at all; directories on the way are made.",
            {
                "path": _PATH,
                "content": {"type": "string"},
                "encoding": {"type": "string", "enum": ["utf-8", "base64"], "default": "utf-8"},
                "append": {"type": "boolean", "default": False, "description": "Add to what is there."},
            },
            ["path", "content"],
            write_file,
        ),
        Tool(
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
        Tool(
            "create_directory",
            "Make a directory, and those on the way to it. One that is there already is fine.",
            {"path": _PATH},
            ["path"],
            create_directory,
        ),
        Tool(
            "move_file",
            "Move or rename a file or directory. Into a directory that exists it keeps its name.",
            {
                "source": _PATH,
                "destination": _PATH,
                "overwrite": {"type": "boolean", "default": False, "description": "Replace a file that is there."},
            },
            ["source", "destination"],
            move_file,
        ),
        Tool(
            "delete_file",
            "Delete a file, a link or an empty directory; with recursive a directory and all in it.",
            {"path": _PATH, "recursive": {"type": "boolean", "default": False}},
            ["path"],
            delete_file,
        ),
    ]


def read_file(
    context: Context,
    path: str,
    start_line: int,
    encoding: str,
    start_byte: int,
    lines: int | None = None,
    bytes: int | None = None,
) -> Result:
    path = context.path(path)
    descriptor = _open_regular(path)
    with open(descriptor, "rb", buffering=0) as stream:
        size = os.fstat(descriptor).st_size
        beginning = stream.read(4096)
        mime = _picture(beginning) if encoding == "auto" else ""
        if mime:
            if size > MAX_BYTES:
                raise ToolError(f"{path} is a picture of {size} bytes; read_file shows up to {MAX_BYTES}")
            stream.seek(0)
            data = stream.read(MAX_BYTES)
            return Result(f"{path}: {mime}, {size} bytes", images=[(data, mime)], structured=_about(path, size))
        if encoding == "base64":
            return _read_bytes(stream, path, size, start_byte, bytes or MAX_BYTES // 8)
        if b"\0" in beginning and encoding == "auto":
            raise ToolError(f"{path} is not text but {size} bytes of data; read it with encoding base64")
        stream.seek(0)
        return _read_lines(stream, path, size, start_line, lines)


def _open_regular(path: str) -> int:
    # Without waiting, because a pipe in a file's place would never open.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        if stat.S_ISDIR(mode):
            raise ToolError(f"{path} is a directory; list_directory shows what is in it")
        raise ToolError(f"{path} is not a regular file")
    return descriptor


def _picture(beginning: bytes) -> str:
    for magic, mime in _PICTURES:
        if beginning.startswith(magic):
            return mime
    return "image/webp" if beginning[:4] == b"RIFF" and beginning[8:12] == b"WEBP" else ""


def _read_bytes(stream: Any, path: str, size: int, start: int, count: int) -> Result:
    stream.seek(start)
    data = stream.read(count)
    note = f"{path}: bytes {start} to {start + len(data)} of {size}, as base64"
    structured = {**_about(path, size), "start_byte": start, "bytes": len(data), "encoding": "base64"}
    return Result(f"{note}\n{base64(data)}", structured={**structured, "end": start + len(data) >= size})


def _read_lines(stream: Any, path: str, size: int, start: int, count: int | None) -> Result:
    found, last, complete = _lines(stream, start, count)
    text = found.decode("utf-8", "replace")
    structured = {**_about(path, size), "start_line": start, "lines": last - start + 1, "end": complete}
    if found and "\ufffd" in text and not _is_text(found):
        structured["note"] = "bytes that are not UTF-8 are shown as \ufffd"
    if start > 1 and last < start:
        raise ToolError(f"{path} has {last} lines; start_line {start} is past its end")
    if complete:
        return Result(text, structured=structured)
    more = f"[lines {start} to {last} of a file of {size} bytes; go on with start_line {last + 1}]"
    return Result(f"{text}\n{more}", structured=structured)


def _lines(stream: Any, start: int, count: int | None) -> tuple[bytes, int, bool]:
    """Return the bytes of the lines from `start`, the number of the last, and whether the file ends there."""
    kept: list[bytes] = []
    number, size, scanned = 1, 0, 0
    limit = MAX_TEXT
    for piece, ends in _pieces(stream):
        scanned += len(piece)
        if number >= start:
            if count is not None and number >= start + count:
                return b"".join(kept), number - 1, False
            if size + len(piece) > limit:
                kept.append(piece[: limit - size] if not kept else b"")
                return b"".join(kept), number if size == 0 else number - 1, False
            kept.append(piece)
            size += len(piece)
        elif scanned > MAX_SCAN:
            raise ToolError(f"line {start} is more than {MAX_SCAN} bytes into the file; use sed or tail in the shell")
        if ends:
            number += 1
    return b"".join(kept), number - 1 if not kept or kept[-1].endswith(b"\n") else number, True


def _pieces(stream: Any) -> Iterator[tuple[bytes, bool]]:
    """Yield a file as lines; a line that is very long comes in several pieces, of which the last ends it."""
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


def _about(path: str, size: int) -> dict[str, Any]:
    return {"path": readable(path), "size": size}


def write_file(context: Context, path: str, content: str, encoding: str, append: bool) -> Result:
    given, path = path, context.path(path)
    shown = context.shown(path, given)
    data = _decoded(content) if encoding == "base64" else content.encode("utf-8", "surrogateescape")
    if os.path.isdir(path):
        raise ToolError(f"{shown} is a directory")
    existed = os.path.lexists(path)
    if append:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "ab") as stream:
            stream.write(data)
    else:
        write_bytes(path, data)
    size = os.stat(path).st_size
    verb = "appended" if append and existed else "wrote"
    structured = {"path": readable(shown), "bytes": len(data), "size": size, "created": not existed}
    return Result(f"{verb} {len(data)} bytes to {shown}", structured=structured, files=[readable(path)])


def _decoded(content: str) -> bytes:
    from binascii import Error, a2b_base64

    try:
        data = "".join(content.split()).encode("ascii")
        if data.rstrip(b"=").translate(None, _BASE64):
            raise ToolError("the content is not base64: it has other characters than A-Z, a-z, 0-9, + and /")
        return a2b_base64(data)
    except (Error, UnicodeEncodeError) as error:
        raise ToolError(f"the content is not base64: {error}") from None


def write_bytes(path: str, data: bytes) -> None:
    """Write a file whole or not at all, through a link to what it points to."""
    from ..places import Place
    from ..replacing import AtomicFile

    path = os.path.realpath(path)
    if os.path.exists(path) and not os.path.isfile(path):
        raise ToolError(f"{path} is not a regular file")
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with AtomicFile(Place(None, path, path)) as target:
        target.write(data)
        target.commit()


def list_directory(context: Context, path: str, depth: int) -> Result:
    path = context.path(path)
    entries: list[dict[str, Any]] = []
    complete = _collect(path, "", depth, entries)
    lines = [_line(entry) for entry in entries]
    if not complete:
        lines.append(f"[only the first {MAX_ENTRIES} entries]")
    text = "\n".join(lines) or f"{path} is empty"
    return Result(text, structured={"path": readable(path), "entries": entries, "complete": complete})


def _collect(root: str, below: str, depth: int, entries: list[dict[str, Any]]) -> bool:
    """Add what a directory holds, each directory right before its contents; False when there is too much."""
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
        kind = _kind(status.st_mode)
        described = {"name": readable(relative), "kind": kind, "size": status.st_size, "modified": status.st_mtime}
        if kind == "link":
            try:
                described["target"] = readable(os.readlink(full))
            except OSError:
                pass
        entries.append(described)
        if kind == "directory" and depth > 1:
            try:
                if not _collect(root, relative, depth - 1, entries):
                    return False
            except PermissionError:
                described["note"] = "not allowed to look into it"
    return True


def _kind(mode: int) -> str:
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "directory"
    return "link" if stat.S_ISLNK(mode) else "special"


def _line(entry: dict[str, Any]) -> str:
    name, kind = str(entry["name"]), entry["kind"]
    if kind == "directory":
        return name + "/"
    if kind == "link":
        return f"{name} -> {entry.get('target', '?')}"
    return f"{name}  {entry['size']} bytes" if kind == "file" else f"{name}  (special)"


def create_directory(context: Context, path: str) -> Result:
    given, path = path, context.path(path)
    shown = context.shown(path, given)
    existed = os.path.isdir(path)
    if not existed and os.path.lexists(path):
        raise ToolError(f"{shown} is there already and is not a directory")
    os.makedirs(path, exist_ok=True)
    text = f"{shown} was there already" if existed else f"made {shown}"
    return Result(text, structured={"path": readable(shown), "created": not existed}, files=[readable(path)])


def move_file(context: Context, source: str, destination: str, overwrite: bool) -> Result:
    given, source, target = source, context.path(source), context.path(destination)
    before = context.shown(source, given)
    if not os.path.lexists(source):
        raise ToolError(f"no such file or directory: {before}")
    if os.path.isdir(target) and not os.path.islink(target):
        target = os.path.join(target, os.path.basename(source))
    after = context.shown(target, destination)
    if target == source:
        raise ToolError(f"{before} is there already")
    if target.startswith(source + "/"):
        raise ToolError(f"{before} cannot be moved into itself")
    if os.path.lexists(target) and (not overwrite or os.path.isdir(target)):
        advice = "; delete it first" if os.path.isdir(target) else "; pass overwrite to replace it"
        raise ToolError(f"{after} is there already{advice}")
    os.makedirs(os.path.dirname(target), exist_ok=True)
    try:
        os.rename(source, target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        import shutil

        shutil.move(source, target)
    structured = {"source": readable(before), "destination": readable(after)}
    return Result(f"moved {before} to {after}", structured=structured, files=[readable(source), readable(target)])


def delete_file(context: Context, path: str, recursive: bool) -> Result:
    given, path = path, context.path(path)
    shown = context.shown(path, given)
    if path == "/":
        raise ToolError("the root directory stays")
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
                raise ToolError(f"{shown} is not empty; pass recursive to delete all in it") from None
    else:
        os.unlink(path)
    return Result(f"deleted {shown}", structured={"path": readable(shown)}, files=[readable(path)])

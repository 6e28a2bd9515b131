"""Handlers for files and directories: metadata, move, permissions, search, replace, delete."""

from __future__ import annotations

import errno
import json
import os
import re
import stat

from ..daemon import Daemon
from ..errors import invalid_body_error, missing_query_error
from ..files.atomic_file import AtomicFile
from ..files.directory_trees import compile_glob, remove_tree, walk_directory_tree
from ..files.file_attributes import FileAttributes, file_metadata_from_status, printable_path, read_file_metadata
from ..files.paths import PathResolver, ResolvedPath
from ..http.http11 import ChunkedWriter, HttpReply, IncomingRequest, StreamingReply, json_reply
from ..http.json_fields import required_json_field

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any


def path_resolver_for(daemon: Daemon, request: IncomingRequest) -> PathResolver:
    root = request.header("x-paddock-root").encode("latin-1").decode("utf-8", "surrogateescape")
    return PathResolver(root, daemon.environment.cwd)


def get_file_info(daemon: Daemon, request: IncomingRequest) -> HttpReply:
    resolver = path_resolver_for(daemon, request)
    found = {}
    for path in _query_paths(request):
        with resolver.resolve(path, follow=False) as resolved:
            found[printable_path(path)] = read_file_metadata(resolved)
    return json_reply(found)


def delete_files(daemon: Daemon, request: IncomingRequest) -> HttpReply:
    resolver = path_resolver_for(daemon, request)
    for path in _query_paths(request):
        with resolver.resolve(path, follow=False) as resolved:
            os.unlink(resolved.name, dir_fd=resolved.parent_fd)
    return HttpReply(200)


def move_files(daemon: Daemon, request: IncomingRequest) -> HttpReply:
    resolver = path_resolver_for(daemon, request)
    items = request.json()
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise invalid_body_error("the request body must be a list of {src, dest}")
    for item in items:
        source, target = required_json_field(item, "src", str), required_json_field(item, "dest", str)
        with (
            resolver.resolve(source, follow=False) as old,
            resolver.resolve(target, follow=False, make_parents=True) as new,
        ):
            old.stat()
            _rename(old, new)
    return HttpReply(200)


def set_permissions(daemon: Daemon, request: IncomingRequest) -> HttpReply:
    resolver = path_resolver_for(daemon, request)
    for path, document in _body_documents(request):
        attributes = FileAttributes(document)
        with resolver.resolve(path, follow=True) as resolved:
            descriptor = resolved.open(os.O_PATH)
            try:
                _apply_by_path(descriptor, attributes)
            finally:
                os.close(descriptor)
    return HttpReply(200)


def search_files(daemon: Daemon, request: IncomingRequest) -> HttpReply:
    path = request.query("path")
    if not path:
        raise missing_query_error("path")
    try:
        pattern = compile_glob(request.query("pattern") or "**")
    except re.error as error:
        raise invalid_body_error(f"the pattern is not a glob: {error}") from None
    found = _walk_below(path_resolver_for(daemon, request), path, None)
    return _stream_listing(entry for entry in found if not stat.S_ISDIR(entry[2].st_mode) and pattern.match(entry[0]))


def list_directory(daemon: Daemon, request: IncomingRequest) -> HttpReply:
    path = request.query("path")
    if not path:
        raise missing_query_error("path")
    depth = request.query_int("depth", 1)
    if not depth:
        raise invalid_body_error("depth must be at least 1")
    return _stream_listing(_walk_below(path_resolver_for(daemon, request), path, depth))


def replace_in_files(daemon: Daemon, request: IncomingRequest) -> HttpReply:
    daemon.disk_limit.check()
    resolver = path_resolver_for(daemon, request)
    results = {}
    for path, document in _body_documents(request):
        old, new = (
            required_json_field(document, "old", str).encode(),
            required_json_field(document, "new", str).encode(),
        )
        if not old:
            raise invalid_body_error("'old' must not be empty")
        with resolver.resolve(path, follow=True) as resolved:
            with os.fdopen(resolved.open(os.O_RDONLY), "rb") as stream:
                content = stream.read()
            count = content.count(old)
            if count:
                with AtomicFile(resolved) as target:
                    target.write(content.replace(old, new))
                    target.commit()
        results[printable_path(path)] = {"replacedCount": count}
    return json_reply(results)


def make_directories(daemon: Daemon, request: IncomingRequest) -> HttpReply:
    resolver = path_resolver_for(daemon, request)
    for path, document in _body_documents(request):
        attributes = FileAttributes(document)
        with resolver.resolve(path, follow=True, make_parents=True) as resolved:
            try:
                os.mkdir(resolved.name, 0o755, dir_fd=resolved.parent_fd)
            except FileExistsError:
                pass
            descriptor = resolved.open(os.O_RDONLY | os.O_DIRECTORY)
            try:
                attributes.apply(descriptor)
            finally:
                os.close(descriptor)
    return HttpReply(200)


def delete_directories(daemon: Daemon, request: IncomingRequest) -> HttpReply:
    resolver = path_resolver_for(daemon, request)
    for path in _query_paths(request):
        with resolver.resolve(path, follow=False) as resolved:
            if os.path.normpath(resolved.display_path) == "/" or resolved.name == ".":
                raise invalid_body_error(f"{path} cannot be removed")
            remove_tree(resolved.name, resolved.parent_fd)
    return HttpReply(200)


def _query_paths(request: IncomingRequest) -> list[str]:
    paths = request.query_values("path")
    if not paths:
        raise missing_query_error("path")
    return paths


def _body_documents(request: IncomingRequest) -> list[tuple[str, dict[str, Any]]]:
    documents = request.json_object()
    for path, document in documents.items():
        if not isinstance(document, dict):
            raise invalid_body_error(f"the value of {path!r} must be an object")
    return list(documents.items())


def _rename(old: ResolvedPath, new: ResolvedPath) -> None:
    try:
        os.rename(old.name, new.name, src_dir_fd=old.parent_fd, dst_dir_fd=new.parent_fd)
    except OSError as error:
        if error.errno != errno.EXDEV or old.parent_fd is not None:
            raise
        import shutil

        shutil.move(old.name, new.name)


def _apply_by_path(descriptor: int, attributes: FileAttributes) -> None:
    """Change a file through its O_PATH descriptor, which also works for files the daemon cannot read."""
    attributes.apply(f"/proc/self/fd/{descriptor}")


def _walk_below(resolver: PathResolver, path: str, depth: int | None) -> Iterator[tuple[str, str, os.stat_result]]:
    with resolver.resolve(path, follow=True) as resolved:
        directory = resolved.open(os.O_RDONLY | os.O_DIRECTORY)
        try:
            for relative, status in walk_directory_tree(directory, depth):
                yield relative, os.path.join(resolved.display_path, relative), status
        finally:
            os.close(directory)


def _stream_listing(found: Iterator[tuple[str, str, os.stat_result]]) -> HttpReply:
    """Stream a JSON array; the first entry is fetched before the reply starts, so that errors have a status."""
    first = next(found, None)
    if first is None:
        return json_reply([])

    def produce(chunks: ChunkedWriter) -> None:
        batch = "[" + json.dumps(file_metadata_from_status(first[1], first[2]))
        for _, shown, status in found:
            batch += ",\n" + json.dumps(file_metadata_from_status(shown, status))
            if len(batch) > 64 * 1024:
                chunks.send(batch.encode())
                batch = ""
        chunks.send((batch + "]").encode())

    return StreamingReply("application/json", produce)

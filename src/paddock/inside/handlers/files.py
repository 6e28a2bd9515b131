"""Files and directories: information, moving, permissions, search, replacement, removal."""

from __future__ import annotations

import errno
import json
import os
import re
import stat

from ..attributes import Attributes, describe, describe_place, printable
from ..box import Box
from ..errors import invalid, missing_query
from ..fields import required
from ..http import Chunks, Reply, Request, StreamReply, json_reply
from ..places import Place, Places
from ..replacing import AtomicFile
from ..trees import glob_matcher, remove_tree, walk

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any


def places_of(box: Box, request: Request) -> Places:
    root = request.header("x-paddock-root").encode("latin-1").decode("utf-8", "surrogateescape")
    return Places(root, box.environment.cwd)


def info(box: Box, request: Request) -> Reply:
    places = places_of(box, request)
    found = {}
    for path in _paths(request):
        with places.find(path, follow=False) as place:
            found[printable(path)] = describe_place(place)
    return json_reply(found)


def delete(box: Box, request: Request) -> Reply:
    places = places_of(box, request)
    for path in _paths(request):
        with places.find(path, follow=False) as place:
            os.unlink(place.name, dir_fd=place.parent)
    return Reply(200)


def move(box: Box, request: Request) -> Reply:
    places = places_of(box, request)
    items = request.json()
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise invalid("the request body must be a list of {src, dest}")
    for item in items:
        source, target = required(item, "src", str), required(item, "dest", str)
        with places.find(source, follow=False) as old, places.find(target, follow=False, make_parents=True) as new:
            old.stat()
            _rename(old, new)
    return Reply(200)


def permissions(box: Box, request: Request) -> Reply:
    places = places_of(box, request)
    for path, document in _documents(request):
        wanted = Attributes(document)
        with places.find(path, follow=True) as place:
            descriptor = place.open(os.O_PATH)
            try:
                _apply_by_path(descriptor, wanted)
            finally:
                os.close(descriptor)
    return Reply(200)


def search(box: Box, request: Request) -> Reply:
    path = request.query("path")
    if not path:
        raise missing_query("path")
    try:
        pattern = glob_matcher(request.query("pattern") or "**")
    except re.error as error:
        raise invalid(f"the pattern is not a glob: {error}") from None
    found = _below(places_of(box, request), path, None)
    return _listing(entry for entry in found if not stat.S_ISDIR(entry[2].st_mode) and pattern.match(entry[0]))


def list_directory(box: Box, request: Request) -> Reply:
    path = request.query("path")
    if not path:
        raise missing_query("path")
    depth = request.query_int("depth", 1)
    if not depth:
        raise invalid("depth must be at least 1")
    return _listing(_below(places_of(box, request), path, depth))


def replace(box: Box, request: Request) -> Reply:
    box.disk_limit.check()
    places = places_of(box, request)
    results = {}
    for path, document in _documents(request):
        old, new = required(document, "old", str).encode(), required(document, "new", str).encode()
        if not old:
            raise invalid("'old' must not be empty")
        with places.find(path, follow=True) as place:
            with os.fdopen(place.open(os.O_RDONLY), "rb") as stream:
                content = stream.read()
            count = content.count(old)
            if count:
                with AtomicFile(place) as target:
                    target.write(content.replace(old, new))
                    target.commit()
        results[printable(path)] = {"replacedCount": count}
    return json_reply(results)


def make_directories(box: Box, request: Request) -> Reply:
    places = places_of(box, request)
    for path, document in _documents(request):
        wanted = Attributes(document)
        with places.find(path, follow=True, make_parents=True) as place:
            try:
                os.mkdir(place.name, 0o755, dir_fd=place.parent)
            except FileExistsError:
                pass
            descriptor = place.open(os.O_RDONLY | os.O_DIRECTORY)
            try:
                wanted.apply(descriptor)
            finally:
                os.close(descriptor)
    return Reply(200)


def delete_directories(box: Box, request: Request) -> Reply:
    places = places_of(box, request)
    for path in _paths(request):
        with places.find(path, follow=False) as place:
            if os.path.normpath(place.shown) == "/" or place.name == ".":
                raise invalid(f"{path} cannot be removed")
            remove_tree(place.name, place.parent)
    return Reply(200)


def _paths(request: Request) -> list[str]:
    paths = request.query_all("path")
    if not paths:
        raise missing_query("path")
    return paths


def _documents(request: Request) -> list[tuple[str, dict[str, Any]]]:
    documents = request.json_object()
    for path, document in documents.items():
        if not isinstance(document, dict):
            raise invalid(f"the value of {path!r} must be an object")
    return list(documents.items())


def _rename(old: Place, new: Place) -> None:
    try:
        os.rename(old.name, new.name, src_dir_fd=old.parent, dst_dir_fd=new.parent)
    except OSError as error:
        if error.errno != errno.EXDEV or old.parent is not None:
            raise
        import shutil

        shutil.move(old.name, new.name)


def _apply_by_path(descriptor: int, wanted: Attributes) -> None:
    """Change a file that we may own but not read: through its O_PATH descriptor."""
    wanted.apply(f"/proc/self/fd/{descriptor}")


def _below(places: Places, path: str, depth: int | None) -> Iterator[tuple[str, str, os.stat_result]]:
    with places.find(path, follow=True) as place:
        directory = place.open(os.O_RDONLY | os.O_DIRECTORY)
        try:
            for relative, status in walk(directory, depth):
                yield relative, os.path.join(place.shown, relative), status
        finally:
            os.close(directory)


def _listing(found: Iterator[tuple[str, str, os.stat_result]]) -> Reply:
    """Stream a JSON array; the first entry is fetched now so that errors still have a status."""
    first = next(found, None)
    if first is None:
        return json_reply([])

    def produce(chunks: Chunks) -> None:
        batch = "[" + json.dumps(describe(first[1], first[2]))
        for _, shown, status in found:
            batch += ",\n" + json.dumps(describe(shown, status))
            if len(batch) > 64 * 1024:
                chunks.send(batch.encode())
                batch = ""
        chunks.send((batch + "]").encode())

    return StreamReply("application/json", produce)

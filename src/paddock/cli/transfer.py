"""Moves the bytes of `cp`, in streams: nothing is ever held whole."""

from __future__ import annotations

import asyncio
import os
import queue
import tempfile
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path, PurePosixPath
from typing import Any

from paddock.cli.archive import Pieces, Source, Unpacker, pack
from paddock.cli.client import Client
from paddock.cli.failure import CliError, Refused

Report = Callable[[int], None]
_AHEAD = 16
_KIND = 'if [ -d "$1" ]; then exit 10; elif [ -e "$1" ]; then exit 11; else exit 12; fi'


async def upload(client: Client, sandbox_id: str, source: Path, target: str, report: Report) -> int:
    """Copy a file or directory of the host into a box. Returns how many bytes were sent."""
    contents = str(source).endswith("/.") or source == Path(".") or source == Path("..")
    resolved = source.resolve() if contents or source.is_symlink() else source.absolute()
    kind = await kind_of(client, sandbox_id, target)
    if resolved.is_dir():
        if kind == "file":
            raise CliError(f"{target} is a file in the sandbox; a directory cannot go there")
        into = target if contents or kind is None else str(PurePosixPath(target) / source.absolute().name)
        directory, name = into, "."
    elif kind == "directory" or target.endswith("/"):
        directory, name = target, source.absolute().name
    else:
        directory, name = str(PurePosixPath(target).parent), PurePosixPath(target).name
    sent = 0

    async def counted() -> AsyncIterator[bytes]:
        nonlocal sent
        async for piece in _packed(resolved, name):
            sent += len(piece)
            report(sent)
            yield piece

    path = client.box(sandbox_id, "/archive")
    async with client.request("PUT", path, params={"path": directory}, data=counted()):
        pass
    return sent


async def download(
    client: Client,
    sandbox_id: str,
    source: str,
    target: Path,
    report: Report,
    *,
    skip_unsafe: bool,
    skipped: Callable[[str], None],
) -> tuple[int, str]:
    """Copy a file or directory of a box to the host. Returns how many bytes came, and where they are."""
    kind = await kind_of(client, sandbox_id, source)
    if kind is None:
        raise CliError(f"there is no {source} in the sandbox")
    name = PurePosixPath(source).name
    if kind == "file":
        place = target / name if target.is_dir() else target
        return await _download_file(client, sandbox_id, source, place, report), str(place)
    contents = source.endswith("/.") or source == "/"
    place = target if contents or not target.is_dir() else target / name
    if place.exists() and not place.is_dir():
        raise CliError(f"{place} is a file here; a directory cannot go there")
    _make_directory(place)
    unpacker = Unpacker(place, skip_unsafe=skip_unsafe, skipped=skipped)
    query = {"path": source, "gzip": "0"}
    async with client.request("GET", client.box(sandbox_id, "/archive"), params=query) as answer:
        return await _unpacked(answer.content.iter_any(), unpacker, report), str(place)


async def kind_of(client: Client, sandbox_id: str, path: str) -> str | None:
    """`file`, `directory`, or None for what does not exist, as seen in the box through all links."""
    try:
        info = await client.get(client.box(sandbox_id, "/files/info"), path=path)
    except Refused as error:
        if error.status == 404:
            return None
        raise
    kind = str(next(iter(info.values()))["type"])
    if kind != "symlink":
        return "directory" if kind == "directory" else "file"
    from paddock.cli.execution import Execution, Sink

    look = {"argv": ["/bin/sh", "-c", _KIND, "sh", path]}
    ending = await Execution(client, sandbox_id, Sink(False)).run_attached(look)
    return {10: "directory", 11: "file"}.get(ending.exit_code)


async def _download_file(client: Client, sandbox_id: str, source: str, place: Path, report: Report) -> int:
    info = await client.get(client.box(sandbox_id, "/files/info"), path=source)
    described: dict[str, Any] = next(iter(info.values()))
    mode = int(str(described["mode"]), 8) & 0o777 if described["type"] == "file" else 0o644
    if not place.parent.is_dir():
        raise CliError(f"there is no directory {place.parent} here")
    received = 0
    async with client.request("GET", client.box(sandbox_id, "/files/download"), params={"path": source}) as answer:
        descriptor, partial = tempfile.mkstemp(dir=place.parent, prefix=f".{place.name}.")
        try:
            with os.fdopen(descriptor, "wb") as file:
                async for piece in answer.content.iter_any():
                    file.write(piece)
                    received += len(piece)
                    report(received)
                os.fchmod(file.fileno(), mode)
            os.replace(partial, place)
        except BaseException:
            os.unlink(partial)
            raise
    return received


async def _packed(source: Path, name: str) -> AsyncIterator[bytes]:
    """A tar stream made in a thread that waits when it is ahead."""
    pieces: queue.Queue[bytes | BaseException | None] = queue.Queue(_AHEAD)
    stopped = threading.Event()

    def put(piece: bytes | BaseException | None) -> None:
        while not stopped.is_set():
            try:
                return pieces.put(piece, timeout=0.2)
            except queue.Full:
                continue
        raise CliError("stopped")

    def work() -> None:
        try:
            pack(source, name, Pieces(put))  # type: ignore[arg-type]
            put(None)
        except BaseException as error:
            if not stopped.is_set():
                put(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        while True:
            piece = await asyncio.to_thread(pieces.get)
            if piece is None:
                return
            if isinstance(piece, BaseException):
                raise piece
            yield piece
    finally:
        stopped.set()


async def _unpacked(pieces: AsyncIterator[bytes], unpacker: Unpacker, report: Report) -> int:
    """Unpack in a thread what comes in here; the stream waits when the thread is behind."""
    waiting: queue.Queue[bytes] = queue.Queue(_AHEAD)
    broken = threading.Event()

    def give() -> bytes:
        piece = waiting.get()
        if broken.is_set():
            raise CliError("the connection broke off in the middle of the archive")
        return piece

    received = 0
    work = asyncio.ensure_future(asyncio.to_thread(unpacker.unpack, Source(give)))  # type: ignore[arg-type]
    try:
        async for piece in pieces:
            while not work.done():
                try:
                    waiting.put_nowait(piece)
                    break
                except queue.Full:
                    await asyncio.wait([work], timeout=0.02)
            if work.done():
                break
            received += len(piece)
            report(received)
    except BaseException:
        broken.set()
        raise
    finally:
        # The reader takes an empty piece for the end, or sees that it is `broken`.
        while not work.done():
            try:
                waiting.put_nowait(b"")
            except queue.Full:
                pass
            await asyncio.wait([work], timeout=0.02)
        if broken.is_set():
            work.exception()
    work.result()
    return received


def _make_directory(place: Path) -> None:
    try:
        place.mkdir(exist_ok=True)
    except FileNotFoundError:
        raise CliError(f"there is no directory {place.parent} here") from None

"""Moves the bytes of `cp`, in streams: nothing is ever held whole."""

from __future__ import annotations

import asyncio
import os
import queue
import secrets
import shutil
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from paddock.cli.archive import Pieces, Source, Unpacker, pack, tree_size
from paddock.cli.client import Client
from paddock.cli.execution import Execution, Sink, content
from paddock.cli.failure import CliError, Refused
from paddock.model.file_names import escape_name

Report = Callable[[int, int | None], None]
"""Told how many bytes have gone, and of how many if that is known."""
_AHEAD = 16
_PREFIX = 'printf %s "${WINEPREFIX:-}"'
_KIND = 'if [ -d "$1" ]; then exit 10; elif [ -e "$1" ]; then exit 11; else exit 12; fi'


@dataclass(frozen=True)
class Upload:
    """What is packed, under which name, and the directory of the box it is unpacked in."""

    source: Path
    name: str
    directory: str


def check_source(text: str) -> None:
    if not os.path.lexists(text):
        raise CliError(f"there is no {text} here")


def plan_upload(text: str, target: str, kind: str | None) -> Upload:
    """Where a path of the host goes, given what the target is in the box now."""
    contents = means_contents(text)
    path = Path(text)
    # A link that is named is followed; those inside a directory are copied as links.
    source = path.resolve() if contents or path.is_symlink() else path.absolute()
    name = Path(os.path.abspath(text)).name
    if source.is_dir():
        if kind == "file":
            raise CliError(f"{target} is a file in the sandbox; a directory cannot go there")
        return Upload(source, ".", target if contents or kind is None else str(PurePosixPath(target) / name))
    if kind == "directory" or target.endswith("/"):
        return Upload(source, name, target)
    return Upload(source, PurePosixPath(target).name, str(PurePosixPath(target).parent))


def plan_download(source: str, kind: str, text: str) -> Path:
    """Where a path of the box goes on the host. Raises `CliError` if it cannot."""
    target = Path(text)
    inside = target.is_dir() and not (kind == "directory" and means_contents(source))
    place = target / escape_name(PurePosixPath(source).name) if inside else target
    if not place.parent.is_dir():
        raise CliError(f"there is no directory {place.parent} here")
    if kind == "directory" and place.exists() and not place.is_dir():
        raise CliError(f"{place} is a file here; a directory cannot go there")
    if kind == "file" and place.is_dir():
        raise CliError(f"{place} is a directory here; a file cannot go there")
    if kind == "file" and text.endswith("/") and not target.is_dir():
        raise CliError(f"there is no directory {text} here")
    return place


def means_contents(path: str) -> bool:
    """Whether a directory's content is meant and not the directory itself: `DIR/.`, `.`, `..` and `/`."""
    return path in (".", "..", "/") or path.endswith(("/.", "/.."))


async def upload(client: Client, sandbox_id: str, source: str, target: str, report: Report) -> int:
    """Copy a file or directory of the host into a box. Returns how many bytes its files have."""
    plan = plan_upload(source, target, await kind_of(client, sandbox_id, target))
    packer = _Packer(plan)
    total = await asyncio.to_thread(tree_size, plan.source)

    async def counted() -> AsyncIterator[bytes]:
        sent = 0
        async for piece in packer.pieces():
            sent += len(piece)
            report(sent, max(sent, total))
            yield piece

    path = client.box(sandbox_id, "/archive")
    async with client.request("PUT", path, params={"path": plan.directory}, data=counted()):
        pass
    return packer.total


async def download(
    client: Client,
    sandbox_id: str,
    source: str,
    target: str,
    report: Report,
    *,
    skip_unsafe: bool,
    skipped: Callable[[str], None],
) -> tuple[int, str]:
    """Copy a file or directory of a box to the host. Returns how many bytes its files have, and where they are."""
    kind = await kind_of(client, sandbox_id, source)
    if kind is None:
        raise CliError(f"there is no {source} in the sandbox")
    place = plan_download(source, kind, target)
    name = PurePosixPath(source).name
    if place.name != name and place.name == escape_name(name):
        skipped(f"{name!r} is saved as {place.name!r}")
    if kind == "file":
        return await _download_file(client, sandbox_id, source, place, report), str(place)
    with _filled(place) as directory:
        unpacker = Unpacker(directory, skip_unsafe=skip_unsafe, skipped=skipped)
        query = {"path": source}
        async with client.request("GET", client.box(sandbox_id, "/archive"), params=query) as answer:
            count = await _unpacked(answer.content.iter_any(), unpacker, report)
    return count, str(place)


@contextmanager
def _filled(place: Path) -> Iterator[Path]:
    """A directory to fill: a new one gets its name when it is whole, one that is there keeps what has come so far."""
    if place.is_dir():
        try:
            yield place
        except CliError as error:
            error.hint = f"what came before it is in {place}" + (f"; {error.hint}" if error.hint else "")
            raise
        return
    partial = place.with_name(f".{place.name}.{secrets.token_hex(4)}")
    partial.mkdir()
    try:
        yield partial
        partial.rename(place)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


async def between(
    client: Client, source: str, path: str, target: str, target_path: str, report: Report
) -> dict[str, Any]:
    """Have the server copy from one box to another. Returns what it says has arrived."""
    body = {"from": path, "to": {"sandbox": target, "path": target_path}}
    headers = {"Accept": "application/x-ndjson"}
    async with client.request("POST", f"/v1/sandboxes/{source}/move", json=body, headers=headers) as answer:
        async for documents in client.lines(answer):
            for document in documents:
                if "error" in document:
                    raise Refused(409, str(document["error"]["code"]), str(document["error"]["message"]))
                if "done" in document:
                    done: dict[str, Any] = document["done"]
                    return done
                report(int(document["moved"]), document.get("total"))
    raise CliError("the connection broke off before the copy had arrived")


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
    look = {"argv": ["/bin/sh", "-c", _KIND, "sh", path]}
    ending = await Execution(client, sandbox_id, Sink(False)).run_attached(look)
    return {10: "directory", 11: "file"}.get(ending.exit_code)


async def plain_path(client: Client, sandbox_id: str, path: str) -> str:
    """A path of a box as Linux has it, also where Windows programs run and it is written `C:\\x`."""
    if path.startswith("/"):
        return path
    found = _Collected()
    await Execution(client, sandbox_id, found).run_attached({"argv": ["/bin/sh", "-c", _PREFIX]})
    prefix = found.text()
    if not prefix.startswith("/"):
        raise CliError(f"this sandbox has no drive {path[:2]}; write a path that begins with /")
    drive, _, rest = path.partition(":")
    return f"{prefix}/dosdevices/{drive.lower()}:/" + rest[1:].replace("\\", "/")


class _Collected(Sink):
    """Keeps the little that a command of ours says."""

    def __init__(self) -> None:
        super().__init__(as_json=False)
        self._said = b""

    def write(self, documents: list[dict[str, Any]]) -> None:
        for document in documents:
            if document["type"] == "stdout" and len(self._said) < 4096:
                self._said += content(document)

    def text(self) -> str:
        return self._said.decode(errors="replace").strip()


async def _download_file(client: Client, sandbox_id: str, source: str, place: Path, report: Report) -> int:
    info = await client.get(client.box(sandbox_id, "/files/info"), path=source)
    described: dict[str, Any] = next(iter(info.values()))
    mode = int(str(described["mode"]), 8) & 0o777 if described["type"] == "file" else 0o644
    received = 0
    async with client.request("GET", client.box(sandbox_id, "/files/download"), params={"path": source}) as answer:
        descriptor, partial = tempfile.mkstemp(dir=place.parent, prefix=f".{place.name}.")
        try:
            with os.fdopen(descriptor, "wb") as file:
                async for piece in answer.content.iter_any():
                    file.write(piece)
                    received += len(piece)
                    report(received, answer.content_length)
                os.fchmod(file.fileno(), mode)
            os.replace(partial, place)
        except BaseException:
            os.unlink(partial)
            raise
    return received


class _Packer:
    """Makes a tar stream in a thread that waits when it is ahead."""

    def __init__(self, plan: Upload) -> None:
        self._plan = plan
        self._pieces: queue.Queue[bytes | BaseException | None] = queue.Queue(_AHEAD)
        self._stopped = threading.Event()
        self.total = 0

    async def pieces(self) -> AsyncIterator[bytes]:
        threading.Thread(target=self._work, daemon=True).start()
        try:
            while (piece := await asyncio.to_thread(self._pieces.get)) is not None:
                if isinstance(piece, BaseException):
                    raise piece
                yield piece
        finally:
            self._stopped.set()

    def _work(self) -> None:
        try:
            self.total = pack(self._plan.source, self._plan.name, Pieces(self._put))  # type: ignore[arg-type]
            self._put(None)
        except BaseException as error:
            if not self._stopped.is_set():
                self._put(error)

    def _put(self, piece: bytes | BaseException | None) -> None:
        while not self._stopped.is_set():
            try:
                return self._pieces.put(piece, timeout=0.2)
            except queue.Full:
                continue
        raise CliError("stopped")


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
            report(received, None)
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
    return unpacker.total

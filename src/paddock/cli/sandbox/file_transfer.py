"""Streams files between the host and sandboxes for `paddock sandbox cp`."""

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

from paddock.cli.connection.server_client import ServerClient
from paddock.cli.output.errors import CliError, RequestRefused
from paddock.cli.sandbox.remote_command import CommandOutputWriter, RemoteCommand, output_event_bytes
from paddock.cli.sandbox.tar_archive import CallbackReader, CallbackWriter, TarUnpacker, pack_tar, tree_size_estimate
from paddock.model.file_names import escape_file_name

ReportProgress = Callable[[int, int | None], None]
"""Receives the number of bytes copied, and the total if known."""
_MAX_QUEUED_CHUNKS = 16
_PRINT_WINE_PREFIX = 'printf %s "${WINEPREFIX:-}"'
_TEST_FILE_KIND = 'if [ -d "$1" ]; then exit 10; elif [ -e "$1" ]; then exit 11; else exit 12; fi'


@dataclass(frozen=True)
class UploadPlan:
    """A local source, its name in the archive, and the sandbox directory where it is unpacked."""

    source: Path
    name: str
    directory: str


def check_local_source_exists(text: str) -> None:
    if not os.path.lexists(text):
        raise CliError(f"{text}: no such file or directory")


def plan_upload(text: str, target: str, kind: str | None) -> UploadPlan:
    """Return where a local path goes in the sandbox, given the target's current file kind."""
    contents = names_directory_contents(text)
    path = Path(text)
    # A named link is followed; links inside a directory are copied as links.
    source = path.resolve() if contents or path.is_symlink() else path.absolute()
    name = Path(os.path.abspath(text)).name
    if source.is_dir():
        if kind == "file":
            raise CliError(f"{target} is a file in the sandbox; cannot replace it by a directory")
        return UploadPlan(source, ".", target if contents or kind is None else str(PurePosixPath(target) / name))
    if kind == "directory" or target.endswith("/"):
        return UploadPlan(source, name, target)
    return UploadPlan(source, PurePosixPath(target).name, str(PurePosixPath(target).parent))


def plan_download(source: str, kind: str, text: str) -> Path:
    """Return where a sandbox path goes on the host. Raises `CliError` if it cannot go there."""
    target = Path(text)
    into_directory = target.is_dir() and not (kind == "directory" and names_directory_contents(source))
    local_path = target / escape_file_name(PurePosixPath(source).name) if into_directory else target
    if not local_path.parent.is_dir():
        raise CliError(f"{local_path.parent}: no such directory")
    if kind == "directory" and local_path.exists() and not local_path.is_dir():
        raise CliError(f"{local_path} is a file; cannot replace it by a directory")
    if kind == "file" and local_path.is_dir():
        raise CliError(f"{local_path} is a directory; cannot replace it by a file")
    if kind == "file" and text.endswith("/") and not target.is_dir():
        raise CliError(f"{text}: no such directory")
    return local_path


def names_directory_contents(path: str) -> bool:
    """Return whether a path means a directory's content: `DIR/.`, `.`, `..` and `/`."""
    return path in (".", "..", "/") or path.endswith(("/.", "/.."))


async def upload_files(client: ServerClient, sandbox_id: str, source: str, target: str, report: ReportProgress) -> int:
    """Copy a local file or directory into a sandbox. Returns the number of bytes in files."""
    plan = plan_upload(source, target, await find_file_kind(client, sandbox_id, target))
    packer = _TarPacker(plan)
    total = await asyncio.to_thread(tree_size_estimate, plan.source)

    async def counted() -> AsyncIterator[bytes]:
        sent = 0
        async for piece in packer.pieces():
            sent += len(piece)
            report(sent, max(sent, total))
            yield piece

    path = client.daemon_path(sandbox_id, "/archive")
    async with client.request("PUT", path, params={"path": plan.directory}, data=counted()):
        pass
    return packer.total


async def download_files(
    client: ServerClient,
    sandbox_id: str,
    source: str,
    target: str,
    report: ReportProgress,
    *,
    skip_unsafe: bool,
    skipped: Callable[[str], None],
) -> tuple[int, str]:
    """Copy a file or directory of a sandbox to the host. Returns the number of bytes in files, and their path."""
    kind = await find_file_kind(client, sandbox_id, source)
    if kind is None:
        raise CliError(f"{source}: no such file or directory in the sandbox")
    local_path = plan_download(source, kind, target)
    name = PurePosixPath(source).name
    if local_path.name != name and local_path.name == escape_file_name(name):
        skipped(f"{name!r} is saved as {local_path.name!r}")
    if kind == "file":
        return await _download_file(client, sandbox_id, source, local_path, report), str(local_path)
    with _directory_to_fill(local_path) as directory:
        unpacker = TarUnpacker(directory, skip_unsafe=skip_unsafe, skipped=skipped)
        query = {"path": source}
        async with client.request("GET", client.daemon_path(sandbox_id, "/archive"), params=query) as answer:
            count = await _unpack_stream(answer.content.iter_any(), unpacker, report)
    return count, str(local_path)


@contextmanager
def _directory_to_fill(local_path: Path) -> Iterator[Path]:
    """Open a directory to unpack into: a new one is renamed when complete, an existing one is filled in place."""
    if local_path.is_dir():
        try:
            yield local_path
        except CliError as error:
            error.hint = f"files unpacked before the error are in {local_path}" + (
                f"; {error.hint}" if error.hint else ""
            )
            raise
        return
    partial = local_path.with_name(f".{local_path.name}.{secrets.token_hex(4)}")
    partial.mkdir()
    try:
        yield partial
        partial.rename(local_path)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


async def copy_between_sandboxes(
    client: ServerClient, source: str, path: str, target: str, target_path: str, report: ReportProgress
) -> dict[str, Any]:
    """Copy from one sandbox to another on the server. Returns the server's result."""
    body = {"from": path, "to": {"sandbox": target, "path": target_path}}
    headers = {"Accept": "application/x-ndjson"}
    async with client.request("POST", f"/v1/sandboxes/{source}/move", json=body, headers=headers) as answer:
        async for documents in client.json_lines(answer):
            for document in documents:
                if "error" in document:
                    raise RequestRefused(409, str(document["error"]["code"]), str(document["error"]["message"]))
                if "done" in document:
                    done: dict[str, Any] = document["done"]
                    return done
                report(int(document["moved"]), document.get("total"))
    raise CliError("the connection was lost before the copy was complete")


async def find_file_kind(client: ServerClient, sandbox_id: str, path: str) -> str | None:
    """Return `file`, `directory` or None if missing, following links inside the sandbox."""
    try:
        info = await client.get(client.daemon_path(sandbox_id, "/files/info"), path=path)
    except RequestRefused as error:
        if error.status == 404:
            return None
        raise
    kind = str(next(iter(info.values()))["type"])
    if kind != "symlink":
        return "directory" if kind == "directory" else "file"
    look = {"argv": ["/bin/sh", "-c", _TEST_FILE_KIND, "sh", path]}
    ending = await RemoteCommand(client, sandbox_id, CommandOutputWriter(False)).run_attached(look)
    return {10: "directory", 11: "file"}.get(ending.exit_code)


async def to_linux_path(client: ServerClient, sandbox_id: str, path: str) -> str:
    """Convert a sandbox path to a Linux path; Windows paths such as `C:\\x` are mapped to Wine's drives."""
    if path.startswith("/"):
        return path
    found = _OutputCollector()
    await RemoteCommand(client, sandbox_id, found).run_attached({"argv": ["/bin/sh", "-c", _PRINT_WINE_PREFIX]})
    prefix = found.text()
    if not prefix.startswith("/"):
        raise CliError(f"this sandbox has no drive {path[:2]}; use a path that starts with /")
    drive, _, rest = path.partition(":")
    return f"{prefix}/dosdevices/{drive.lower()}:/" + rest[1:].replace("\\", "/")


class _OutputCollector(CommandOutputWriter):
    """Collects a command's first 4 KiB of output."""

    def __init__(self) -> None:
        super().__init__(as_json=False)
        self._output = b""

    def write(self, documents: list[dict[str, Any]]) -> None:
        for document in documents:
            if document["type"] == "stdout" and len(self._output) < 4096:
                self._output += output_event_bytes(document)

    def text(self) -> str:
        return self._output.decode(errors="replace").strip()


async def _download_file(
    client: ServerClient, sandbox_id: str, source: str, local_path: Path, report: ReportProgress
) -> int:
    info = await client.get(client.daemon_path(sandbox_id, "/files/info"), path=source)
    described: dict[str, Any] = next(iter(info.values()))
    mode = int(str(described["mode"]), 8) & 0o777 if described["type"] == "file" else 0o644
    received = 0
    async with client.request(
        "GET", client.daemon_path(sandbox_id, "/files/download"), params={"path": source}
    ) as answer:
        descriptor, partial = tempfile.mkstemp(dir=local_path.parent, prefix=f".{local_path.name}.")
        try:
            with os.fdopen(descriptor, "wb") as file:
                async for piece in answer.content.iter_any():
                    file.write(piece)
                    received += len(piece)
                    report(received, answer.content_length)
                os.fchmod(file.fileno(), mode)
            os.replace(partial, local_path)
        except BaseException:
            os.unlink(partial)
            raise
    return received


class _TarPacker:
    """Packs a tar stream in a thread, with back-pressure."""

    def __init__(self, plan: UploadPlan) -> None:
        self._plan = plan
        self._pieces: queue.Queue[bytes | BaseException | None] = queue.Queue(_MAX_QUEUED_CHUNKS)
        self._stopped = threading.Event()
        self.total = 0

    async def pieces(self) -> AsyncIterator[bytes]:
        threading.Thread(target=self._pack, daemon=True).start()
        try:
            while (piece := await asyncio.to_thread(self._pieces.get)) is not None:
                if isinstance(piece, BaseException):
                    raise piece
                yield piece
        finally:
            self._stopped.set()

    def _pack(self) -> None:
        try:
            self.total = pack_tar(self._plan.source, self._plan.name, CallbackWriter(self._enqueue))  # type: ignore[arg-type]
            self._enqueue(None)
        except BaseException as error:
            if not self._stopped.is_set():
                self._enqueue(error)

    def _enqueue(self, piece: bytes | BaseException | None) -> None:
        while not self._stopped.is_set():
            try:
                return self._pieces.put(piece, timeout=0.2)
            except queue.Full:
                continue
        raise CliError("stopped")


async def _unpack_stream(pieces: AsyncIterator[bytes], unpacker: TarUnpacker, report: ReportProgress) -> int:
    """Unpack chunks in a thread, with back-pressure."""
    waiting: queue.Queue[bytes] = queue.Queue(_MAX_QUEUED_CHUNKS)
    broken = threading.Event()

    def give() -> bytes:
        piece = waiting.get()
        if broken.is_set():
            raise CliError("the connection was lost in the middle of the archive")
        return piece

    received = 0
    work = asyncio.ensure_future(asyncio.to_thread(unpacker.unpack, CallbackReader(give)))  # type: ignore[arg-type]
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
        # An empty chunk means the end to the reader, unless `broken` is set.
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

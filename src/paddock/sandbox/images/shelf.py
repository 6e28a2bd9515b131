"""Where built images lie: complete ones under their digest, and the workspaces of builds under way."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import stat
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from pydantic import AwareDatetime, ValidationError

from paddock.errors import BuildError
from paddock.model.sandbox import Frozen, Image, Mount, Service, User
from paddock.sandbox.images.console import BuildCancelled
from paddock.sandbox.images.fence import remove_tree

DIGEST_LETTERS = 12
_MANIFEST = "image.json"
_WORKSPACE = ".building-"
_LOCKS = ".locks"
_LOGS = "logs"
_WAIT_SECONDS = 7200.0


class Manifest(Frozen):
    """What is known of a built image; kept as `image.json` beside its root."""

    name: str
    digest: str
    kind: Literal["recipe", "oci", "host"]
    description: str = ""
    recipe: Mapping[str, Any] | None = None
    suite: str | None = None
    user: User
    env: Mapping[str, str] = {}
    working_directory: str | None = None
    """Where an OCI image wants its programs started."""
    services: tuple[Service, ...] = ()
    nested_namespaces: bool = False
    binds: tuple[Mount, ...] = ()
    python: str
    packages: Mapping[str, str] = {}
    size: int
    built_at: AwareDatetime


class Stored(Frozen):
    """A complete image on the shelf."""

    manifest: Manifest
    directory: Path

    @property
    def image(self) -> Image:
        made = self.manifest
        return Image(
            name=made.name,
            digest=made.digest,
            root=self.directory / "root",
            binds=made.binds,
            user=made.user,
            env=made.env,
            services=made.services,
            nested_namespaces=made.nested_namespaces,
        )


class Workspace:
    """A directory a build may fill; it becomes an image, or it goes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.root = path / "root"
        self.log_path = path / "build.log"


class Shelf:
    """The directory of images. Several processes may use it at once."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._read: dict[Path, tuple[int, Stored]] = {}

    def place(self, name: str, digest: str) -> Path:
        """Where an image is or would be."""
        return self.directory / f"{_plain(name)}-{digest[:DIGEST_LETTERS]}"

    def get(self, name: str, digest: str) -> Stored | None:
        stored = self._load(self.place(name, digest))
        return stored if stored and stored.manifest.digest == digest else None

    def all(self) -> list[Stored]:
        """Every complete image, the newest first."""
        if not self.directory.is_dir():
            return []
        found = [self._load(path) for path in self.directory.iterdir() if not path.name.startswith(".")]
        return sorted((item for item in found if item), key=lambda item: item.manifest.built_at, reverse=True)

    @contextlib.contextmanager
    def claim(self, digest: str, cancel: threading.Event) -> Iterator[None]:
        """Be the only builder of a digest, waiting for another to finish."""
        deadline = time.monotonic() + _WAIT_SECONDS
        path = self._locks() / f"{digest}.lock"
        while True:
            with _opened(path, os.O_RDWR | os.O_CREAT) as descriptor:
                if _try_lock(descriptor) and _is_still(path, descriptor):
                    yield
                    return
            if cancel.wait(0.1):
                raise BuildCancelled
            if time.monotonic() > deadline:
                raise BuildError(f"another build of {digest[:DIGEST_LETTERS]} did not end; try again later")

    @contextlib.contextmanager
    def workspace(self) -> Iterator[Workspace]:
        """A fresh directory that is removed afterwards unless `publish` made it an image."""
        self.sweep()
        with self._guard():
            path = self.directory / f"{_WORKSPACE}{secrets.token_hex(8)}"
            path.mkdir(mode=0o755)
            # The lock tells a living builder from a dead one; it lives exactly as long as this process.
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            _try_lock(descriptor)
        try:
            yield Workspace(path)
        finally:
            if path.exists():
                remove_tree(path)
            os.close(descriptor)

    def publish(self, workspace: Workspace, manifest: Manifest) -> Stored:
        """Make a filled workspace an image, all at once."""
        place = self.place(manifest.name, manifest.digest)
        # A manifest must never outlast a power cut that its files did not.
        subprocess.run(["sync", "--file-system", str(workspace.path)], check=True, timeout=_WAIT_SECONDS)
        _write_durably(workspace.path / _MANIFEST, manifest.model_dump_json(indent=1))
        with self._guard():
            if place.exists():
                # Without a readable manifest, or it would have been found and used.
                self._discard(place)
            workspace.path.rename(place)
            _sync_directory(self.directory)
        stored = self._load(place)
        assert stored is not None
        return stored

    def discard(self, stored: Stored) -> None:
        """Remove an image; it is no longer listed from the first moment on."""
        with self._guard():
            self._discard(stored.directory)
        self.sweep()

    def sweep(self) -> int:
        """Remove what dead builders left. Returns how many workspaces that were."""
        dead: list[Path] = []
        with self._guard():
            for path in self.directory.glob(f"{_WORKSPACE}*"):
                with contextlib.suppress(FileNotFoundError), _opened(path, os.O_RDONLY | os.O_DIRECTORY) as descriptor:
                    if _try_lock(descriptor):
                        dead.append(path)
        for path in dead:
            remove_tree(path)
        return len(dead)

    def keep_log(self, workspace: Workspace, name: str) -> Path:
        """Put a failed build's log where it stays until the next prune."""
        logs = self.directory / _LOGS
        logs.mkdir(exist_ok=True)
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
        path = logs / f"{_plain(name)}-{stamp}-{secrets.token_hex(2)}.log"
        if workspace.log_path.exists():
            workspace.log_path.replace(path)
        return path

    def forget_logs(self) -> None:
        for path in (self.directory / _LOGS).glob("*.log"):
            path.unlink(missing_ok=True)

    def forget_locks(self) -> None:
        """Remove lock files nobody holds."""
        for path in self._locks().glob("*.lock"):
            if path.name == "store.lock":
                continue
            with contextlib.suppress(FileNotFoundError), _opened(path, os.O_RDWR) as descriptor:
                if _try_lock(descriptor):
                    path.unlink(missing_ok=True)

    def _discard(self, place: Path) -> None:
        place.rename(self.directory / f"{_WORKSPACE}{secrets.token_hex(8)}")
        _sync_directory(self.directory)

    def _load(self, place: Path) -> Stored | None:
        path = place / _MANIFEST
        try:
            stamp = path.stat().st_mtime_ns
            known = self._read.get(place)
            if known and known[0] == stamp:
                return known[1]
            stored = Stored(manifest=Manifest.model_validate_json(path.read_bytes()), directory=place)
        except (OSError, ValidationError):
            return None
        self._read[place] = (stamp, stored)
        return stored

    def _locks(self) -> Path:
        path = self.directory / _LOCKS
        path.mkdir(parents=True, exist_ok=True)
        return path

    @contextlib.contextmanager
    def _guard(self) -> Iterator[None]:
        """Held for moments only, while entries of the directory change."""
        with open(self._locks() / "store.lock", "w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def _plain(name: str) -> str:
    """A name as part of a file name; OCI references have slashes and colons."""
    return "".join(letter if letter.isalnum() or letter in ".-_" else "_" for letter in name).lstrip(".")


def tree_size(root: Path) -> int:
    """Bytes a tree takes on the disk, counting hard links once."""
    files = {(status.st_dev, status.st_ino): status.st_blocks * 512 for _, status in _walk(root)}
    return sum(files.values())


def disarm(root: Path) -> None:
    """Take set-user-id bits and file capabilities from programs, and remove device nodes."""
    for path, status in _walk(root):
        if stat.S_ISCHR(status.st_mode) or stat.S_ISBLK(status.st_mode):
            os.unlink(path)
        elif stat.S_ISREG(status.st_mode):
            with contextlib.suppress(OSError):
                os.removexattr(path, "security.capability", follow_symlinks=False)
            if status.st_mode & (stat.S_ISUID | stat.S_ISGID):
                os.chmod(path, stat.S_IMODE(status.st_mode) & ~(stat.S_ISUID | stat.S_ISGID))


def _walk(root: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Everything below a directory, following no links."""
    pending = [str(root)]
    while pending:
        with os.scandir(pending.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    pending.append(entry.path)
                yield entry.path, entry.stat(follow_symlinks=False)


@contextlib.contextmanager
def _opened(path: Path, flags: int) -> Iterator[int]:
    descriptor = os.open(path, flags, 0o644)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_still(path: Path, descriptor: int) -> bool:
    """Whether a lock file is the one at its path, and not one that a prune has removed meanwhile."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _write_durably(path: Path, text: str) -> None:
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    _sync_directory(path.parent)


def _sync_directory(path: Path) -> None:
    with _opened(path, os.O_RDONLY | os.O_DIRECTORY) as descriptor:
        os.fsync(descriptor)

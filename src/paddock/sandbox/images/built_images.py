"""Directory of images: complete ones by digest, and workspaces of running builds."""

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
from paddock.model.sandbox import FrozenModel, Image, ImageService, SandboxMount, SandboxUser
from paddock.sandbox.images.build_command_runner import ImageBuildCancelled
from paddock.sandbox.images.build_sandbox import remove_build_tree

DIGEST_LENGTH = 12
_MANIFEST = "image.json"
_WORKSPACE = ".building-"
_LOCKS = ".locks"
_LOGS = "logs"
_WAIT_SECONDS = 7200.0


class ImageManifest(FrozenModel):
    """Metadata of a built image, stored as `image.json` beside its root."""

    name: str
    digest: str
    kind: Literal["recipe", "oci", "host"]
    description: str = ""
    recipe: Mapping[str, Any] | None = None
    suite: str | None = None
    user: SandboxUser
    env: Mapping[str, str] = {}
    working_directory: str | None = None
    """Working directory of an OCI image."""
    services: tuple[ImageService, ...] = ()
    nested_namespaces: bool = False
    root_mode: bool = False
    binds: tuple[SandboxMount, ...] = ()
    python: str
    packages: Mapping[str, str] = {}
    size: int
    built_at: AwareDatetime


class StoredImage(FrozenModel):
    """A complete image."""

    manifest: ImageManifest
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
            root_mode=made.root_mode,
        )


class ImageBuildWorkspace:
    """Directory of a running build; published as an image or removed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.root = path / "root"
        self.log_path = path / "build.log"


class BuiltImageDirectory:
    """Directory of images, safe for several processes."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._read: dict[Path, tuple[int, StoredImage]] = {}

    def image_path(self, name: str, digest: str) -> Path:
        """Return the path of an image."""
        return self.directory / f"{_plain(name)}-{digest[:DIGEST_LENGTH]}"

    def get(self, name: str, digest: str) -> StoredImage | None:
        stored = self._load(self.image_path(name, digest))
        return stored if stored and stored.manifest.digest == digest else None

    def all(self) -> list[StoredImage]:
        """Return complete images, newest first."""
        if not self.directory.is_dir():
            return []
        found = [self._load(path) for path in self.directory.iterdir() if not path.name.startswith(".")]
        return sorted((item for item in found if item), key=lambda item: item.manifest.built_at, reverse=True)

    @contextlib.contextmanager
    def claim(self, digest: str, cancel: threading.Event) -> Iterator[None]:
        """Hold the build lock of a digest, waiting for another builder."""
        deadline = time.monotonic() + _WAIT_SECONDS
        path = self._locks() / f"{digest}.lock"
        while True:
            with _opened(path, os.O_RDWR | os.O_CREAT) as descriptor:
                if _try_lock(descriptor) and _is_still(path, descriptor):
                    yield
                    return
            if cancel.wait(0.1):
                raise ImageBuildCancelled
            if time.monotonic() > deadline:
                raise BuildError(f"another build of {digest[:DIGEST_LENGTH]} did not end; try again later")

    @contextlib.contextmanager
    def workspace(self) -> Iterator[ImageBuildWorkspace]:
        """Create a workspace and remove it afterwards unless `publish` turned it into an image."""
        self.sweep()
        with self._guard():
            path = self.directory / f"{_WORKSPACE}{secrets.token_hex(8)}"
            path.mkdir(mode=0o755)
            # The lock shows that the builder is alive; the kernel releases it with this process.
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            _try_lock(descriptor)
        try:
            yield ImageBuildWorkspace(path)
        finally:
            if path.exists():
                remove_build_tree(path)
            os.close(descriptor)

    def publish(self, workspace: ImageBuildWorkspace, manifest: ImageManifest) -> StoredImage:
        """Publish a workspace as an image, atomically."""
        target = self.image_path(manifest.name, manifest.digest)
        # Flush files before the manifest, so that a power cut cannot keep only the manifest.
        subprocess.run(["sync", "--file-system", str(workspace.path)], check=True, timeout=_WAIT_SECONDS)
        _write_durably(workspace.path / _MANIFEST, manifest.model_dump_json(indent=1))
        with self._guard():
            if target.exists():
                # The existing directory has no readable manifest, or it would have been used.
                self._discard(target)
            workspace.path.rename(target)
            _sync_directory(self.directory)
        stored = self._load(target)
        assert stored is not None
        return stored

    def discard(self, stored: StoredImage) -> None:
        """Remove an image; it disappears from lists at once."""
        with self._guard():
            self._discard(stored.directory)
        self.sweep()

    def sweep(self) -> int:
        """Remove workspaces of dead builders; return their number."""
        dead: list[Path] = []
        with self._guard():
            for path in self.directory.glob(f"{_WORKSPACE}*"):
                with contextlib.suppress(FileNotFoundError), _opened(path, os.O_RDONLY | os.O_DIRECTORY) as descriptor:
                    if _try_lock(descriptor):
                        dead.append(path)
        for path in dead:
            remove_build_tree(path)
        return len(dead)

    def keep_log(self, workspace: ImageBuildWorkspace, name: str) -> Path:
        """Keep a failed build's log until the next prune."""
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
        """Remove unheld lock files."""
        for path in self._locks().glob("*.lock"):
            if path.name == "store.lock":
                continue
            with contextlib.suppress(FileNotFoundError), _opened(path, os.O_RDWR) as descriptor:
                if _try_lock(descriptor):
                    path.unlink(missing_ok=True)

    def _discard(self, directory: Path) -> None:
        directory.rename(self.directory / f"{_WORKSPACE}{secrets.token_hex(8)}")
        _sync_directory(self.directory)

    def _load(self, image_directory: Path) -> StoredImage | None:
        path = image_directory / _MANIFEST
        try:
            stamp = path.stat().st_mtime_ns
            known = self._read.get(image_directory)
            if known and known[0] == stamp:
                return known[1]
            stored = StoredImage(
                manifest=ImageManifest.model_validate_json(path.read_bytes()), directory=image_directory
            )
        except (OSError, ValidationError):
            return None
        self._read[image_directory] = (stamp, stored)
        return stored

    def _locks(self) -> Path:
        path = self.directory / _LOCKS
        path.mkdir(parents=True, exist_ok=True)
        return path

    @contextlib.contextmanager
    def _guard(self) -> Iterator[None]:
        """Hold the short lock for changes of directory entries."""
        with open(self._locks() / "store.lock", "w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def _plain(name: str) -> str:
    """Return a name as a file name without slashes and colons."""
    return "".join(character if character.isalnum() or character in ".-_" else "_" for character in name).lstrip(".")


def disk_size_of_tree(root: Path) -> int:
    """Return the disk bytes of a tree, counting hard links once."""
    files = {(status.st_dev, status.st_ino): status.st_blocks * 512 for _, status in _walk(root)}
    return sum(files.values())


def remove_privileged_bits(root: Path) -> None:
    """Remove set-user-id bits, file capabilities and device nodes."""
    for path, status in _walk(root):
        if stat.S_ISCHR(status.st_mode) or stat.S_ISBLK(status.st_mode):
            os.unlink(path)
        elif stat.S_ISREG(status.st_mode):
            with contextlib.suppress(OSError):
                os.removexattr(path, "security.capability", follow_symlinks=False)
            if status.st_mode & (stat.S_ISUID | stat.S_ISGID):
                os.chmod(path, stat.S_IMODE(status.st_mode) & ~(stat.S_ISUID | stat.S_ISGID))


def _walk(root: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Walk a directory without following links."""
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
    """Return whether an open lock file is still the one at its path."""
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

"""The `host` image: the machine's own /usr in a root without private files."""

from __future__ import annotations

import hashlib
import os
import stat
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath

from paddock.errors import Unavailable
from paddock.model.sandbox import Image, SandboxMount, SandboxUser
from paddock.sandbox.images.built_images import BuiltImageDirectory, ImageManifest, StoredImage, disk_size_of_tree
from paddock.sandbox.images.recipe import HOST
from paddock.sandbox.images.recipe_library import BUILDER_VERSION

_TOP_LEVEL = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_COPIED = (
    "alternatives", "bash.bashrc", "ca-certificates", "ca-certificates.conf", "chromium.d", "debian_version", "dconf",
    "fonts", "gai.conf", "glvnd", "gtk-2.0", "gtk-3.0", "host.conf", "ImageMagick-6", "inputrc", "java-17-openjdk",
    "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "libreoffice", "locale.alias", "localtime", "lsb-release", "magic",
    "magic.mime", "mime.types", "openal", "os-release", "perl", "pki/ca-trust", "pki/tls/certs", "protocols", "pulse",
    "python3", "services", "skel", "ssl/certs", "ssl/openssl.cnf", "terminfo", "timezone", "vulkan", "X11", "xdg",
)  # fmt: skip
_DIRECTORIES = {
    "dev": 0o755, "home": 0o755, "home/agent": 0o755, "mnt": 0o755, "opt": 0o755, "proc": 0o555, "root": 0o755,
    "run": 0o755, "srv": 0o755, "sys": 0o555, "tmp": 0o1777, "usr": 0o755, "var": 0o755, "var/cache": 0o755,
    "var/lib": 0o755, "var/log": 0o755, "var/tmp": 0o1777,
}  # fmt: skip
_WRITTEN = {
    "etc/passwd": (
        "root:x:0:0:root:/root:/bin/bash\n"
        "agent:x:1000:1000:agent:/home/agent:/bin/bash\n"
        "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
    ),
    "etc/group": "root:x:0:\ntty:x:5:\nagent:x:1000:\nnogroup:x:65534:\n",
    "etc/nsswitch.conf": (
        "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\n"
        "networks: files\nprotocols: files\nservices: files\n"
    ),
    "etc/hosts": "127.0.0.1 localhost\n::1 localhost\n",
    "etc/hostname": "box\n",
    "etc/resolv.conf": "",
    "etc/machine-id": "",
    "etc/profile": "PATH=/usr/local/bin:/usr/bin:/bin\nexport PATH\n",
}
_READABLE_BY_ALL = 0o004
_MAX_LINKS = 40


@dataclass(frozen=True)
class _Entry:
    """A file, directory or link of the root."""

    path: str
    mode: int
    content: bytes = b""
    link: str | None = None

    @property
    def is_directory(self) -> bool:
        return stat.S_ISDIR(self.mode)


class HostImage:
    """Creates the `host` image on first use, and again when its sources changed."""

    def __init__(self, images: BuiltImageDirectory, host: Path = Path("/")) -> None:
        self._images = images
        self._host = host
        self._known: tuple[object, str] | None = None

    def resolve(self) -> Image:
        """Return the image, creating it if needed. Raises `Unavailable` on a host without Python 3.9."""
        digest = self.digest()
        stored = self._images.get(HOST, digest)
        if stored is None:
            with self._images.claim(digest, threading.Event()):
                stored = self._images.get(HOST, digest) or self._make(digest)
        return stored.image

    def digest(self) -> str:
        """Return the digest of all copied files, cached while their sources are unchanged."""
        stamps = tuple(self._stamps())
        if self._known is None or self._known[0] != stamps:
            self._known = (stamps, _digest(self._entries(), self._binds()))
        return self._known[1]

    def _stamps(self) -> Iterator[tuple[str, int, int]]:
        for name in _COPIED:
            try:
                status = os.lstat(self._host / "etc" / name)
            except OSError:
                continue
            yield name, status.st_mtime_ns, status.st_ino

    def _make(self, digest: str) -> StoredImage:
        python = _host_python(self._host)
        with self._images.workspace() as workspace:
            for entry in self._entries():
                path = workspace.root / entry.path
                if entry.is_directory:
                    path.mkdir(parents=True, exist_ok=True)
                    path.chmod(stat.S_IMODE(entry.mode))
                elif entry.link is not None:
                    path.symlink_to(entry.link)
                else:
                    path.write_bytes(entry.content)
                    path.chmod(stat.S_IMODE(entry.mode))
            user = SandboxUser()
            if os.geteuid() == 0:
                os.chown(workspace.root / "home/agent", user.uid, user.gid)
            manifest = ImageManifest(
                name=HOST,
                digest=digest,
                kind="host",
                description="This machine's own programs, read-only.",
                user=user,
                env={"LANG": "C.UTF-8"},
                binds=self._binds(),
                python=python,
                size=disk_size_of_tree(workspace.root),
                built_at=datetime.now(UTC),
            )
            return self._images.publish(workspace, manifest)

    def _binds(self) -> tuple[SandboxMount, ...]:
        # Hosts that have not merged /bin and /lib into /usr keep real directories there.
        real = [name for name in _TOP_LEVEL if (self._host / name).is_dir() and not (self._host / name).is_symlink()]
        return tuple(
            SandboxMount(source=self._host / name, target=f"/{name}", read_only=True) for name in ("usr", *real)
        )

    def _entries(self) -> list[_Entry]:
        entries = {path: _Entry(path, stat.S_IFDIR | mode) for path, mode in {"": 0o755, "etc": 0o755}.items()}
        entries |= {path: _Entry(path, stat.S_IFDIR | mode) for path, mode in _DIRECTORIES.items()}
        for name in _TOP_LEVEL:
            if (self._host / name).is_symlink():
                entries[name] = _Entry(name, stat.S_IFLNK | 0o777, link=str((self._host / name).readlink()))
            elif (self._host / name).is_dir():
                entries[name] = _Entry(name, stat.S_IFDIR | 0o755)
        for path, content in _WRITTEN.items():
            entries[path] = _Entry(path, stat.S_IFREG | 0o644, content.encode())
        versioned = sorted(path.name for path in (self._host / "etc").glob("python3.*"))
        for name in (*_COPIED, *versioned):
            for entry in self._copies(f"etc/{name}"):
                for parent in reversed(PurePosixPath(entry.path).parents):
                    entries.setdefault(str(parent).removeprefix("."), _Entry(str(parent), stat.S_IFDIR | 0o755))
                entries.setdefault(entry.path, entry)
        return [entries[path] for path in sorted(self._without_dangling(entries))]

    def _copies(self, path: str) -> Iterator[_Entry]:
        """Yield world-readable entries at and below a path."""
        source = self._host / path
        try:
            status = source.lstat()
            if stat.S_ISLNK(status.st_mode):
                yield _Entry(path, stat.S_IFLNK | 0o777, link=str(source.readlink()))
            elif not status.st_mode & _READABLE_BY_ALL:
                return
            elif stat.S_ISREG(status.st_mode):
                yield _Entry(path, stat.S_IFREG | (0o755 if status.st_mode & 0o111 else 0o644), source.read_bytes())
            elif stat.S_ISDIR(status.st_mode) and status.st_mode & 0o001:
                yield _Entry(path, stat.S_IFDIR | 0o755)
                for child in sorted(source.iterdir()):
                    yield from self._copies(f"{path}/{child.name}")
        except FileNotFoundError:
            return

    def _without_dangling(self, entries: dict[str, _Entry]) -> dict[str, _Entry]:
        """Drop dangling links repeatedly until none is left."""
        binds = {mount.target.lstrip("/") for mount in self._binds()}
        while True:
            kept = {
                path: entry
                for path, entry in entries.items()
                if entry.link is None or self._resolves(path, entries, binds)
            }
            if len(kept) == len(entries):
                return kept
            entries = kept

    def _resolves(self, path: str, entries: dict[str, _Entry], binds: set[str]) -> bool:
        """Return whether a path exists in the image, following links as in the sandbox."""
        pending = list(reversed(PurePosixPath(path).parts))
        current: list[str] = []
        links = 0
        while pending:
            part = pending.pop()
            if part == "..":
                current = current[:-1]
                continue
            image_path = "/".join([*current, part])
            target: str | None
            if (current[:1] or [part])[0] in binds and image_path not in binds:
                host_path = self._host / image_path
                if not host_path.is_symlink() and not host_path.exists():
                    return False
                target = str(host_path.readlink()) if host_path.is_symlink() else None
            elif image_path in entries:
                target = entries[image_path].link
            else:
                return False
            if target is None:
                current.append(part)
                continue
            links += 1
            if links > _MAX_LINKS:
                return False
            if target.startswith("/"):
                current = []
            pending += [name for name in reversed(PurePosixPath(target).parts) if name != "/"]
        return True


def _digest(entries: list[_Entry], binds: tuple[SandboxMount, ...]) -> str:
    total = hashlib.sha256(f"{BUILDER_VERSION}\n{[mount.target for mount in binds]}\n".encode())
    for entry in entries:
        content = hashlib.sha256(entry.content).hexdigest()
        total.update(f"{entry.path}\0{entry.mode:o}\0{entry.link}\0{content}\n".encode())
    return total.hexdigest()


def _host_python(host: Path) -> str:
    path = host / "usr/bin/python3"
    name = path.resolve().name if path.exists() else ""
    version = name.removeprefix("python")
    numbers = tuple(int(part) for part in version.split(".") if part.isdigit())
    if numbers < (3, 9):
        raise Unavailable(
            "image 'host' needs /usr/bin/python3 >= 3.9 on this machine: 'apt-get install python3', or use image 'code'"
        )
    return version

"""Files of a sandbox on the host's disk."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from paddock.model.sandbox import SandboxUser
from paddock.sandbox.local.root_mode import ID_COUNT
from paddock.sandbox.local.subordinate_ids import find_subordinate_ids

MAPPED_COPY_PROGRAM = str(Path(__file__).with_name("mapped_copy.py"))
SOURCE_ROOT = str(Path(__file__).parents[3])
WRITTEN_DIRECTORIES = ("upper", "workspace")
"""Directories written by a sandbox and saved in snapshots."""
TRASH_PREFIX = ".trash-"

# From <linux/fs.h> with 64-bit long.
GET_FLAGS, SET_FLAGS = 0x80086601, 0x40086602
TOP_DIRECTORY_FLAG = 0x00020000


@dataclass(frozen=True)
class SandboxFiles:
    """Directory of one sandbox, accessed by path only from the host."""

    directory: Path

    @property
    def upper(self) -> Path:
        """Writable layer over the image."""
        return self.directory / "upper"

    @property
    def work(self) -> Path:
        return self.directory / "work"

    @property
    def root(self) -> Path:
        """Mount point of the root, visible only in the sandbox's mount namespace."""
        return self.directory / "root"

    @property
    def workspace(self) -> Path:
        return self.directory / "workspace"

    @property
    def uplinks(self) -> Path:
        """Sockets of uplink services; read-only in the sandbox."""
        return self.directory / "holes"

    @property
    def report(self) -> Path:
        """Status written by bubblewrap."""
        return self.directory / "report.jsonl"

    @property
    def log(self) -> Path:
        return self.directory / "log"

    @property
    def facts(self) -> Path:
        """Facts for `remove` and `adopt` without a record."""
        return self.directory / "box.json"

    @property
    def added_files(self) -> Path:
        """Files that the sandbox sees at paths of its own, named by number."""
        return self.directory / "files"

    def create(self, facts: dict[str, Any]) -> None:
        self.directory.mkdir(mode=0o700)
        self.facts.write_text(json.dumps(facts))
        for path in (self.upper, self.work, self.root, self.workspace, self.uplinks):
            path.mkdir(mode=0o755)

    def write_added_files(self, files: Mapping[str, bytes]) -> dict[str, Path]:
        """Write files to be mounted or copied; return them by path in the sandbox."""
        written = {target: self.added_files / str(number) for number, target in enumerate(files)}
        if files:
            self.added_files.mkdir(mode=0o755, exist_ok=True)
        for target, path in written.items():
            path.write_bytes(files[target])
            path.chmod(0o644)
        return written

    def read_facts(self) -> dict[str, Any]:
        try:
            facts = json.loads(self.facts.read_text())
        except (OSError, ValueError):
            return {}
        return facts if isinstance(facts, dict) else {}

    def log_tail(self, limit: int = 2000) -> str:
        try:
            with self.log.open("rb") as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - limit))
                return file.read(limit).decode(errors="replace").strip()
        except OSError:
            return ""


def spread_new_directories(directory: Path) -> None:
    """Spread new directories over the block groups of an ext4 file system.

    Without a journal, ext4 does not reuse freed inodes for minutes and scans them whenever a file is created nearby, so
    each sandbox would start more slowly than the one before.
    """
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        flags = bytearray(8)
        fcntl.ioctl(descriptor, GET_FLAGS, flags)
        found = int.from_bytes(flags, sys.byteorder)
        fcntl.ioctl(descriptor, SET_FLAGS, (found | TOP_DIRECTORY_FLAG).to_bytes(8, sys.byteorder))
    except OSError:
        pass  # Another file system, or an ordinary user.
    finally:
        os.close(descriptor)


def create_mount_points(tree: Path, directories: Sequence[str], files: Sequence[str]) -> None:
    """Create missing empty directories and files, world-readable."""
    above = {parent for path in (*directories, *files) for parent in PurePosixPath(path).parents}
    for path in sorted({*map(PurePosixPath, directories), *above}):
        directory = tree / path.relative_to("/")
        directory.mkdir(exist_ok=True)
        directory.chmod(0o755)
    for name in files:
        file = tree / name.lstrip("/")
        file.touch()
        file.chmod(0o644)


def copy_sandbox_tree(source: Path, target: Path) -> None:
    """Copy a tree with special files, links and attributes, without following links."""
    command = ["cp", "-a", "--reflink=auto", "--no-target-directory", "--", str(source), str(target)]
    subprocess.run([*_command_prefix_with_access(), *command], check=True, capture_output=True)


@dataclass(frozen=True)
class SandboxOwners:
    """Owners on disk of the files of a sandbox that root's server runs."""

    uid: int
    """Owner of the files of the image's user, or in root mode of those of root."""
    root_mode: bool

    def segments(self, image_id: int) -> list[tuple[int, int]]:
        """Return first owner and count for ids before, of and after the image's user or group."""
        end = image_id + 1
        first = self.uid if self.root_mode else 0
        own = self.uid + image_id if self.root_mode else self.uid
        return [(first, image_id), (own, 1), (first + end, ID_COUNT - end)]

    def id_map_to(self, other: SandboxOwners, image_id: int) -> str:
        pairs = zip(self.segments(image_id), other.segments(image_id), strict=True)
        return "".join(f"{old} {new} {count}\n" for (old, count), (new, _) in pairs if count)


def copy_with_other_owners(
    source: Path, target: Path, before: SandboxOwners, after: SandboxOwners, user: SandboxUser
) -> None:
    """Copy a tree as files of another sandbox of an image. Needs a file system with idmapped mounts."""
    id_maps = before.id_map_to(after, user.uid), before.id_map_to(after, user.gid)
    command = [sys.executable, "-I", "-S", MAPPED_COPY_PROGRAM, str(source), str(target), *id_maps, SOURCE_ROOT]
    subprocess.run(command, check=True, capture_output=True)


def change_tree_owner(directory: Path, before: int, after: int) -> None:
    """Change uid and gid of files from one sandbox user to another, each where it matches."""
    for old_owner, new_owner in ((str(before), str(after)), (f":{before}", f":{after}")):
        command = ["chown", "-R", "-h", "-P", f"--from={old_owner}", new_owner, "--", str(directory)]
        subprocess.run(command, check=True, capture_output=True)


def remove_sandbox_tree(directory: Path) -> None:
    """Remove a tree of a hostile sandbox: unreadable directories, odd names, great depth."""
    if not directory.exists():
        return
    if os.geteuid() != 0 and find_subordinate_ids() is not None:
        # Files of a sandbox in root mode.
        command = [*_command_prefix_with_access(), "rm", "-rf", "--one-file-system", "--", str(directory)]
        subprocess.run(command, check=False, capture_output=True)
    elif os.geteuid() != 0:
        subprocess.run(["chmod", "-R", "u+rwX", "--", directory], check=False, capture_output=True)
    subprocess.run(["rm", "-rf", "--one-file-system", "--", directory], check=False, capture_output=True)
    if directory.exists():
        shutil.rmtree(directory)


def disk_bytes_used(*directories: Path) -> int:
    """Return allocated bytes below directories, counting each inode once.

    Inodes are limited too: many small files are charged by inode.
    """
    return max(_du("--block-size=1", *directories), _du("--inodes", *directories) * _bytes_per_inode(directories[0]))


def _du(unit: str, *directories: Path) -> int:
    command = ["du", "--summarize", "--total", unit, "--one-file-system", "--", *map(str, directories)]
    done = subprocess.run([*_command_prefix_with_access(), *command], check=False, capture_output=True)
    last = done.stdout.rstrip().rpartition(b"\n")[2]
    return int(last.split(b"\t")[0]) if last else 0


def _bytes_per_inode(directory: Path) -> int:
    try:
        file_system = os.statvfs(directory)
    except OSError:
        return 0
    return file_system.f_blocks * file_system.f_frsize // file_system.f_files if file_system.f_files else 0


def _command_prefix_with_access() -> list[str]:
    """Return a command prefix that grants access to directories closed by their owner."""
    if os.geteuid() == 0:
        return []
    subordinate = ["--map-auto"] if find_subordinate_ids() is not None else []
    return ["unshare", "--user", *subordinate, "--map-root-user", "--"]

"""Where a box's things lie on the host's disk."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

WRITTEN = ("upper", "workspace")
"""What a box writes, and so what a snapshot keeps."""
TRASH = ".trash-"

# Of <linux/fs.h>, where long has eight bytes.
GET_FLAGS, SET_FLAGS = 0x80086601, 0x40086602
TOP_DIRECTORY = 0x00020000


@dataclass(frozen=True)
class BoxFiles:
    """The directory of one box. Only the host's side reads or writes it by path."""

    directory: Path

    @property
    def upper(self) -> Path:
        """What the box has written over its image."""
        return self.directory / "upper"

    @property
    def work(self) -> Path:
        return self.directory / "work"

    @property
    def root(self) -> Path:
        """Where the box's tree is mounted, seen only from the box's own mount namespace."""
        return self.directory / "root"

    @property
    def workspace(self) -> Path:
        return self.directory / "workspace"

    @property
    def holes(self) -> Path:
        """Sockets of host services; the box sees this directory read-only."""
        return self.directory / "holes"

    @property
    def report(self) -> Path:
        """What bubblewrap says of the box's first process."""
        return self.directory / "report.jsonl"

    @property
    def log(self) -> Path:
        return self.directory / "log"

    @property
    def facts(self) -> Path:
        """What `remove` and `adopt` need when no record is at hand."""
        return self.directory / "box.json"

    def create(self, facts: dict[str, Any]) -> None:
        self.directory.mkdir(mode=0o700)
        self.facts.write_text(json.dumps(facts))
        for path in (self.upper, self.work, self.root, self.workspace, self.holes):
            path.mkdir(mode=0o755)

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


def spread(directory: Path) -> None:
    """Have what is made in a directory put in different parts of the disk, where the file system has such.

    Without a journal ext4 uses no inode again for minutes after it was freed, and looks at all of these one by one
    whenever a file is made near them. Boxes come and go, and each would start more slowly than the one before.
    """
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        flags = bytearray(8)
        fcntl.ioctl(descriptor, GET_FLAGS, flags)
        found = int.from_bytes(flags, sys.byteorder)
        fcntl.ioctl(descriptor, SET_FLAGS, (found | TOP_DIRECTORY).to_bytes(8, sys.byteorder))
    except OSError:
        pass  # Another file system, or an ordinary user.
    finally:
        os.close(descriptor)


def lay_out(tree: Path, directories: Sequence[str], files: Sequence[str]) -> None:
    """Make empty directories and files that everybody may read, unless they are there."""
    above = {parent for path in (*directories, *files) for parent in PurePosixPath(path).parents}
    for path in sorted({*map(PurePosixPath, directories), *above}):
        directory = tree / path.relative_to("/")
        directory.mkdir(exist_ok=True)
        directory.chmod(0o755)
    for name in files:
        file = tree / name.lstrip("/")
        file.touch()
        file.chmod(0o644)


def copy_tree(source: Path, target: Path) -> None:
    """Copy a tree as it is, special files, links and attributes included, never following a link."""
    command = ["cp", "-a", "--reflink=auto", "--no-target-directory", "--", str(source), str(target)]
    subprocess.run([*_all_seeing(), *command], check=True, capture_output=True)


def change_owner(directory: Path, before: int, after: int) -> None:
    """Give what was one box's user's to another's; files may have only their user or only their group from there."""
    for whose, whom in ((str(before), str(after)), (f":{before}", f":{after}")):
        command = ["chown", "-R", "-h", "-P", f"--from={whose}", whom, "--", str(directory)]
        subprocess.run(command, check=True, capture_output=True)


def remove_tree(directory: Path) -> None:
    """Remove a tree a hostile box may have made: unreadable directories, odd names, great depth."""
    if not directory.exists():
        return
    if os.geteuid() != 0:
        subprocess.run(["chmod", "-R", "u+rwX", "--", directory], check=False, capture_output=True)
    subprocess.run(["rm", "-rf", "--one-file-system", "--", directory], check=False, capture_output=True)
    if directory.exists():
        shutil.rmtree(directory)


def disk_used(*directories: Path) -> int:
    """Bytes allocated below the directories, each inode counted once.

    A file system has only so many inodes: what takes more of them than its bytes would suggest is charged for those.
    """
    return max(_du("--block-size=1", *directories), _du("--inodes", *directories) * _bytes_per_inode(directories[0]))


def _du(unit: str, *directories: Path) -> int:
    command = ["du", "--summarize", "--total", unit, "--one-file-system", "--", *map(str, directories)]
    done = subprocess.run([*_all_seeing(), *command], check=False, capture_output=True)
    last = done.stdout.rstrip().rpartition(b"\n")[2]
    return int(last.split(b"\t")[0]) if last else 0


def _bytes_per_inode(directory: Path) -> int:
    try:
        whole = os.statvfs(directory)
    except OSError:
        return 0
    return whole.f_blocks * whole.f_frsize // whole.f_files if whole.f_files else 0


def _all_seeing() -> list[str]:
    """Words before a command that let it into directories the box has closed to its own, and so to our, user."""
    return [] if os.geteuid() == 0 else ["unshare", "--user", "--map-root-user", "--"]

"""Where a box's things lie on the host's disk."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

WRITTEN = ("upper", "workspace")
"""What a box writes, and so what a snapshot keeps."""
TRASH = ".trash-"


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


def copy_tree(source: Path, target: Path) -> None:
    """Copy a tree as it is, special files, links and attributes included, never following a link."""
    command = ["cp", "-a", "--reflink=auto", "--no-target-directory", "--", str(source), str(target)]
    subprocess.run([*_all_seeing(), *command], check=True, capture_output=True)


def change_owner(directory: Path, before: int, after: int) -> None:
    command = ["chown", "-R", "-h", "-P", f"--from={before}:{before}", f"{after}:{after}", "--", str(directory)]
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

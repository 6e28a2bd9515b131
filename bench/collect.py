"""Speed of collecting deliverables compared with `tar` through a pipe, in one run.

.venv/bin/python bench/collect.py [--rounds 3]
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import secrets
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from paddock.model.sandbox import SandboxSpec
from paddock.model.task import Deliverable
from paddock.runs.results.deliverable_collector import collect_deliverables
from paddock.runs.results.run_folder import RunFolder
from paddock.sandbox.daemon.client import DaemonClient, SandboxCommand
from paddock.sandbox.images import ImageStore
from paddock.sandbox.local.backend import LocalBackend, LocalBackendSettings
from paddock.sandbox.local.sandbox_files import SandboxFiles

FILES = 1000
SIZE = 500_000_000
REQUIRED_SPEED = 200.0
"""Megabytes per second."""
DELIVERABLES = (Deliverable(path="/workspace/out"),)
CREATE_FILES_PROGRAM = """
import os, sys
files, size = int(sys.argv[1]), int(sys.argv[2])
for number in range(files):
    os.makedirs(f"/workspace/out/{number % 20}", exist_ok=True)
    with open(f"/workspace/out/{number % 20}/{number}.bin", "wb") as file:
        file.write(os.urandom(size // files))
"""


@dataclass(frozen=True)
class CollectionSpeeds:
    """Megabytes per second, medians of all rounds."""

    collect: float
    tar: float
    hashing: float
    """Hashing speed of one core at this moment: every delivered file is hashed."""

    @property
    def bar_met(self) -> bool:
        return self.collect >= REQUIRED_SPEED

    def print_table(self) -> None:
        print(
            f"collect {FILES} files, {SIZE / 1e6:.0f} MB   {self.collect:7.0f} MB/s   bar >= {REQUIRED_SPEED:.0f} MB/s",
            end="",
        )
        print(f"   {'holds' if self.bar_met else 'MISSED'}")
        print(f"tar | tar, the same files       {self.tar:7.0f} MB/s   collect is {self.collect / self.tar:.2f} x that")
        print(f"sha256 alone, one core          {self.hashing:7.0f} MB/s")


async def measure_collection(scratch: Path, rounds: int = 3) -> CollectionSpeeds:
    """Create a sandbox with files and collect them, alternating with tar."""
    backend = LocalBackend(LocalBackendSettings(data=scratch / "data"))
    image = ImageStore(scratch / "images", recipe_dirs=()).resolve("host")
    record = await backend.start(SandboxSpec(id="bench", image=image, token=secrets.token_hex(8)))
    try:
        async with DaemonClient(backend.daemon_address(record)) as inside:
            made = await inside.run(
                SandboxCommand(["/usr/bin/python3", "-c", CREATE_FILES_PROGRAM, str(FILES), str(SIZE)])
            )
            assert made.exit_code == 0, made.stderr
            source = SandboxFiles(scratch / "data" / "boxes" / "bench").workspace
            speeds: dict[str, list[float]] = {"collect": [], "tar": [], "hashing": []}
            # Nothing is removed in between: deletions would slow the file system down.
            for number in range(rounds):
                folder = RunFolder(scratch / "runs", f"run-{number}")
                started = time.perf_counter()
                collected = await collect_deliverables(inside, DELIVERABLES, folder)
                speeds["collect"].append(SIZE / 1e6 / (time.perf_counter() - started))
                assert len(collected.delivered) == FILES and not collected.missing, collected.missing
                speeds["tar"].append(
                    SIZE / 1e6 / await asyncio.to_thread(_tar_speed, source, scratch / f"tar-{number}")
                )
                speeds["hashing"].append(_hash_speed())
    finally:
        await backend.remove("bench")
        await backend.close()
    return CollectionSpeeds(**{name: statistics.median(values) for name, values in speeds.items()})


def _tar_speed(source: Path, target: Path) -> float:
    target.mkdir()
    started = time.perf_counter()
    subprocess.run(f"tar -C {source} -cf - out | tar -C {target} -xf -", shell=True, check=True)
    return time.perf_counter() - started


def _hash_speed() -> float:
    data = bytes(2**24)
    started = time.perf_counter()
    hashlib.sha256(data)
    return len(data) / 1e6 / (time.perf_counter() - started)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    rounds: int = parser.parse_args().rounds
    with tempfile.TemporaryDirectory(prefix="paddock-bench-") as directory:
        speeds = asyncio.run(measure_collection(Path(directory), rounds))
    speeds.print_table()
    return 0 if speeds.bar_met else 1


if __name__ == "__main__":
    sys.exit(main())

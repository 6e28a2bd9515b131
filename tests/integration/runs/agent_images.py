"""Images of the agents, and `paddock run` on a server that has them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from paddock.sandbox.images import ImageStore
from tests.support.server import PADDOCK_COMMAND, Server

ROOT = Path(__file__).parents[3]
IMAGE_CACHE = Path(os.environ.get("TEST_IMAGES") or Path.home() / ".paddock/images")
"""Directory of built images, kept between test sessions and shared with `make run`."""
PARALLEL_BUILDS = 2
TIMEOUT_SECONDS = 300.0
PADDOCK_KEY_PATTERN = re.compile(rb"pdk_[0-9A-Za-z]{8}")


def share_images(data: Path, names: Sequence[str], recipes: Path | None = None) -> None:
    """Link cached images into a data directory and build missing ones, also by recipes of the test."""
    missing = [name for name in ("mmdebstrap", "bwrap", "unshare", "setpriv") if shutil.which(name) is None]
    if missing:
        pytest.skip(f"images cannot be built without {', '.join(missing)}")
    store = ImageStore(IMAGE_CACHE, [ROOT / "images", *([] if recipes is None else [recipes])])
    store.build("agent-base")
    with ThreadPoolExecutor(PARALLEL_BUILDS) as builders:
        list(builders.map(store.build, names))
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    (data / "images").symlink_to(IMAGE_CACHE, target_is_directory=True)


@dataclass(frozen=True)
class FinishedRun:
    """An ended run: its API document, the events printed by `paddock run --json`, and its folder."""

    run: Mapping[str, Any]
    events: Sequence[Mapping[str, Any]]
    folder: Path

    @property
    def result(self) -> Mapping[str, Any]:
        result: Mapping[str, Any] = self.run["result"]
        return result

    def event_data(self, kind: str) -> list[Mapping[str, Any]]:
        return [event["data"] for event in self.events if event["type"] == f"run.{kind}"]

    def delivered(self, path: str) -> str:
        return (self.folder / "deliverables" / path).read_text()

    @property
    def conversation(self) -> list[Mapping[str, Any]]:
        return [json.loads(line) for line in (self.folder / "conversation.jsonl").read_text().splitlines()]

    @property
    def files(self) -> list[Path]:
        return [path for path in self.folder.rglob("*") if path.is_file()]


@dataclass(frozen=True)
class RunCommandResult:
    """Result of one `paddock run`."""

    code: int
    runs: Mapping[str, FinishedRun]
    errors: str

    def __getitem__(self, name: str) -> FinishedRun:
        assert name in self.runs, self.errors
        return self.runs[name]


def paddock_run(server: Server, files: Sequence[Path], parallel: int) -> RunCommandResult:
    """Run task files as a user would, all in one command, and wait until they have ended."""
    words = ["run", *map(str, files), "--parallel", str(parallel), "--json"]
    env = {"PATH": os.environ["PATH"], "HOME": str(server.data.parent), "PADDOCK_DATA": str(server.data)}
    done = subprocess.run(
        [PADDOCK_COMMAND, *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=TIMEOUT_SECONDS,
        env=env,
        check=False,
    )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    errors = done.stderr.decode()
    assert lines and "results" in lines[-1], errors + done.stdout.decode()
    events: dict[str, list[Mapping[str, Any]]] = {}
    for line in lines[:-1]:
        events.setdefault(line.get("stream", ""), []).append(line)
    runs = {
        run["name"]: FinishedRun(run, events.get(f"run/{run['id']}", []), server.data / "runs" / run["id"])
        for run in lines[-1]["results"]
    }
    return RunCommandResult(done.returncode, runs, errors)

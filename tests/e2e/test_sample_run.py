"""`make run`: the sample task from start to finish, and the commands that it prints at its end."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.integration.runs.agent_images import IMAGE_CACHE

ROOT = Path(__file__).parents[2]
IMAGE = "agent-claude-code"
SECONDS = 110


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """A user's environment with the image at hand; building it takes minutes."""
    if not any(IMAGE_CACHE.glob(f"{IMAGE}-*")):
        pytest.skip(f"the image {IMAGE} is not built on this machine")
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    (data / "images").symlink_to(IMAGE_CACHE, target_is_directory=True)
    kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    return {**kept, "HOME": str(tmp_path), "PADDOCK_DATA": str(data), "PADDOCK_RUNS__WARM_SERVER": "0"}


def test_the_sample_task_runs_and_what_is_printed_works(environment: dict[str, str]) -> None:
    # The requirements are there, or this test would not run.
    words = ["make", "--no-print-directory", "--old-file=setup", "run"]
    done = subprocess.run(
        words, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "✓ hello succeeded after" in done.stdout and "report.md" in done.stdout
    assert "paddock run tasks/hello.yaml --show" in done.stdout
    _, _, rest = done.stdout.partition("What to do next:\n")
    steps = [re.split(r"  +", line.strip())[0] for line in rest.splitlines() if line.strip()]
    assert [step.rpartition("paddock ")[2] for step in steps][:3] == ["serve", "console", "chat"]
    # The step that needs no server and no person is run as it is printed.
    (show,) = [step for step in steps if " runs show " in step]
    shown = subprocess.run(
        show, shell=True, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert shown.returncode == 0 and shown.stdout.startswith("✓ hello succeeded"), shown.stderr

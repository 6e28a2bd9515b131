"""`make run`: the sample task from start to finish, and the commands it prints at the end."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.integration.runs.agent_images import share_images

ROOT = Path(__file__).parents[2]
IMAGE = "agent-claude-code"
TIMEOUT = 110
pytestmark = pytest.mark.timeout(500)


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """A user's environment with the image of the sample; a missing image is built, which takes minutes."""
    data = tmp_path / "data"
    share_images(data, [IMAGE])
    inherited = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    return {**inherited, "HOME": str(tmp_path), "PADDOCK_DATA": str(data), "PADDOCK_RUNS__WARM_SERVER": "0"}


def test_sample_task_runs_and_printed_commands_work(environment: dict[str, str]) -> None:
    # The requirements are installed, or this test would not run.
    arguments = ["make", "--no-print-directory", "--old-file=setup", "run"]
    result = subprocess.run(
        arguments, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=TIMEOUT, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert "✓ hello succeeded after" in result.stdout and "report.md" in result.stdout
    assert "paddock run tasks/hello.yaml --show" in result.stdout
    _, _, rest = result.stdout.partition("What to do next:\n")
    steps = [re.split(r"  +", line.strip())[0] for line in rest.splitlines() if line.strip()]
    assert [step.rpartition("paddock ")[2] for step in steps][:3] == ["serve", "console", "chat"]
    # Run the only printed command that needs neither a server nor a person.
    (show,) = [step for step in steps if " runs show " in step]
    shown = subprocess.run(
        show, shell=True, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=TIMEOUT, check=False
    )
    assert shown.returncode == 0 and shown.stdout.startswith("✓ hello succeeded"), shown.stderr
    logs = show.replace(" show ", " logs ")
    readable, raw = (
        subprocess.run(
            command, shell=True, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=TIMEOUT, check=True
        ).stdout
        for command in (logs, f"{logs} --raw")
    )
    assert "● I will look at the data first." in readable and '{"' not in readable
    assert raw.startswith("{")

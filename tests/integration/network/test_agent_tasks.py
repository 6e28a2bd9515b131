"""Tasks of real agents that install packages, and what their run's folder shows of the network."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.integration.runs.agent_images import RunCommandResult, paddock_run, share_images
from tests.support.server import Server, run_server

pytestmark = pytest.mark.timeout(1500)
AGENTS = ("claude-code", "codex")
SCRIPT = {
    "turns": [
        [
            {"say": "I will install the package."},
            {"shell": "npm install --silent is-number@7.0.0 && node -p \"require('is-number')(7)\" > answer.txt"},
        ],
        [{"say": "Is another host open?"}, {"shell": "curl -sS -m 5 http://example.com/ > refused.txt; true"}],
        {"say": "It is installed."},
    ]
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("agents")
    share_images(directory / "data", [f"agent-{agent}" for agent in AGENTS])
    with run_server(directory) as running:
        yield running


@pytest.fixture(scope="module")
def results(server: Server, tmp_path_factory: pytest.TempPathFactory) -> RunCommandResult:
    check = subprocess.run(["npm", "view", "is-number@7.0.0", "version"], capture_output=True, timeout=120, check=False)
    if check.returncode != 0:
        pytest.skip("this machine itself reaches no npm registry")
    directory = tmp_path_factory.mktemp("tasks")
    (directory / "install.script.yaml").write_text(yaml.safe_dump(SCRIPT))
    return paddock_run(server, [_write_task(directory, agent) for agent in AGENTS], parallel=2)


def _write_task(directory: Path, agent: str) -> Path:
    task = {
        "name": f"install-{agent}",
        "agent": agent,
        "llm": {"model": "gpt-5", "script": "install.script.yaml"},
        "goal": "Install the package is-number and try it.",
        "network": "packages",
        "end": {"timeout": "5m"},
        "deliverables": ["answer.txt", "refused.txt"],
        "verify": ["grep -qx true answer.txt"],
    }
    path = directory / f"install-{agent}.yaml"
    path.write_text(yaml.safe_dump(task))
    return path


@pytest.mark.parametrize("agent", AGENTS)
def test_agent_installs_packages_and_its_folder_shows_each_host(results: RunCommandResult, agent: str) -> None:
    done = results[f"install-{agent}"]
    assert done.run["state"] == "succeeded", done.result
    assert done.delivered("answer.txt").strip() == "true"
    assert "`allow example.com:80`" in done.delivered("refused.txt")
    lines = [json.loads(line) for line in (done.folder / "network.jsonl").read_text().splitlines()]
    allowed = {line["name"] for line in lines if line["allowed"]}
    denied = {line["name"] for line in lines if not line["allowed"]}
    assert allowed and "example.com" in denied and "example.com" not in allowed
    assert all(line["rule"] == "allow packages" for line in lines if line["allowed"])

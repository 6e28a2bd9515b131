"""The `osb` command line."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.contract.opensandbox.conftest import IMAGE
from tests.contract.opensandbox.peers import peer
from tests.serving import Server, eventually

OSB = peer("osb")


class Osb:
    def __init__(self, server: Server, home: Path) -> None:
        self._server = server
        self._home = home

    def run(self, *words: str, code: int = 0) -> str:
        done = subprocess.run(
            [OSB, "--api-key", self._server.key, "--domain", self._server.domain, "--no-color", *words],
            capture_output=True,
            text=True,
            timeout=60,
            env={"HOME": str(self._home), "PATH": "/usr/bin:/bin", "COLUMNS": "200"},
        )
        assert done.returncode == code, f"{words}: {done.stdout} {done.stderr}"
        return done.stdout + done.stderr

    def json(self, *words: str) -> Any:
        return json.loads(self.run(*words, "-o", "json"))


@pytest.fixture
def osb(server: Server, tmp_path: Path) -> Osb:
    return Osb(server, tmp_path)


def test_a_sandbox_from_creation_to_end(osb: Osb, tmp_path: Path) -> None:
    made = osb.json("sandbox", "create", "--image", IMAGE, "--timeout", "10m", "-m", "by=osb", "-e", "A=1")
    box = made["id"]
    assert osb.json("sandbox", "get", box)["status"]["state"] == "Running"
    assert box in osb.run("sandbox", "list", "-m", "by=osb")
    assert "hello 1" in osb.run("command", "run", box, "-o", "raw", "--", "sh", "-c", "echo hello $A")
    osb.run("command", "run", box, "-o", "raw", "--", "sh", "-c", "exit 3", code=1)
    assert "$HOME" in osb.run("command", "run", box, "--argv", "-o", "raw", "--", "echo", "$HOME")
    local = tmp_path / "up.txt"
    local.write_text("from here\n")
    osb.run("file", "upload", box, str(local), "/tmp/up.txt")
    assert "from here" in osb.run("file", "cat", box, "/tmp/up.txt")
    osb.run("file", "replace", box, "/tmp/up.txt", "--old", "here", "--new", "there")
    osb.run("file", "download", box, "/tmp/up.txt", str(tmp_path / "down.txt"))
    assert (tmp_path / "down.txt").read_text() == "from there\n"
    assert "/tmp/up.txt" in osb.run("file", "search", box, "/tmp", "--pattern", "*.txt")
    osb.run("file", "rm", box, "/tmp/up.txt")
    osb.run("sandbox", "pause", box)
    osb.run("sandbox", "resume", box)
    osb.run("sandbox", "health", box)
    osb.run("sandbox", "renew", box, "--timeout", "20m")
    assert "127.0.0.1" in osb.run("sandbox", "endpoint", box, "--port", "8000")
    osb.run("sandbox", "metrics", box)
    assert "deny" in osb.run("egress", "get", box)
    assert "sandbox.running" in osb.run("diagnostics", "events", box, "--scope", "all", "-o", "raw")
    assert box in osb.run("devops", "inspect", box, "-o", "raw")
    osb.run("devops", "summary", box, "-o", "raw")
    osb.run("sandbox", "kill", box)
    osb.run("sandbox", "get", box, code=1)


def test_snapshots(osb: Osb) -> None:
    box = osb.json("sandbox", "create", "--image", IMAGE)["id"]
    osb.run("command", "run", box, "-o", "raw", "--", "sh", "-c", "echo kept > ~/kept")
    kept = osb.json("snapshot", "create", box, "--name", "mine")["id"]
    eventually(lambda: osb.json("snapshot", "get", kept)["status"]["state"] == "Ready")
    again = osb.json("sandbox", "create", "--snapshot-id", kept)["id"]
    assert "kept" in osb.run("command", "run", again, "-o", "raw", "--", "sh", "-c", "cat ~/kept")
    osb.run("sandbox", "kill", box, again)
    osb.run("snapshot", "delete", kept)


def test_mistakes_are_told(osb: Osb) -> None:
    assert "no recipe named" in osb.run("sandbox", "create", "--image", "nonsense", code=1)
    assert "sb-missing" in osb.run("sandbox", "get", "sb-missing", code=1)

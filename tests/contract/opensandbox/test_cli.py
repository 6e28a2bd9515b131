"""The `osb` command line."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.contract.opensandbox.conftest import IMAGE
from tests.contract.opensandbox.peers import peer
from tests.support.server import Server, eventually

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


def test_sandbox_life_cycle_by_command_line(osb: Osb, tmp_path: Path) -> None:
    made = osb.json("sandbox", "create", "--image", IMAGE, "--timeout", "10m", "-m", "by=osb", "-e", "A=1")
    sandbox = made["id"]
    assert osb.json("sandbox", "get", sandbox)["status"]["state"] == "Running"
    assert sandbox in osb.run("sandbox", "list", "-m", "by=osb")
    assert "hello 1" in osb.run("command", "run", sandbox, "-o", "raw", "--", "sh", "-c", "echo hello $A")
    osb.run("command", "run", sandbox, "-o", "raw", "--", "sh", "-c", "exit 3", code=1)
    assert "$HOME" in osb.run("command", "run", sandbox, "--argv", "-o", "raw", "--", "echo", "$HOME")
    local = tmp_path / "up.txt"
    local.write_text("from here\n")
    osb.run("file", "upload", sandbox, str(local), "/tmp/up.txt")
    assert "from here" in osb.run("file", "cat", sandbox, "/tmp/up.txt")
    osb.run("file", "replace", sandbox, "/tmp/up.txt", "--old", "here", "--new", "there")
    osb.run("file", "download", sandbox, "/tmp/up.txt", str(tmp_path / "down.txt"))
    assert (tmp_path / "down.txt").read_text() == "from there\n"
    assert "/tmp/up.txt" in osb.run("file", "search", sandbox, "/tmp", "--pattern", "*.txt")
    osb.run("file", "rm", sandbox, "/tmp/up.txt")
    osb.run("sandbox", "pause", sandbox)
    osb.run("sandbox", "resume", sandbox)
    osb.run("sandbox", "health", sandbox)
    osb.run("sandbox", "renew", sandbox, "--timeout", "20m")
    assert "127.0.0.1" in osb.run("sandbox", "endpoint", sandbox, "--port", "8000")
    osb.run("sandbox", "metrics", sandbox)
    assert "deny" in osb.run("egress", "get", sandbox)
    assert "sandbox.running" in osb.run("diagnostics", "events", sandbox, "--scope", "all", "-o", "raw")
    assert sandbox in osb.run("devops", "inspect", sandbox, "-o", "raw")
    osb.run("devops", "summary", sandbox, "-o", "raw")
    osb.run("sandbox", "kill", sandbox)
    osb.run("sandbox", "get", sandbox, code=1)


def test_snapshots(osb: Osb) -> None:
    sandbox = osb.json("sandbox", "create", "--image", IMAGE)["id"]
    osb.run("command", "run", sandbox, "-o", "raw", "--", "sh", "-c", "echo kept > ~/kept")
    kept = osb.json("snapshot", "create", sandbox, "--name", "mine")["id"]
    eventually(lambda: osb.json("snapshot", "get", kept)["status"]["state"] == "Ready")
    again = osb.json("sandbox", "create", "--snapshot-id", kept)["id"]
    assert "kept" in osb.run("command", "run", again, "-o", "raw", "--", "sh", "-c", "cat ~/kept")
    osb.run("sandbox", "kill", sandbox, again)
    osb.run("snapshot", "delete", kept)


def test_command_line_errors_are_reported(osb: Osb) -> None:
    assert "no recipe named" in osb.run("sandbox", "create", "--image", "nonsense", code=1)
    assert "sb-missing" in osb.run("sandbox", "get", "sb-missing", code=1)


def test_credential_vault_by_command_line(osb: Osb, tmp_path: Path) -> None:
    policy, vault, change = (tmp_path / name for name in ("policy.json", "vault.yaml", "change.yaml"))
    policy.write_text(
        json.dumps({"defaultAction": "deny", "egress": [{"action": "allow", "target": "api.example.com"}]})
    )
    words = ("--image", IMAGE, "--timeout", "10m", "--network-policy-file", str(policy), "--credential-proxy")
    sandbox = osb.json("sandbox", "create", *words)["id"]
    vault.write_text(
        """
credentials: [{name: api-token, source: {value: secret-value}}]
bindings:
  - name: api
    match: {schemes: [https], hosts: [api.example.com], paths: [/v1/*]}
    auth: {type: apiKey, name: x-api-key, credential: api-token}
"""
    )
    made = osb.json("credential-vault", "create", sandbox, "--file", str(vault))
    assert made["revision"] == 1 and "secret-value" not in str(made)
    change.write_text("expectedRevision: 1\nbindings: {delete: [api]}\ncredentials: {delete: [api-token]}\n")
    assert osb.json("credential-vault", "binding", "get", sandbox, "api")["auth"]["name"] == "x-api-key"
    assert osb.json("credential-vault", "credential", "list", sandbox)[0]["name"] == "api-token"
    assert osb.json("credential-vault", "patch", sandbox, "--file", str(change))["revision"] == 2
    assert "409" in osb.run("credential-vault", "patch", sandbox, "--file", str(change), code=1)
    assert osb.json("credential-vault", "get", sandbox)["credentials"] == []
    osb.run("credential-vault", "delete", sandbox)
    osb.run("sandbox", "kill", sandbox)

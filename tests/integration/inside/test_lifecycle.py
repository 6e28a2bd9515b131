"""The sandbox as a whole: entrypoint, claims, metrics, state."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from paddock.sandbox.daemon.zipapp_builder import build_daemon_zipapp

from .daemon import Daemon, eventually, next_event, running_daemon


def test_state_reports_pid_and_uptime(daemon: Daemon) -> None:
    state = daemon.call("GET", "/paddock/state").json()
    assert state["pid"] == daemon.pid
    assert state["entrypoint"] is None
    assert state["running_commands"] == 0
    daemon.run("true")
    daemon.call("GET", "/ping")
    idle = daemon.call("GET", "/paddock/state").json()["idle_seconds"]
    eventually(lambda: daemon.call("GET", "/paddock/state").json()["idle_seconds"] > idle)
    with daemon.stream("POST", "/command", {"command": "echo; exec sleep 300"}) as response:
        next_event(response)
        assert daemon.call("GET", "/paddock/state").json()["idle_seconds"] == 0


def test_daemon_outlives_the_entrypoint(zipapp: Path, directory: Path) -> None:
    entrypoint = ["sh", "-c", "echo started $BOX; exit 3"]
    with running_daemon(zipapp, directory, entrypoint=entrypoint) as daemon:
        eventually(lambda: not daemon.call("GET", "/paddock/state").json()["entrypoint"]["running"])
        assert daemon.call("GET", "/command/status/entrypoint").json()["exit_code"] == 3
        assert daemon.call("GET", "/command/entrypoint/logs").body == b"started yes\n"
        assert daemon.run("echo alive").text() == ["alive"]


def test_sandbox_can_be_claimed_once(daemon: Daemon) -> None:
    claim = {"env": {"OWNER": "me"}, "entrypoint": ["sh", "-c", "echo $OWNER $BOX"], "cwd": "/usr"}
    assert daemon.call("POST", "/paddock/claim", {"entrypoint": "sh"}).status == 400
    assert daemon.call("POST", "/paddock/claim", claim).status == 200
    answer = daemon.call("POST", "/paddock/claim", claim)
    assert (answer.status, answer.error()) == (409, "ALREADY_CLAIMED")
    assert daemon.run("echo $OWNER $BOX; pwd").text() == ["me", "/usr"]
    eventually(lambda: daemon.call("GET", "/command/entrypoint/logs").body == b"me\n")


def test_metrics_are_reported(daemon: Daemon) -> None:
    metrics = daemon.call("GET", "/metrics").json()
    assert set(metrics) == {"cpu_count", "cpu_used_pct", "mem_total_mib", "mem_used_mib", "pids", "timestamp"}
    assert 0 < metrics["mem_used_mib"] <= metrics["mem_total_mib"]
    assert 0 <= metrics["cpu_used_pct"] <= 100
    with daemon.stream("GET", "/metrics/watch") as response:
        assert response.readline().startswith(b'data: {"cpu_count"')


def test_programs_on_the_extra_path_are_found(zipapp: Path, directory: Path) -> None:
    bins = directory / "bin"
    bins.mkdir()
    (bins / "greet").write_text("#!/bin/sh\necho greetings\n")
    (bins / "greet").chmod(0o755)
    with running_daemon(zipapp, directory, bins=[str(bins)], user={"name": "ada", "home": "/h"}) as daemon:
        assert daemon.run("greet; echo $USER $HOME").text() == ["greetings", "ada /h"]


@pytest.mark.parametrize("document", ["", "[]", '{"token": "x"}', '{"token": "x", "listen": {"fd": 3, "unix": "/x"}}'])
def test_invalid_settings_are_reported_in_one_line(zipapp: Path, directory: Path, document: str) -> None:
    config = directory / "config.json"
    config.write_text(document)
    words = ["/usr/bin/python3", "-I", "-S", str(zipapp), "--config", str(config)]
    done = subprocess.run(words, capture_output=True, text=True)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)


def test_zipapp_is_reproducible(zipapp: Path, tmp_path: Path) -> None:
    again = build_daemon_zipapp(tmp_path)
    assert again.name == zipapp.name
    assert build_daemon_zipapp(tmp_path) == again
    assert os.listdir(tmp_path) == [again.name]


def test_zipapp_imports_only_the_standard_library(zipapp: Path) -> None:
    """Tools may also import packages of the images; the daemon must not."""
    brought = {"PIL", "Xlib", "gi", "playwright"}
    with zipfile.ZipFile(zipapp) as archive:
        for name in archive.namelist():
            if name.endswith(".py"):
                words = [line.split() for line in archive.read(name).decode().splitlines()]
                imported = {line[1].split(".")[0] for line in words if len(line) > 1 and line[0] in ("import", "from")}
                allowed = {"", "inside", *sys.stdlib_module_names} | (brought if "/tools/" in name else set())
                assert imported <= allowed, name

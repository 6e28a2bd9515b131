"""`paddock doctor`: states of model providers, and progress on a terminal."""

from __future__ import annotations

import json
import os
import pty
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from paddock.cli.admin.doctor_command import _provider_finding


@pytest.mark.parametrize(
    ("state", "detail", "fix"),
    [
        ({}, "OK at http://127.0.0.1:9", None),
        ({"keyRefusedAt": "2026-01-01T00:00:00Z"}, "key refused at http://127.0.0.1:9", "correct OPENAI_API_KEY"),
        ({"failing": True}, "not reached at http://127.0.0.1:9: requests kept failing", "check its address"),
        ({"listProblem": "refused"}, "no list of models at http://127.0.0.1:9: refused", "check its address"),
    ],
)
def test_the_state_of_a_provider_is_named_with_a_fix(state: dict[str, Any], detail: str, fix: str | None) -> None:
    found = {"name": "openai", "kind": "openai", "baseUrl": "http://127.0.0.1:9", "foundIn": "OPENAI_API_KEY"}
    finding = _provider_finding({**found, **state})
    assert (finding.check, finding.ok, finding.detail) == ("provider openai", fix is None, detail)
    assert not finding.required
    assert fix is None or (finding.fix or "").startswith(fix)


def test_the_current_check_is_shown_on_a_terminal(tmp_path: Path) -> None:
    controller, terminal = pty.openpty()
    words = [sys.executable, "-m", "paddock", "doctor", "--no-trial", "--data", str(tmp_path / "data")]
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "TERM": "xterm", "LANG": "C.UTF-8"}
    with subprocess.Popen(words, stdin=terminal, stdout=terminal, stderr=terminal, env=environment) as process:
        os.close(terminal)
        shown = bytearray()
        while piece := read_terminal(controller):
            shown += piece
        process.wait(60)
    os.close(controller)
    text = shown.decode()
    assert "Checking kernel, user namespaces, control groups and disk …" in text
    assert text.index("Checking ") < text.index("CHECK ")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("server: {prot: 1}", "paddock.yaml:1: there is no setting server.prot; did you mean server.port?"),
        ("server: {port: many, host: 127.0.0.1}", "paddock.yaml:1: server.port: "),
        ("server: [", "not valid YAML"),
    ],
)
def test_other_checks_continue_after_an_error_of_the_configuration(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / "paddock.yaml").write_text(text)
    report = run_doctor(tmp_path)
    assert (report["findings"]["configuration"]["ok"], report["healthy"]) == (False, False)
    assert problem in report["findings"]["configuration"]["detail"]
    assert report["findings"]["data directory"]["ok"]
    assert {"port", "mmdebstrap", "ffmpeg"} <= set(report["findings"])


def test_missing_configuration_file_does_not_end_the_checks(tmp_path: Path) -> None:
    report = run_doctor(tmp_path, "--config", "nowhere.yaml")
    assert "there is no file" in report["findings"]["configuration"]["detail"]
    assert report["findings"]["data directory"]["ok"]


def test_proxy_in_use_is_named_without_its_password(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as proxy:
        port = proxy.getsockname()[1]
        address = f"http://alice:s3cr3t@127.0.0.1:{port}"
        report = run_doctor(tmp_path, environ={"HTTPS_PROXY": address, "http_proxy": "http://127.0.0.1:9"})
    proxies = [each for each in report["all"] if each["check"] == "outgoing proxy"]
    assert [(each["ok"], each["detail"].partition(": Conn")[0]) for each in proxies] == [
        (True, f"https: http://127.0.0.1:{port} (HTTPS_PROXY)"),
        (False, "http: http://127.0.0.1:9 (http_proxy)"),
    ]
    assert report["healthy"] is not None and "s3cr3t" not in json.dumps(report)


def test_invalid_proxy_is_reported_without_showing_it(tmp_path: Path) -> None:
    report = run_doctor(tmp_path, environ={"HTTPS_PROXY": "socks5://alice:s3cr3t@proxy.test:1080"})
    found = report["findings"]["outgoing proxy"]
    assert not found["ok"] and not report["healthy"]
    assert found["detail"].startswith("environment HTTPS_PROXY: is the address of a proxy with socks5")
    assert "s3cr3t" not in json.dumps(report)


def run_doctor(directory: Path, *options: str, environ: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return the report of `paddock doctor` in a directory, with its findings by name."""
    words = [sys.executable, "-m", "paddock", "doctor", "--no-trial", "--json", "--data", "data", *options]
    environment = {"PATH": os.environ["PATH"], "HOME": str(directory), "LANG": "C.UTF-8", **(environ or {})}
    done = subprocess.run(
        words, cwd=directory, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return {
        **report,
        "all": report["findings"],
        "findings": {finding["check"]: finding for finding in report["findings"]},
    }


def read_terminal(controller: int) -> bytes:
    """Read the next output; empty when the terminal is closed."""
    try:
        return os.read(controller, 65536)
    except OSError:
        return b""

"""Sandboxes from creation to removal, by the command line."""

from __future__ import annotations

import json
import re
import signal
import urllib.request
from pathlib import Path

import pytest

from paddock.model.keys import Scope
from tests.e2e.cli_driver import PaddockCli, PaddockCliServer


def test_create_prints_only_the_id_when_piped(server: PaddockCliServer, own_sandbox: str) -> None:
    assert re.fullmatch(r"sb-[0-9a-f]{16}", own_sandbox)


def test_created_sandbox_has_requested_properties(server: PaddockCliServer) -> None:
    sandbox = server.json_output(
        "sandbox",
        "create",
        "--name",
        "wished",
        "-m",
        "team=a",
        "-e",
        "FOO=b c",
        "--timeout",
        "10m",
        "--memory",
        "256Mi",
    )
    try:
        assert sandbox["status"]["state"] == "Running"
        assert sandbox["metadata"] == {"team": "a", "name": "wished"}
        assert sandbox["image"] == {"uri": "host"}
        assert server.output("sandbox", "exec", "wished", "-c", "echo $FOO") == "b c"
        assert sandbox["id"] in server.output("sandbox", "list", "-q", "-m", "team=a")
        assert sandbox["id"] not in server.output("sandbox", "list", "-q", "-m", "team=b")
    finally:
        assert server.output("sandbox", "rm", "wished") == sandbox["id"]
    assert sandbox["id"] not in server.output("sandbox", "list", "-q")


def test_entrypoint_runs_and_is_logged(server: PaddockCliServer) -> None:
    sandbox = server.output(
        "sandbox", "create", "--timeout", "none", "--", "sh", "-c", "echo started; echo bad >&2; exit 4"
    )
    try:
        result = server.run("sandbox", "logs", sandbox, "--follow")
        assert (result.stdout, result.stderr) == (b"started\n", b"bad\nwarning: the command ended with exit code 4\n")
        assert "expires" in server.output("sandbox", "show", sandbox) and "never" in server.output(
            "sandbox", "show", sandbox
        )
    finally:
        server.run("sandbox", "rm", sandbox)


def test_failed_entrypoint_start_causes_a_warning(server: PaddockCliServer) -> None:
    result = server.run("sandbox", "create", "--", "no-such-program")
    sandbox = result.stdout.decode().strip()
    try:
        assert result.returncode == 0
        warning = b"warning: no-such-program: No such file or directory; the sandbox runs without an entrypoint"
        assert warning in result.stderr
        assert b"no-such-program: No such file or directory" in server.run("sandbox", "logs", sandbox).stderr
    finally:
        server.run("sandbox", "rm", sandbox)


def test_logs_report_a_missing_entrypoint(server: PaddockCliServer, sandbox: str) -> None:
    result = server.run("sandbox", "logs", sandbox)
    assert result.returncode == 1
    assert b"has no entrypoint" in result.stderr


def test_id_prefix_is_enough(server: PaddockCliServer, own_sandbox: str) -> None:
    assert server.json_output("sandbox", "show", own_sandbox[3:13])["id"] == own_sandbox
    assert server.json_output("sandbox", "show", own_sandbox[:13])["id"] == own_sandbox
    wrong = server.run("sandbox", "show", "zz")
    assert wrong.returncode == 1
    assert wrong.stderr.startswith(b"error: there is no sandbox zz\n")


def test_misspelled_name_gets_a_suggestion(server: PaddockCliServer) -> None:
    sandbox = server.output("sandbox", "create", "--name", "first")
    for arguments in (["exec", "frist", "true"], ["rm", "frist"], ["show", "frist"]):
        wrong = server.run("sandbox", *arguments)
        assert b"there is no sandbox frist\n  did you mean first?" in wrong.stderr, arguments
    second = server.run("sandbox", "create", "--name", "first")
    assert f"error: sandbox {sandbox} is named first already".encode() in second.stderr
    assert b"paddock sandbox rm first" in second.stderr
    assert (
        json.loads(server.run("sandbox", "create", "--name", "first", "--json").stderr)["error"]["code"] == "NAME_TAKEN"
    )
    server.output("sandbox", "rm", sandbox)


def test_list_and_show_print_tables(server: PaddockCliServer, own_sandbox: str) -> None:
    header, *rows = server.output("sandbox", "list").splitlines()
    assert header.split()[:6] == ["ID", "STATE", "KIND", "IMAGE", "AGE", "EXPIRES"]
    row = next(row for row in rows if own_sandbox in row)
    assert row.split()[1:3] == ["Running", "host"]
    shown = server.output("sandbox", "show", own_sandbox)
    assert re.search(r"^state +Running$", shown, re.MULTILINE)


def test_pause_and_resume(server: PaddockCliServer, own_sandbox: str) -> None:
    assert server.output("sandbox", "pause", own_sandbox).endswith("Paused")
    refused = server.run("sandbox", "exec", own_sandbox, "--", "true")
    assert refused.returncode == 125
    assert b"is Paused" in refused.stderr
    again = server.run("sandbox", "pause", own_sandbox)
    assert again.returncode == 1
    assert server.json_output("sandbox", "resume", own_sandbox)["status"]["state"] == "Running"
    assert server.run("sandbox", "exec", own_sandbox, "--", "true").returncode == 0


def test_snapshot_starts_sandbox_with_the_same_files(server: PaddockCliServer, own_sandbox: str) -> None:
    server.output("sandbox", "exec", own_sandbox, "-c", "echo kept > /workspace/note")
    snapshot = server.output("sandbox", "snapshot", own_sandbox, "--name", "mine")
    listed = server.json_output("sandbox", "snapshots", "--sandbox", own_sandbox)
    assert [(item["id"], item["name"], item["status"]["state"]) for item in listed] == [(snapshot, "mine", "Ready")]
    second = server.output("sandbox", "create", "--snapshot", "mine")
    try:
        assert server.output("sandbox", "exec", second, "--", "cat", "/workspace/note") == "kept"
    finally:
        server.run("sandbox", "rm", second)
    assert server.output("sandbox", "snapshots", "--rm", "mine") == snapshot
    assert b"there is no snapshot mine" in server.run("sandbox", "create", "--snapshot", "mine").stderr
    assert server.json_output("sandbox", "snapshots", "--sandbox", own_sandbox) == []


def test_port_of_a_sandbox_is_reachable(server: PaddockCliServer, own_sandbox: str) -> None:
    program = "from http.server import *; HTTPServer(('127.0.0.1', 8123), SimpleHTTPRequestHandler).serve_forever()"
    server.output("sandbox", "exec", own_sandbox, "-c", "echo hello > /workspace/index.html")
    server.output("sandbox", "exec", own_sandbox, "--detach", "--cwd", "/workspace", "--", "python3", "-c", program)
    connects = "python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", 8123))' 2>/dev/null"
    up = f"for i in $(seq 100); do {connects} && exit 0; sleep 0.1; done; exit 1"
    assert server.run("sandbox", "exec", own_sandbox, "-c", up).returncode == 0
    endpoint = server.output("sandbox", "port", own_sandbox, "8123")
    with urllib.request.urlopen(f"http://{endpoint}/", timeout=30) as response:
        assert response.read() == b"hello\n"


def test_renewal_extends_the_expiry(server: PaddockCliServer, own_sandbox: str) -> None:
    before = server.json_output("sandbox", "show", own_sandbox)["expiresAt"]
    renewed = server.json_output("sandbox", "renew", own_sandbox, "--for", "3h")
    assert renewed["expiresAt"] > before
    assert server.json_output("sandbox", "show", own_sandbox)["expiresAt"] == renewed["expiresAt"]


def test_metrics_are_numbers(server: PaddockCliServer, sandbox: str) -> None:
    assert server.json_output("sandbox", "metrics", sandbox)["mem_total_mib"] > 0
    assert "memory" in server.output("sandbox", "metrics", sandbox)


def test_events_cover_the_sandbox_lifecycle(server: PaddockCliServer) -> None:
    sandbox = server.output("sandbox", "create")
    follower = server.start("events", "--follow", "--sandbox", sandbox, "--json")
    server.output("sandbox", "pause", sandbox)
    server.output("sandbox", "rm", sandbox)
    output, _ = follower.communicate(timeout=60)
    types = [json.loads(line)["type"] for line in output.splitlines()]
    assert types == ["sandbox.created", "sandbox.running", "sandbox.paused", "sandbox.stopping", "sandbox.ended"]
    assert any(sandbox in line and "sandbox.paused" in line for line in server.output("events").splitlines())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--image", "no-such-image"], "no-such-image"),
        (["--memory", "plenty"], "--memory: 'plenty' is not a size"),
        (["--timeout", "soon"], "--timeout: 'soon' is not a duration"),
        (["--volume", "nonsense"], "--volume 'nonsense' is not"),
        (["--env", "=x"], "is not NAME=VALUE"),
        (["--volume", "/etc:/host"], "/etc"),
    ],
)
def test_invalid_options_print_one_line_with_the_fix(
    server: PaddockCliServer, arguments: list[str], message: str
) -> None:
    result = server.run("sandbox", "create", *arguments)
    first, *_ = result.stderr.decode().splitlines()
    assert result.returncode in (1, 2)
    assert first.startswith("error: ") and message in first
    assert b"Traceback" not in result.stderr


def test_keys_are_created_used_and_revoked(server: PaddockCliServer) -> None:
    key = server.json_output("key", "create", "reader", "--scope", "sandboxes:read", "--expires", "1h")
    assert server.run("sandbox", "list", PADDOCK_API_KEY=key["secret"]).returncode == 0
    denied = server.run("sandbox", "create", "--json", PADDOCK_API_KEY=key["secret"])
    assert json.loads(denied.stderr)["error"]["code"] == "FORBIDDEN"
    assert key["id"] in server.output("key", "list")
    server.output("key", "revoke", "reader")
    refused = server.run("sandbox", "list", PADDOCK_API_KEY=key["secret"])
    assert refused.returncode == 1
    assert b"has been revoked" in refused.stderr


def test_unknown_scope_error_lists_all_scopes(server: PaddockCliServer) -> None:
    wrong = server.run("key", "create", "x", "--scope", "nope")
    named = set(re.findall(r"[a-z]+:[a-z]+|admin$", wrong.stderr.decode().strip().splitlines()[-1]))
    assert named == set(Scope)


def test_doctor_checks_the_running_server(server: PaddockCliServer) -> None:
    report = server.json_output("doctor")
    found = {finding["check"]: finding for finding in report["findings"]}
    assert report["healthy"] is True
    assert found["server"]["detail"] == f"running at {server.url}"
    assert found["trial"]["ok"] is True
    assert found["providers"]["detail"] == "no model is connected"
    assert not found["providers"]["required"]


def test_doctor_reports_unset_variable_and_continues(server: PaddockCliServer, tmp_path: Path) -> None:
    file = tmp_path / "paddock.yaml"
    file.write_text("llm:\n  providers:\n    some:\n      kind: openai\n      key: ${NOT_SET}\n")
    report = server.json_output("doctor", "--config", str(file))
    found = {finding["check"]: finding for finding in report["findings"]}
    assert report["healthy"] is True
    assert found["variables"]["detail"] == f"{file}:5: llm.providers.some.key: the environment has no NOT_SET"
    assert found["trial"]["ok"] is True
    shown = server.json_output("config", "show", "llm.providers", "--config", str(file))
    assert "unresolved: the environment has no NOT_SET" in [line["value"] for line in shown]
    for arguments in (("sandbox", "list"), ("runs", "list")):
        assert server.run(*arguments, "--config", str(file)).returncode == 0
    refused = server.run("serve", "--port", "0", "--config", str(file), "--data", str(tmp_path / "other"))
    assert b"paddock.yaml:5: llm.providers.some.key: the environment has no NOT_SET" in refused.stderr


def test_second_server_on_same_data_is_refused(server: PaddockCliServer) -> None:
    result = server.run("serve", "--port", "0")
    assert result.returncode == 1
    assert b"error: Another Paddock server" in result.stderr


def test_stopping_server_logs_remaining_sandboxes(tmp_path: Path) -> None:
    server = PaddockCliServer(tmp_path / "data")
    log = tmp_path / "server.log"
    server.start_server()
    sandboxes = [server.output("sandbox", "create", "--image", "host") for _ in range(3)]
    server.output("sandbox", "pause", sandboxes[2])
    assert server.stop_server(signal.SIGINT) == 0
    assert "2 sandboxes go on running; `paddock serve` finds them again" in log.read_text()
    server.start_server()
    server.output("sandbox", "rm", "--all")
    log_size = log.stat().st_size
    assert server.stop_server(signal.SIGINT) == 0
    assert "on running" not in log.read_text()[log_size:]


def test_missing_server_error_names_start_command(tmp_path: Path) -> None:
    result = PaddockCli(tmp_path).run("sandbox", "create")
    assert result.returncode == 1
    assert result.stderr == b"error: no Paddock server at http://127.0.0.1:8420; start one with: paddock serve\n"


def test_server_prints_banner_and_stops_quietly(tmp_path: Path) -> None:
    process = PaddockCli(tmp_path / "data").start("serve", "--port", "0")
    assert process.stdout is not None
    lines = [process.stdout.readline().decode() for _ in range(7)]
    process.send_signal(signal.SIGINT)
    _, complaints = process.communicate(timeout=60)
    assert process.returncode == 0
    assert b"Traceback" not in complaints
    text = "".join(lines)
    assert "is ready: http://127.0.0.1:" in lines[0]
    assert str(tmp_path / "data") in text
    assert "  models         " in lines[5] and lines[6].split()[:3] == ["try", "paddock", "chat"]
    assert (tmp_path / "data" / "local.key").read_text().strip() not in text

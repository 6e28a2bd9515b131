"""Sandboxes from creation to removal, by the command line."""

from __future__ import annotations

import json
import re
import signal
import urllib.request
from pathlib import Path

import pytest

from paddock.model.keys import Scope
from tests.e2e.cli_driver import Paddock, Server


def test_create_prints_only_the_id_when_piped(server: Server, own_sandbox: str) -> None:
    assert re.fullmatch(r"sb-[0-9a-f]{16}", own_sandbox)


def test_what_was_asked_for_is_there(server: Server) -> None:
    made = server.json(
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
        assert made["status"]["state"] == "Running"
        assert made["metadata"] == {"team": "a", "name": "wished"}
        assert made["image"] == {"uri": "host"}
        assert server.text("sandbox", "exec", "wished", "-c", "echo $FOO") == "b c"
        assert made["id"] in server.text("sandbox", "list", "-q", "-m", "team=a")
        assert made["id"] not in server.text("sandbox", "list", "-q", "-m", "team=b")
    finally:
        assert server.text("sandbox", "rm", "wished") == made["id"]
    assert made["id"] not in server.text("sandbox", "list", "-q")


def test_the_entrypoint_runs_and_is_logged(server: Server) -> None:
    sandbox = server.text(
        "sandbox", "create", "--timeout", "none", "--", "sh", "-c", "echo started; echo bad >&2; exit 4"
    )
    try:
        done = server.run("sandbox", "logs", sandbox, "--follow")
        assert (done.stdout, done.stderr) == (b"started\n", b"bad\nwarning: the command ended with exit code 4\n")
        assert "expires" in server.text("sandbox", "show", sandbox) and "never" in server.text(
            "sandbox", "show", sandbox
        )
    finally:
        server.run("sandbox", "rm", sandbox)


def test_an_entrypoint_that_cannot_start_is_told_of(server: Server) -> None:
    made = server.run("sandbox", "create", "--", "no-such-program")
    sandbox = made.stdout.decode().strip()
    try:
        assert made.returncode == 0
        warning = b"warning: no-such-program: No such file or directory; the sandbox runs without an entrypoint"
        assert warning in made.stderr
        assert b"no-such-program: No such file or directory" in server.run("sandbox", "logs", sandbox).stderr
    finally:
        server.run("sandbox", "rm", sandbox)


def test_a_sandbox_without_entrypoint_says_so(server: Server, sandbox: str) -> None:
    done = server.run("sandbox", "logs", sandbox)
    assert done.returncode == 1
    assert b"has no entrypoint" in done.stderr


def test_the_beginning_of_an_id_is_enough(server: Server, own_sandbox: str) -> None:
    assert server.json("sandbox", "show", own_sandbox[3:13])["id"] == own_sandbox
    assert server.json("sandbox", "show", own_sandbox[:13])["id"] == own_sandbox
    wrong = server.run("sandbox", "show", "zz")
    assert wrong.returncode == 1
    assert wrong.stderr.startswith(b"error: there is no sandbox zz\n")


def test_a_name_that_is_nearly_right_is_answered_with_the_one_there_is(server: Server) -> None:
    sandbox = server.text("sandbox", "create", "--name", "first")
    for words in (["exec", "frist", "true"], ["rm", "frist"], ["show", "frist"]):
        wrong = server.run("sandbox", *words)
        assert b"there is no sandbox frist\n  did you mean first?" in wrong.stderr, words
    second = server.run("sandbox", "create", "--name", "first")
    assert f"error: sandbox {sandbox} is named first already".encode() in second.stderr
    assert b"paddock sandbox rm first" in second.stderr
    assert (
        json.loads(server.run("sandbox", "create", "--name", "first", "--json").stderr)["error"]["code"] == "NAME_TAKEN"
    )
    server.text("sandbox", "rm", sandbox)


def test_list_and_show_for_people(server: Server, own_sandbox: str) -> None:
    header, *rows = server.text("sandbox", "list").splitlines()
    assert header.split()[:6] == ["ID", "STATE", "KIND", "IMAGE", "AGE", "EXPIRES"]
    row = next(row for row in rows if own_sandbox in row)
    assert row.split()[1:3] == ["Running", "host"]
    shown = server.text("sandbox", "show", own_sandbox)
    assert re.search(r"^state +Running$", shown, re.MULTILINE)


def test_pause_and_resume(server: Server, own_sandbox: str) -> None:
    assert server.text("sandbox", "pause", own_sandbox).endswith("Paused")
    refused = server.run("sandbox", "exec", own_sandbox, "--", "true")
    assert refused.returncode == 125
    assert b"is Paused" in refused.stderr
    again = server.run("sandbox", "pause", own_sandbox)
    assert again.returncode == 1
    assert server.json("sandbox", "resume", own_sandbox)["status"]["state"] == "Running"
    assert server.run("sandbox", "exec", own_sandbox, "--", "true").returncode == 0


def test_a_snapshot_starts_another_with_the_same_files(server: Server, own_sandbox: str) -> None:
    server.text("sandbox", "exec", own_sandbox, "-c", "echo kept > /workspace/note")
    snapshot = server.text("sandbox", "snapshot", own_sandbox, "--name", "mine")
    listed = server.json("sandbox", "snapshots", "--sandbox", own_sandbox)
    assert [(item["id"], item["name"], item["status"]["state"]) for item in listed] == [(snapshot, "mine", "Ready")]
    second = server.text("sandbox", "create", "--snapshot", "mine")
    try:
        assert server.text("sandbox", "exec", second, "--", "cat", "/workspace/note") == "kept"
    finally:
        server.run("sandbox", "rm", second)
    assert server.text("sandbox", "snapshots", "--rm", "mine") == snapshot
    assert b"there is no snapshot mine" in server.run("sandbox", "create", "--snapshot", "mine").stderr
    assert server.json("sandbox", "snapshots", "--sandbox", own_sandbox) == []


def test_a_port_can_be_reached(server: Server, own_sandbox: str) -> None:
    program = "from http.server import *; HTTPServer(('127.0.0.1', 8123), SimpleHTTPRequestHandler).serve_forever()"
    server.text("sandbox", "exec", own_sandbox, "-c", "echo hello > /workspace/index.html")
    server.text("sandbox", "exec", own_sandbox, "--detach", "--cwd", "/workspace", "--", "python3", "-c", program)
    connects = "python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", 8123))' 2>/dev/null"
    up = f"for i in $(seq 100); do {connects} && exit 0; sleep 0.1; done; exit 1"
    assert server.run("sandbox", "exec", own_sandbox, "-c", up).returncode == 0
    endpoint = server.text("sandbox", "port", own_sandbox, "8123")
    with urllib.request.urlopen(f"http://{endpoint}/", timeout=30) as answer:
        assert answer.read() == b"hello\n"


def test_renewing_moves_the_end(server: Server, own_sandbox: str) -> None:
    before = server.json("sandbox", "show", own_sandbox)["expiresAt"]
    renewed = server.json("sandbox", "renew", own_sandbox, "--for", "3h")
    assert renewed["expiresAt"] > before
    assert server.json("sandbox", "show", own_sandbox)["expiresAt"] == renewed["expiresAt"]


def test_metrics_are_numbers(server: Server, sandbox: str) -> None:
    assert server.json("sandbox", "metrics", sandbox)["mem_total_mib"] > 0
    assert "memory" in server.text("sandbox", "metrics", sandbox)


def test_events_tell_the_story(server: Server) -> None:
    sandbox = server.text("sandbox", "create")
    follower = server.start("events", "--follow", "--sandbox", sandbox, "--json")
    server.text("sandbox", "pause", sandbox)
    server.text("sandbox", "rm", sandbox)
    output, _ = follower.communicate(timeout=60)
    types = [json.loads(line)["type"] for line in output.splitlines()]
    assert types == ["sandbox.created", "sandbox.running", "sandbox.paused", "sandbox.stopping", "sandbox.ended"]
    assert any(sandbox in line and "sandbox.paused" in line for line in server.text("events").splitlines())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--image", "no-such-image"], "no-such-image"),
        (["--memory", "plenty"], "--memory: 'plenty' is not a size"),
        (["--timeout", "soon"], "--timeout: 'soon' is not a duration"),
        (["--volume", "nonsense"], "--volume 'nonsense' is not"),
        (["--env", "=x"], "is not NAME=VALUE"),
        (["--volume", "/etc:/host"], "/etc"),
    ],
)
def test_mistakes_get_one_line_that_says_what_to_mend(server: Server, words: list[str], message: str) -> None:
    done = server.run("sandbox", "create", *words)
    first, *_ = done.stderr.decode().splitlines()
    assert done.returncode in (1, 2)
    assert first.startswith("error: ") and message in first
    assert b"Traceback" not in done.stderr


def test_keys_are_made_used_and_revoked_through_the_server(server: Server) -> None:
    made = server.json("key", "create", "reader", "--scope", "sandboxes:read", "--expires", "1h")
    assert server.run("sandbox", "list", PADDOCK_API_KEY=made["secret"]).returncode == 0
    denied = server.run("sandbox", "create", "--json", PADDOCK_API_KEY=made["secret"])
    assert json.loads(denied.stderr)["error"]["code"] == "FORBIDDEN"
    assert made["id"] in server.text("key", "list")
    server.text("key", "revoke", "reader")
    refused = server.run("sandbox", "list", PADDOCK_API_KEY=made["secret"])
    assert refused.returncode == 1
    assert b"has been revoked" in refused.stderr


def test_every_scope_there_is_may_be_asked_for(server: Server) -> None:
    wrong = server.run("key", "create", "x", "--scope", "nope")
    named = set(re.findall(r"[a-z]+:[a-z]+|admin$", wrong.stderr.decode().strip().splitlines()[-1]))
    assert named == set(Scope)


def test_the_doctor_tries_the_running_server(server: Server) -> None:
    report = server.json("doctor")
    found = {finding["check"]: finding for finding in report["findings"]}
    assert report["healthy"] is True
    assert found["server"]["detail"] == f"running at {server.url}"
    assert found["trial"]["ok"] is True
    assert found["providers"]["detail"] == "no model is connected"
    assert not found["providers"]["required"]


def test_the_doctor_reports_an_unset_variable_and_goes_on(server: Server, tmp_path: Path) -> None:
    file = tmp_path / "paddock.yaml"
    file.write_text("llm:\n  providers:\n    some:\n      kind: openai\n      key: ${NOT_SET}\n")
    report = server.json("doctor", "--config", str(file))
    found = {finding["check"]: finding for finding in report["findings"]}
    assert report["healthy"] is True
    assert found["variables"]["detail"] == f"{file}:5: llm.providers.some.key: the environment has no NOT_SET"
    assert found["trial"]["ok"] is True
    shown = server.json("config", "show", "llm.providers", "--config", str(file))
    assert "unresolved: the environment has no NOT_SET" in [line["value"] for line in shown]
    for words in (("sandbox", "list"), ("runs", "list")):
        assert server.run(*words, "--config", str(file)).returncode == 0
    refused = server.run("serve", "--port", "0", "--config", str(file), "--data", str(tmp_path / "other"))
    assert b"paddock.yaml:5: llm.providers.some.key: the environment has no NOT_SET" in refused.stderr


def test_a_second_server_is_refused(server: Server) -> None:
    done = server.run("serve", "--port", "0")
    assert done.returncode == 1
    assert b"error: Another Paddock server" in done.stderr


def test_a_server_that_stops_says_which_sandboxes_go_on(tmp_path: Path) -> None:
    server = Server(tmp_path / "data")
    log = tmp_path / "server.log"
    server.up()
    sandboxes = [server.text("sandbox", "create", "--image", "host") for _ in range(3)]
    server.text("sandbox", "pause", sandboxes[2])
    assert server.down(signal.SIGINT) == 0
    assert "2 sandboxes go on running; `paddock serve` finds them again" in log.read_text()
    server.up()
    server.text("sandbox", "rm", "--all")
    begun = log.stat().st_size
    assert server.down(signal.SIGINT) == 0
    assert "on running" not in log.read_text()[begun:]


def test_without_a_server_it_says_how_to_start_one(tmp_path: Path) -> None:
    done = Paddock(tmp_path).run("sandbox", "create")
    assert done.returncode == 1
    assert done.stderr == b"error: no Paddock server at http://127.0.0.1:8420; start one with: paddock serve\n"


def test_the_server_starts_with_a_banner_and_stops_quietly(tmp_path: Path) -> None:
    process = Paddock(tmp_path / "data").start("serve", "--port", "0")
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

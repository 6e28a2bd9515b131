"""Shell completion of names in a real shell, with and without a server; it never prints errors."""

from __future__ import annotations

import json
import os
import re
import select
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from paddock.cli.connection.server_address import has_running_server
from tests.e2e.cli_driver import COMMAND_TIMEOUT, PADDOCK_COMMAND, PaddockCli, PaddockCliServer
from tests.support.server import eventually

SHELL_PROMPT = b"ready> "


class CompletingBash:
    """An interactive bash on a terminal, with Paddock's completion."""

    def __init__(self, env: dict[str, str]) -> None:
        self._master, slave = os.openpty()
        path = f"{os.path.dirname(PADDOCK_COMMAND)}:{env['PATH']}"
        self._process = subprocess.Popen(
            ["bash", "--norc", "--noprofile", "-i"],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env={**env, "PATH": path, "PS1": SHELL_PROMPT.decode(), "TERM": "dumb"},
            start_new_session=True,
        )
        os.close(slave)
        self._read_until(re.escape(SHELL_PROMPT))
        self._type("stty cols 200; eval \"$(_PADDOCK_COMPLETE=source_bash paddock)\"; echo se''t\r")
        self._read_until(rb"set\r\n.*" + re.escape(SHELL_PROMPT))

    def complete(self, typed: str, completed: str) -> None:
        """Type a line, press Tab, wait for the whole line, and replace it with another command."""
        self._type(f"{typed}\t")
        self._read_until(re.escape(completed.encode()))
        # bash may ignore Ctrl-C while it shows a completion.
        self._type("\x15echo cle''ared\r")
        self._read_until(rb"cleared\r\n.*" + re.escape(SHELL_PROMPT))

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._master)

    def _type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def _read_until(self, pattern: bytes) -> bytes:
        seen, deadline = b"", time.monotonic() + COMMAND_TIMEOUT
        while not (match := re.search(pattern, seen, re.DOTALL)):
            ready, _, _ = select.select([self._master], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"{pattern!r} was not shown; this was: {seen!r}"
            seen += os.read(self._master, 65536)
        return seen[: match.end()]


def complete_line(paddock: PaddockCli, line: str) -> list[str]:
    """Return completions of the last word; check that nothing else is printed."""
    result = subprocess.run(
        [PADDOCK_COMMAND],
        capture_output=True,
        text=True,
        timeout=COMMAND_TIMEOUT,
        env={
            **paddock.env,
            "_PADDOCK_COMPLETE": "complete_bash",
            "COMP_WORDS": line,
            "COMP_CWORD": str(len(line.split()) - (not line.endswith(" "))),
        },
        check=False,
    )
    assert result.stderr == ""
    return result.stdout.split()


@pytest.fixture
def bash(server: PaddockCliServer) -> Iterator[CompletingBash]:
    shell = CompletingBash(server.env)
    yield shell
    shell.close()


def test_bash_completes_a_sandbox_and_a_kind(bash: CompletingBash, sandbox: str) -> None:
    bash.complete("paddock sandbox show shar", "paddock sandbox show shared ")
    bash.complete(f"paddock sandbox show {sandbox[:-3]}", f"paddock sandbox show {sandbox} ")
    bash.complete("paddock sandbox create --kind wind", "paddock sandbox create --kind windows ")


def test_completion_offers_names_with_a_server(server: PaddockCliServer, sandbox: str) -> None:
    assert {"shared", sandbox} <= set(complete_line(server, "paddock sandbox exec "))
    assert "code" in complete_line(server, "paddock image build c")
    assert complete_line(server, "paddock sandbox create --image hos") == ["host"]
    assert complete_line(server, "paddock session show l") == ["last"]


def test_completion_offers_names_without_starting_a_server(tmp_path: Path) -> None:
    server = PaddockCliServer(tmp_path / "data")
    server.start_server()
    server.output("pool", "create", "desks", "--image", "host", "--size", "0")
    assert server.stop_server() == 0
    key = server.json_output("key", "list")[0]["id"]
    server.env["PADDOCK_CONFIG"] = str(tmp_path / "paddock.yaml")
    (tmp_path / "paddock.yaml").write_text(
        "llm: {models: {fast: fake/x, 'gpt-*': fake}, providers: {fake: {key: '${NO}'}}}"
    )
    assert complete_line(server, "paddock pool rm d") == ["desks"]
    assert key in complete_line(server, "paddock key revoke ")
    assert complete_line(server, "paddock llm test ") == ["fast"]
    assert {"code", "linux"} <= set(complete_line(server, "paddock pool create x --kind "))
    assert complete_line(server, "paddock config show ") == []
    assert not has_running_server(server.data)


def test_completion_offers_runs_and_sessions_with_and_without_server(tmp_path: Path) -> None:
    server = PaddockCliServer(tmp_path / "data")
    server.start_server()
    key = (server.data / "local.key").read_text().strip()
    with httpx.Client(base_url=server.url, headers={"Authorization": f"Bearer {key}"}) as client:
        # More than one default page of the API.
        sessions = {client.post("/v1/sessions", json={}).raise_for_status().json()["id"] for _ in range(25)}
    (tmp_path / "hello.json").write_text(
        json.dumps({"name": "hello", "goal": "Say hello.", "image": "host", "entrypoint": "echo hello"})
    )
    run = server.output("run", str(tmp_path / "hello.json"), "--detach")
    assert server.run("runs", "watch", run).returncode == 0
    eventually(lambda: sessions <= set(complete_line(server, f"paddock session show --server {server.url} ")))
    eventually(lambda: {"hello", run} <= set(complete_line(server, f"paddock runs show --server {server.url} ")))
    assert server.stop_server() == 0
    assert {"last", *sessions} <= set(complete_line(server, "paddock session show "))
    assert {"hello", run} == set(complete_line(server, "paddock runs show "))
    assert not has_running_server(server.data)


@pytest.mark.parametrize(
    "arguments", ["sandbox show ", "runs show ", "llm test ", "image show nosuch", "chat --model "]
)
def test_completion_prints_nothing_without_data(tmp_path: Path, arguments: str) -> None:
    paddock = PaddockCli(tmp_path / "none")
    paddock.env["PADDOCK_CONFIG"] = str(tmp_path / "broken.yaml")
    (tmp_path / "broken.yaml").write_text("llm: [")
    assert complete_line(paddock, f"paddock {arguments}") == []
    assert not paddock.data.exists()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_gets_a_script(tmp_path: Path, shell: str) -> None:
    result = PaddockCli(tmp_path).run("--version", _PADDOCK_COMPLETE=f"source_{shell}")
    assert b"_PADDOCK_COMPLETE=complete_" + shell.encode() in result.stdout

"""Names of things are completed by a real shell, with a server and without one, and nothing is ever printed."""

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
from tests.e2e.cli_driver import COMMAND, SECONDS, Paddock, Server
from tests.support.server import eventually

PROMPT = b"ready> "


class Bash:
    """An interactive bash on a terminal, with Paddock's completion."""

    def __init__(self, env: dict[str, str]) -> None:
        self._master, slave = os.openpty()
        path = f"{os.path.dirname(COMMAND)}:{env['PATH']}"
        self._process = subprocess.Popen(
            ["bash", "--norc", "--noprofile", "-i"],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env={**env, "PATH": path, "PS1": PROMPT.decode(), "TERM": "dumb"},
            start_new_session=True,
        )
        os.close(slave)
        self._until(re.escape(PROMPT))
        self._type("stty cols 200; eval \"$(_PADDOCK_COMPLETE=source_bash paddock)\"; echo se''t\r")
        self._until(rb"set\r\n.*" + re.escape(PROMPT))

    def complete(self, begun: str, whole: str) -> None:
        """Type a line, press Tab, wait for the whole line, and replace it with another command."""
        self._type(f"{begun}\t")
        self._until(re.escape(whole.encode()))
        # bash may ignore Ctrl-C while it shows a completion.
        self._type("\x15echo cle''ared\r")
        self._until(rb"cleared\r\n.*" + re.escape(PROMPT))

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._master)

    def _type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def _until(self, pattern: bytes) -> bytes:
        seen, deadline = b"", time.monotonic() + SECONDS
        while not (found := re.search(pattern, seen, re.DOTALL)):
            ready, _, _ = select.select([self._master], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"{pattern!r} was not shown; this was: {seen!r}"
            seen += os.read(self._master, 65536)
        return seen[: found.end()]


def offered(paddock: Paddock, line: str) -> list[str]:
    """Return completions of the last word; check that nothing else is printed."""
    done = subprocess.run(
        [COMMAND],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        env={
            **paddock.env,
            "_PADDOCK_COMPLETE": "complete_bash",
            "COMP_WORDS": line,
            "COMP_CWORD": str(len(line.split()) - (not line.endswith(" "))),
        },
        check=False,
    )
    assert done.stderr == ""
    return done.stdout.split()


@pytest.fixture
def bash(server: Server) -> Iterator[Bash]:
    shell = Bash(server.env)
    yield shell
    shell.close()


def test_bash_completes_a_sandbox_and_a_kind(bash: Bash, sandbox: str) -> None:
    bash.complete("paddock sandbox show shar", "paddock sandbox show shared ")
    bash.complete(f"paddock sandbox show {sandbox[:-3]}", f"paddock sandbox show {sandbox} ")
    bash.complete("paddock sandbox create --kind wind", "paddock sandbox create --kind windows ")


def test_names_are_offered_with_a_server(server: Server, sandbox: str) -> None:
    assert {"shared", sandbox} <= set(offered(server, "paddock sandbox exec "))
    assert "code" in offered(server, "paddock image build c")
    assert offered(server, "paddock sandbox create --image hos") == ["host"]
    assert offered(server, "paddock session show l") == ["last"]


def test_names_are_offered_without_a_server_and_none_is_started(tmp_path: Path) -> None:
    server = Server(tmp_path / "data")
    server.up()
    server.text("pool", "create", "desks", "--image", "host", "--size", "0")
    assert server.down() == 0
    key = server.json("key", "list")[0]["id"]
    server.env["PADDOCK_CONFIG"] = str(tmp_path / "paddock.yaml")
    (tmp_path / "paddock.yaml").write_text(
        "llm: {models: {fast: fake/x, 'gpt-*': fake}, providers: {fake: {key: '${NO}'}}}"
    )
    assert offered(server, "paddock pool rm d") == ["desks"]
    assert key in offered(server, "paddock key revoke ")
    assert offered(server, "paddock llm test ") == ["fast"]
    assert {"code", "linux"} <= set(offered(server, "paddock pool create x --kind "))
    assert offered(server, "paddock config show ") == []
    assert not has_running_server(server.data)


def test_runs_and_sessions_are_offered_with_a_server_and_without_one(tmp_path: Path) -> None:
    server = Server(tmp_path / "data")
    server.up()
    key = (server.data / "local.key").read_text().strip()
    with httpx.Client(base_url=server.url, headers={"Authorization": f"Bearer {key}"}) as client:
        # More than one default page of the API.
        sessions = {client.post("/v1/sessions", json={}).raise_for_status().json()["id"] for _ in range(25)}
    (tmp_path / "hello.json").write_text(
        json.dumps({"name": "hello", "goal": "Say hello.", "image": "host", "entrypoint": "echo hello"})
    )
    run = server.text("run", str(tmp_path / "hello.json"), "--detach")
    assert server.run("runs", "watch", run).returncode == 0
    eventually(lambda: sessions <= set(offered(server, f"paddock session show --server {server.url} ")))
    eventually(lambda: {"hello", run} <= set(offered(server, f"paddock runs show --server {server.url} ")))
    assert server.down() == 0
    assert {"last", *sessions} <= set(offered(server, "paddock session show "))
    assert {"hello", run} == set(offered(server, "paddock runs show "))
    assert not has_running_server(server.data)


@pytest.mark.parametrize("words", ["sandbox show ", "runs show ", "llm test ", "image show nosuch", "chat --model "])
def test_completion_prints_nothing_without_data(tmp_path: Path, words: str) -> None:
    paddock = Paddock(tmp_path / "none")
    paddock.env["PADDOCK_CONFIG"] = str(tmp_path / "broken.yaml")
    (tmp_path / "broken.yaml").write_text("llm: [")
    assert offered(paddock, f"paddock {words}") == []
    assert not paddock.data.exists()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_gets_a_script(tmp_path: Path, shell: str) -> None:
    done = Paddock(tmp_path).run("--version", _PADDOCK_COMPLETE=f"source_{shell}")
    assert b"_PADDOCK_COMPLETE=complete_" + shell.encode() in done.stdout

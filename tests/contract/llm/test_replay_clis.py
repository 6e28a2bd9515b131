"""Agent programs find a replayed recording by what `paddock llm replay` sets, without settings of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.contract.llm.agent_clis import INSTALLED, PROGRAMS, UNREACHABLE, AgentProgram
from tests.contract.llm.test_agent_clis import key_for
from tests.support.server import Server, eventually

PADDOCK = Path(sys.executable).parent / "paddock"
COMMANDS = {
    "gemini": ["-m", "hello", "-y", "--skip-trust", "-p", "Say hello."],
    "qwen": ["-m", "hello", "-y", "Say hello."],
}


@pytest.mark.parametrize("cli", COMMANDS)
def test_cli_uses_replay_endpoint_without_settings_file(scripted: Server, tmp_path: Path, cli: str) -> None:
    session, recording = f"replayed-{cli}", tmp_path / "run.jsonl"
    program = AgentProgram(cli, tmp_path / "recorded")
    with scripted.client() as client:
        program.start(scripted.url, key_for(client, session), "hello", "Say hello.")
        assert program.wait(90).code == 0
        eventually(lambda: client.get("/v1/exchanges", params={"session": session}).json()["items"])
    home = tmp_path / "home"
    home.mkdir()
    environment = {
        "PATH": f"{INSTALLED / 'bin'}:{os.environ['PATH']}",
        "HOME": str(home),
        "TERM": "dumb",
        "GEMINI_CLI_NO_RELAUNCH": "true",
        "QWEN_CODE_NO_RELAUNCH": "1",
        "NO_PROXY": "127.0.0.1,localhost",
        **({"HTTP_PROXY": UNREACHABLE, "HTTPS_PROXY": UNREACHABLE} if cli == "gemini" else {}),
    }
    data = ["--data", str(scripted.data)]
    for words in (
        ["llm", "record", str(recording), "--session", session, *data],
        ["llm", "replay", str(recording), "--match", "sequence", "--", str(PROGRAMS / cli), *COMMANDS[cli]],
    ):
        done = subprocess.run(
            [PADDOCK, *words], capture_output=True, text=True, timeout=120, env=environment, cwd=home, check=False
        )
        assert done.returncode == 0, done.stderr
    assert "Hello." in done.stdout

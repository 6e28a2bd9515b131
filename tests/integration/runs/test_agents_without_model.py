"""Agent programs started by hand in a sandbox find their model through the image and its variables."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest

from tests.support.server import Server, run_in_sandbox, run_server

from .agent_images import share_images

pytestmark = pytest.mark.timeout(1500)
COMMANDS = {
    "agent-claude-code": "claude -p 'Say hello.' --model claude-sonnet-4-5",
    "agent-codex": "codex exec --skip-git-repo-check -m gpt-5 'Say hello.'",
    "agent-gemini-cli": "gemini -m gemini-2.5-pro -p 'Say hello.'",
    "agent-opencode": "opencode run -m anthropic/claude-sonnet-4-5 'Say hello.'",
    "agent-qwen-code": "qwen -m qwen3-coder-plus -p 'Say hello.'",
}
BARE = {
    "agent-claude-code": "claude -p 'Say hello.'",
    "agent-codex": "codex exec --skip-git-repo-check 'Say hello.'",
    "agent-gemini-cli": "gemini -p 'Say hello.'",
    "agent-opencode": "opencode run 'Say hello.'",
    "agent-qwen-code": "qwen -p 'Say hello.'",
}
DEFAULT_MODEL = "house-model"
MODELS = (DEFAULT_MODEL, "claude-*", "gpt-5*", "gemini-*", "qwen3-coder-plus")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("bare")
    share_images(directory / "data", list(COMMANDS))
    script = directory / "hello.script.yaml"
    script.write_text(json.dumps({"turns": [{"say": "Hello from the script."}]}))
    llm = {
        "providers": {"script": {"kind": "script", "file": str(script)}},
        "models": dict.fromkeys(MODELS, "script/m"),
    }
    with run_server(directory, {"llm": llm}) as running:
        yield running


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[httpx.Client]:
    with server.client() as made:
        made.timeout = httpx.Timeout(120)
        yield made


@contextmanager
def sandbox_of(client: httpx.Client, image: str) -> Iterator[str]:
    body = {"image": {"uri": image}, "entrypoint": ["sleep", "600"], "resourceLimits": {"memory": "2Gi"}}
    made = client.post("/v1/sandboxes", json=body)
    assert made.status_code < 300, made.text
    sandbox: str = made.json()["id"]
    try:
        yield sandbox
    finally:
        client.delete(f"/v1/sandboxes/{sandbox}")


def ask(client: httpx.Client, sandbox: str, command: str) -> set[str]:
    """Run a command that must answer, and return the models of its requests."""
    written, code = run_in_sandbox(client, sandbox, f"cd /workspace && timeout 60 {command} </dev/null 2>&1")
    assert code == 0 and "Hello from the script." in written, written
    found = client.get("/v1/exchanges", params={"sandbox": sandbox}).json()["items"]
    return {exchange["model"] for exchange in found if exchange["outcome"] == "ok"}


@pytest.mark.parametrize("image", COMMANDS)
def test_a_command_with_a_model_finds_the_proxy(client: httpx.Client, image: str) -> None:
    with sandbox_of(client, image) as sandbox:
        ask(client, sandbox, COMMANDS[image])


@pytest.mark.parametrize("image", BARE)
def test_the_bare_command_uses_the_servers_default_model(client: httpx.Client, image: str) -> None:
    with sandbox_of(client, image) as sandbox:
        assert ask(client, sandbox, BARE[image]) == {DEFAULT_MODEL}


def test_codex_prefers_the_model_of_its_users_configuration(client: httpx.Client) -> None:
    with sandbox_of(client, "agent-codex") as sandbox:
        run_in_sandbox(client, sandbox, "mkdir -p ~/.codex && echo 'model = \"gpt-5\"' > ~/.codex/config.toml")
        assert ask(client, sandbox, BARE["agent-codex"]) == {"gpt-5"}
        assert ask(client, sandbox, f"{BARE['agent-codex']} -m gpt-5-mini") == {"gpt-5", "gpt-5-mini"}

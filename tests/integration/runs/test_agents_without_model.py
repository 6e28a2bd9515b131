"""Agent programs typed by hand in a sandbox find their model by the image and the sandbox's variables alone."""

from __future__ import annotations

import json
from collections.abc import Iterator

import httpx
import pytest

from tests.support.server import Server, run, serving

from .agent_images import share_images

pytestmark = pytest.mark.timeout(1500)
COMMANDS = {
    "agent-claude-code": "claude -p 'Say hello.' --model claude-sonnet-4-5",
    "agent-codex": "codex exec --skip-git-repo-check -m gpt-5 'Say hello.'",
    "agent-gemini-cli": "gemini -m gemini-2.5-pro -p 'Say hello.'",
    "agent-opencode": "opencode run -m anthropic/claude-sonnet-4-5 'Say hello.'",
    "agent-qwen-code": "qwen -m qwen3-coder-plus -p 'Say hello.'",
}
MODELS = ("claude-*", "gpt-5*", "gemini-*", "qwen3-coder-plus")


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
    with serving(directory, {"llm": llm}) as running:
        yield running


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[httpx.Client]:
    with server.client() as made:
        made.timeout = httpx.Timeout(120)
        yield made


@pytest.mark.parametrize("image", COMMANDS)
def test_the_bare_command_finds_its_model(client: httpx.Client, image: str) -> None:
    body = {"image": {"uri": image}, "entrypoint": ["sleep", "600"], "resourceLimits": {"memory": "2Gi"}}
    made = client.post("/v1/sandboxes", json=body)
    assert made.status_code < 300, made.text
    sandbox = made.json()["id"]
    try:
        written, code = run(client, sandbox, f"cd /workspace && timeout 60 {COMMANDS[image]} </dev/null 2>&1")
    finally:
        client.delete(f"/v1/sandboxes/{sandbox}")
    assert code == 0 and "Hello from the script." in written, written

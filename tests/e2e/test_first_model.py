"""The first model: a provider key in the environment is enough to chat."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from paddock.config.provider_discovery import KNOWN_PROVIDERS
from tests.e2e.cli_driver import PaddockCliServer
from tests.support.fake_provider import PlannedResponse
from tests.support.server import eventually, run_server
from tests.support.strict_providers import PROVIDER_KEY, PROVIDER_NAMES, REPLY, StrictProvider, run_strict_provider

MODEL_PATTERNS = {"gemini" if known.name == "google" else known.name: known.models for known in KNOWN_PROVIDERS}
TREAT_LOCALHOST_AS_VENDOR = """
from dataclasses import replace
from paddock.config import provider_discovery as discovery
discovery.KNOWN_PROVIDERS = tuple(
    replace(each, domains=(*each.domains, "127.0.0.1")) for each in discovery.KNOWN_PROVIDERS
)
"""
"""Makes a process treat providers on localhost as the vendors' own servers."""


def create_provider_cli(directory: Path, provider: StrictProvider, *, vendor: bool = False) -> PaddockCliServer:
    """Return a command with one provider's key in its environment. With `vendor`, the provider is the vendor itself."""
    data = directory / "data"
    data.mkdir(mode=0o700)
    server = PaddockCliServer(data)
    variables = ("API_KEY", "BASE_URL", "AUTH_TOKEN")
    server.env = {name: value for name, value in server.env.items() if not name.endswith(variables)}
    server.env |= {**provider.environment(), "HOME": str(directory)}
    if vendor:
        (directory / "sitecustomize.py").write_text(TREAT_LOCALHOST_AS_VENDOR)
        server.env["PYTHONPATH"] = os.pathsep.join(filter(None, (str(directory), server.env.get("PYTHONPATH"))))
    return server


@contextmanager
def run_provider_server(
    directory: Path, provider: StrictProvider, *, vendor: bool = False
) -> Iterator[PaddockCliServer]:
    server = create_provider_cli(directory, provider, vendor=vendor)
    server.start_server()
    try:
        yield server
    finally:
        assert server.stop_server() == 0


def open_client(server: PaddockCliServer) -> httpx.Client:
    key = (server.data / "local.key").read_text().strip()
    return httpx.Client(base_url=server.url, headers={"Authorization": f"Bearer {key}"}, trust_env=False, timeout=60)


@pytest.mark.parametrize("vendor", [True, False], ids=["vendor", "compatible-server"])
@pytest.mark.parametrize("name", PROVIDER_NAMES)
def test_provider_key_in_environment_is_enough(tmp_path: Path, name: str, vendor: bool) -> None:
    with (
        run_strict_provider(name) as provider,
        run_provider_server(tmp_path, provider, vendor=vendor) as server,
        open_client(server) as client,
    ):
        chatting = {model for model in provider.models if model not in provider.hidden}

        assert {each["id"] for each in client.get("/v1/models").json()["data"]} == chatting
        models = client.get("/v1/server").json()["models"]
        assert {each["name"] for each in models["items"]} == chatting
        assert models["default"] == provider.default
        assert models["patterns"] == (list(MODEL_PATTERNS[name]) if vendor else ["*"])

        reply = REPLY.format(model=provider.default)
        for kinds in ([], ["code"], *([["linux", "browser", "windows", "mobile"]] if vendor else [])):
            session = client.post("/v1/sessions", json={"kinds": kinds}).raise_for_status().json()
            assert session["model"] == provider.default
            body = {"content": [{"type": "text", "text": "Hello, who are you?"}]}
            client.post(f"/v1/sessions/{session['id']}/messages", json=body).raise_for_status()
            path = f"/v1/sessions/{session['id']}/messages"
            eventually(lambda path=path: provider.problems or reply in client.get(path).text)  # type: ignore[misc]
            assert provider.problems == []
        assert "ask_user" in provider.requested_tools[0]
        assert {"code_run_shell_command", "code_write_file"} <= provider.requested_tools[1]
        assert not vendor or {"linux_start_app", "browser_navigate", "mobile_click"} <= provider.requested_tools[2]

        result = server.run("chat", "Hello?", "-p")
        assert (result.returncode, result.stdout.decode().strip()) == (0, reply), result.stderr.decode()

        if vendor:
            unknown = server.run("chat", "--model", "nope", "-p", "hi")
            assert unknown.returncode != 0 and b"There is no model 'nope'. Models:" in unknown.stderr
            assert b"*" not in unknown.stderr and provider.default.encode() in unknown.stderr
            response = client.post("/v1/sessions", json={"kinds": [], "model": "nope"})
            assert response.json()["code"] == "MODEL_NOT_FOUND" and response.json()["params"]["model"] == "nope"

        refused = client.post("/v1/chat/completions", json={"model": models["patterns"][0], "messages": []})
        assert refused.status_code == 400 and "is a pattern" in refused.text
        assert set(provider.requested_models) == {provider.default} and provider.problems == []
        listed = server.output("llm", "list")
        assert provider.default in listed and "*" not in listed and PROVIDER_KEY not in listed
        server.run("session", "rm", json.loads(server.output("session", "list", "--json"))[0]["id"])


def test_prompt_works_without_a_running_server(tmp_path: Path) -> None:
    with run_strict_provider("anthropic") as provider:
        command = create_provider_cli(tmp_path, provider, vendor=True)
        result = command.run("chat", "Hello?", "-p", stdin=b"")
        assert (result.returncode, result.stdout.decode().strip()) == (0, REPLY.format(model=provider.default)), (
            result.stderr
        )
        unknown = command.run("chat", "--model", "nope", "-p", "hi", stdin=b"")
        assert unknown.returncode != 0 and b"There is no model 'nope'. Models: claude-" in unknown.stderr
        assert b"*" not in unknown.stderr and provider.problems == []


def test_compatible_server_offers_models_of_any_name(tmp_path: Path) -> None:
    with run_strict_provider("openai") as provider:
        provider.models, provider.default, provider.hidden = ("acme-large", "acme-embed"), "acme-large", ("acme-embed",)
        with run_provider_server(tmp_path, provider) as server, open_client(server) as client:
            models = client.get("/v1/server").json()["models"]
            assert ([each["name"] for each in models["items"]], models["default"]) == (["acme-large"], "acme-large")
            result = server.run("chat", "Hello?", "-p")
            assert (result.returncode, result.stdout.decode().strip()) == (0, REPLY.format(model="acme-large"))
            # Requests of the Responses API, as codex sends them, are translated.
            body = {"model": "acme-large", "input": "Hello?"}
            answered = client.post("/v1/responses", json=body).raise_for_status()
            assert REPLY.format(model="acme-large") in answered.text and provider.problems == []
            server.run("session", "rm", json.loads(server.output("session", "list", "--json"))[0]["id"])


def test_refused_key_and_missing_model_list_are_reported(tmp_path: Path) -> None:
    with (
        run_strict_provider("gemini") as provider,
        run_provider_server(tmp_path, provider) as server,
        open_client(server) as client,
    ):
        provider.accepts_key = False
        listed = server.run("llm", "list")
        assert b"gemini-2.5-flash" in listed.stdout and b"key refused" in listed.stdout
        assert b"provider google refused its key" in listed.stderr and b"check GEMINI_API_KEY" in listed.stderr
        result = client.get("/v1/llm").json()
        assert result["providers"][0]["keyRefusedAt"] and result["default"] == "gemini-2.5-flash"
        body = {"model": "gemini-2.5-flash", "messages": [{"role": "user", "content": "Hello?"}]}
        refused = client.post("/v1/chat/completions", json=body)
        assert refused.status_code == 401 and refused.json()["error"]["code"] == "provider_key_refused"
        assert (
            "provider google refused the key it is configured with" in refused.text
            and PROVIDER_KEY[:8] not in refused.text
        )
        assert "check GEMINI_API_KEY and restart the server" in refused.text
        task = {"name": "a", "goal": "x", "image": "host", "entrypoint": "true", "llm": body["model"]}
        verdict = client.post("/v1/tasks/validate", json={"task": task}).raise_for_status().json()
        (issue,) = verdict["issues"]
        assert (issue["code"], issue["level"], verdict["ready"]) == ("PROVIDER_KEY_REFUSED", "error", False)
        assert client.get("/v1/server").json()["models"]["refusedKeys"] == {"google": "GEMINI_API_KEY"}
        assert issue["params"] == {"provider": "google", "model": body["model"]}

        provider.accepts_key, provider.lists_models = True, False
        assert client.post("/v1/chat/completions", json=body).status_code == 200
        verdict = client.post("/v1/tasks/validate", json={"task": task}).raise_for_status().json()
        assert verdict["ready"] is True and verdict["issues"] == []
        assert "keyRefusedAt" not in client.get("/v1/llm").json()["providers"][0]

        # Failing requests cause only a notice, because the provider may recover before the run starts.
        provider.server.always_respond(PlannedResponse(status=500))
        for _ in range(6):
            client.post("/v1/chat/completions", json=body)
        verdict = client.post("/v1/tasks/validate", json={"task": task}).raise_for_status().json()
        (notice,) = verdict["issues"]
        assert (notice["code"], notice["level"], verdict["ready"]) == ("PROVIDER_FAILING", "notice", True)


def test_default_model_replaces_suggested_model(tmp_path: Path) -> None:
    with run_strict_provider("openai") as provider:
        settings = {"kind": "openai", "key": PROVIDER_KEY, "base_url": f"{provider.server.url}{provider.base_path}"}
        llm = {"environment": False, "providers": {"acme": settings}, "models": {"acme-large": "acme"}}
        with run_server(tmp_path, {"llm": llm}) as server, server.client() as client:
            task = {"name": "a", "goal": "x", "image": "host", "agent": "claude-code"}
            verdict = client.post("/v1/tasks/validate", json={"task": task}).raise_for_status().json()
            (notice,) = verdict["issues"]
            assert (notice["code"], notice["level"], verdict["ready"]) == ("DEFAULT_MODEL", "notice", True)
            assert notice["params"] == {"model": "acme-large", "wanted": "claude-sonnet-4-5"}
            assert verdict["models"] == ["acme-large"]


def test_provider_address_without_version_is_reported(tmp_path: Path) -> None:
    with run_strict_provider("openai") as provider:
        base_path, provider.base_path = provider.base_path, ""
        environment, provider.base_path = provider.environment(), base_path
        provider.environment = lambda: environment  # type: ignore[method-assign]
        with run_provider_server(tmp_path, provider) as server, open_client(server) as client:
            listed = server.run("llm", "list")
            assert b"gpt-5.1" in listed.stdout and b"not reached" in listed.stdout and b"ready" not in listed.stdout
            assert b"provider openai was not reached" in listed.stderr
            assert client.get("/v1/server").json()["models"]["state"] == "not_reached"
            result = server.run("llm", "test", "gpt-5.1")
            reason = f"check its address {provider.server.url}, which usually ends in /v1"
            assert result.returncode == 1 and reason in result.stderr.decode().replace("\n", " ")
            assert client.get("/v1/llm").json()["providers"][0]["unreached"] is True
            task = {"name": "a", "goal": "x", "image": "host", "entrypoint": "true", "llm": "gpt-5.1"}
            verdict = client.post("/v1/tasks/validate", json={"task": task}).raise_for_status().json()
            (notice,) = verdict["issues"]
            assert (notice["code"], notice["level"], verdict["ready"]) == ("PROVIDER_UNREACHED", "notice", True)
            assert notice["params"]["provider"] == "openai" and reason in notice["params"]["problem"]
            assert reason in notice["message"]


def test_model_lists_contain_only_allowed_models(tmp_path: Path) -> None:
    with (
        run_strict_provider("anthropic") as provider,
        run_provider_server(tmp_path, provider) as server,
        open_client(server) as client,
    ):
        body = {"name": "some", "scopes": ["llm:use"], "models": ["claude-opus-*"]}
        secret = client.post("/v1/keys", json=body).raise_for_status().json()["secret"]
        allowed = {name for name in provider.models if name.startswith("claude-opus-")}
        with httpx.Client(base_url=server.url, trust_env=False, timeout=60) as plain:
            shown = {"Authorization": f"Bearer {secret}"}
            openai = plain.get("/v1/models", headers=shown).json()["data"]
            assert {each["id"] for each in openai} == allowed
            versioned = {"x-api-key": secret, "anthropic-version": "2023-06-01"}
            anthropic = plain.get("/v1/models", headers=versioned).json()["data"]
            assert {each["id"]: each["display_name"] for each in anthropic} == {name: name.title() for name in allowed}
            gemini = plain.get("/v1beta/models", headers={"x-goog-api-key": secret}).json()["models"]
            assert {each["name"] for each in gemini} == {f"models/{name}" for name in allowed}
            items = plain.get("/v1/server", headers=shown).json()["models"]["items"]
            assert {each["name"] for each in items} == allowed


def test_scripted_model_is_named_without_the_archive(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    server = PaddockCliServer(data)
    server.env |= {"PADDOCK_LLM__ARCHIVE__ENABLED": "false", "PADDOCK_LLM__ENVIRONMENT": "false"}
    server.start_server()
    try:
        assert "demo, a scripted model; no real model was used" in server.output("llm", "test", "demo")
        assert server.json_output("llm", "test", "demo")["script"] == "demo"
    finally:
        assert server.stop_server() == 0

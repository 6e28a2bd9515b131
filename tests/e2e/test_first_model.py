"""The first model: one key in the environment, and nothing else, is enough to chat."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from paddock.config.provider_discovery import KNOWN_PROVIDERS
from tests.e2e.cli_driver import Server
from tests.support.fake_provider import PlannedResponse
from tests.support.server import eventually
from tests.support.server import run_server as running
from tests.support.strict_providers import PROVIDER_KEY, PROVIDER_NAMES, REPLY, StrictProvider, run_strict_provider

PATTERNS = {"gemini" if known.name == "google" else known.name: known.models for known in KNOWN_PROVIDERS}
VENDOR_ADDRESS = """
from dataclasses import replace
from paddock.config import provider_discovery as discovery
discovery.KNOWN_PROVIDERS = tuple(
    replace(each, domains=(*each.domains, "127.0.0.1")) for each in discovery.KNOWN_PROVIDERS
)
"""
"""Makes a process take providers on this machine for the vendors' own servers."""


def without_server(directory: Path, provider: StrictProvider, *, vendor: bool = False) -> Server:
    """A command whose environment has one provider's key. With `vendor`, the provider is the vendor itself."""
    data = directory / "data"
    data.mkdir(mode=0o700)
    server = Server(data)
    variables = ("API_KEY", "BASE_URL", "AUTH_TOKEN")
    server.env = {name: value for name, value in server.env.items() if not name.endswith(variables)}
    server.env |= {**provider.environment(), "HOME": str(directory)}
    if vendor:
        (directory / "sitecustomize.py").write_text(VENDOR_ADDRESS)
        server.env["PYTHONPATH"] = os.pathsep.join(filter(None, (str(directory), server.env.get("PYTHONPATH"))))
    return server


@contextmanager
def serving(directory: Path, provider: StrictProvider, *, vendor: bool = False) -> Iterator[Server]:
    server = without_server(directory, provider, vendor=vendor)
    server.up()
    try:
        yield server
    finally:
        assert server.down() == 0


def client_of(server: Server) -> httpx.Client:
    key = (server.data / "local.key").read_text().strip()
    return httpx.Client(base_url=server.url, headers={"Authorization": f"Bearer {key}"}, trust_env=False, timeout=60)


@pytest.mark.parametrize("vendor", [True, False], ids=["vendor", "compatible-server"])
@pytest.mark.parametrize("name", PROVIDER_NAMES)
def test_a_key_in_the_environment_is_enough(tmp_path: Path, name: str, vendor: bool) -> None:
    with (
        run_strict_provider(name) as provider,
        serving(tmp_path, provider, vendor=vendor) as server,
        client_of(server) as client,
    ):
        chatting = {model for model in provider.models if model not in provider.hidden}

        assert {each["id"] for each in client.get("/v1/models").json()["data"]} == chatting
        models = client.get("/v1/server").json()["models"]
        assert {each["name"] for each in models["items"]} == chatting
        assert models["default"] == provider.default
        assert models["patterns"] == (list(PATTERNS[name]) if vendor else ["*"])

        session = client.post("/v1/sessions", json={"kinds": []}).raise_for_status().json()
        assert session["model"] == provider.default
        body = {"content": [{"type": "text", "text": "Hello, who are you?"}]}
        client.post(f"/v1/sessions/{session['id']}/messages", json=body).raise_for_status()
        said = REPLY.format(model=provider.default)
        eventually(lambda: said in client.get(f"/v1/sessions/{session['id']}/messages").text)

        told = server.run("chat", "Hello?", "-p")
        assert (told.returncode, told.stdout.decode().strip()) == (0, said), told.stderr.decode()

        if vendor:
            unknown = server.run("chat", "--model", "nope", "-p", "hi")
            assert unknown.returncode != 0 and b"There is no model 'nope'. Models:" in unknown.stderr
            assert b"*" not in unknown.stderr and provider.default.encode() in unknown.stderr
            answer = client.post("/v1/sessions", json={"kinds": [], "model": "nope"})
            assert answer.json()["code"] == "MODEL_NOT_FOUND" and answer.json()["params"]["model"] == "nope"

        refused = client.post("/v1/chat/completions", json={"model": models["patterns"][0], "messages": []})
        assert refused.status_code == 400 and "is a pattern" in refused.text
        assert set(provider.requested_models) == {provider.default} and provider.problems == []
        listed = server.text("llm", "list")
        assert provider.default in listed and "*" not in listed and PROVIDER_KEY not in listed
        server.run("session", "rm", json.loads(server.text("session", "list", "--json"))[0]["id"])


def test_a_prompt_is_answered_without_a_running_server(tmp_path: Path) -> None:
    with run_strict_provider("anthropic") as provider:
        command = without_server(tmp_path, provider, vendor=True)
        told = command.run("chat", "Hello?", "-p", stdin=b"")
        assert (told.returncode, told.stdout.decode().strip()) == (0, REPLY.format(model=provider.default)), told.stderr
        unknown = command.run("chat", "--model", "nope", "-p", "hi", stdin=b"")
        assert unknown.returncode != 0 and b"There is no model 'nope'. Models: claude-" in unknown.stderr
        assert b"*" not in unknown.stderr and provider.problems == []


def test_a_compatible_server_offers_models_of_any_name(tmp_path: Path) -> None:
    with run_strict_provider("openai") as provider:
        provider.models, provider.default, provider.hidden = ("acme-large", "acme-embed"), "acme-large", ("acme-embed",)
        with serving(tmp_path, provider) as server, client_of(server) as client:
            models = client.get("/v1/server").json()["models"]
            assert ([each["name"] for each in models["items"]], models["default"]) == (["acme-large"], "acme-large")
            told = server.run("chat", "Hello?", "-p")
            assert (told.returncode, told.stdout.decode().strip()) == (0, REPLY.format(model="acme-large"))
            # A client that speaks Responses, such as codex, is translated.
            body = {"model": "acme-large", "input": "Hello?"}
            answered = client.post("/v1/responses", json=body).raise_for_status()
            assert REPLY.format(model="acme-large") in answered.text and provider.problems == []
            server.run("session", "rm", json.loads(server.text("session", "list", "--json"))[0]["id"])


def test_a_refused_key_and_a_provider_without_a_list_are_told(tmp_path: Path) -> None:
    with run_strict_provider("gemini") as provider, serving(tmp_path, provider) as server, client_of(server) as client:
        provider.accepts_key = False
        listed = server.run("llm", "list")
        assert b"gemini-2.5-flash" in listed.stdout and b"key refused" in listed.stdout
        assert b"provider google refused its key" in listed.stderr and b"check GEMINI_API_KEY" in listed.stderr
        told = client.get("/v1/llm").json()
        assert told["providers"][0]["keyRefusedAt"] and told["default"] == "gemini-2.5-flash"
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
        assert issue["params"] == {"provider": "google", "model": body["model"]}

        provider.accepts_key, provider.lists_models = True, False
        assert client.post("/v1/chat/completions", json=body).status_code == 200
        verdict = client.post("/v1/tasks/validate", json={"task": task}).raise_for_status().json()
        assert verdict["ready"] is True and verdict["issues"] == []
        assert "keyRefusedAt" not in client.get("/v1/llm").json()["providers"][0]

        # Requests that keep failing are a notice, because the provider may be back when the run starts.
        provider.server.always_respond(PlannedResponse(status=500))
        for _ in range(6):
            client.post("/v1/chat/completions", json=body)
        verdict = client.post("/v1/tasks/validate", json={"task": task}).raise_for_status().json()
        (notice,) = verdict["issues"]
        assert (notice["code"], notice["level"], verdict["ready"]) == ("PROVIDER_FAILING", "notice", True)


def test_the_default_model_replaces_one_that_an_agent_suggests(tmp_path: Path) -> None:
    with run_strict_provider("openai") as provider:
        settings = {"kind": "openai", "key": PROVIDER_KEY, "base_url": f"{provider.server.url}{provider.base_path}"}
        llm = {"environment": False, "providers": {"acme": settings}, "models": {"acme-large": "acme"}}
        with running(tmp_path, {"llm": llm}) as server, server.client() as client:
            task = {"name": "a", "goal": "x", "image": "host", "agent": "claude-code"}
            verdict = client.post("/v1/tasks/validate", json={"task": task}).raise_for_status().json()
            (notice,) = verdict["issues"]
            assert (notice["code"], notice["level"], verdict["ready"]) == ("DEFAULT_MODEL", "notice", True)
            assert notice["params"] == {"model": "acme-large", "wanted": "claude-sonnet-4-5"}
            assert verdict["models"] == ["acme-large"]


def test_an_address_without_its_version_is_told(tmp_path: Path) -> None:
    with run_strict_provider("openai") as provider:
        base_path, provider.base_path = provider.base_path, ""
        environment, provider.base_path = provider.environment(), base_path
        provider.environment = lambda: environment  # type: ignore[method-assign]
        with serving(tmp_path, provider) as server, client_of(server) as client:
            listed = server.run("llm", "list")
            assert b"gpt-5.1" in listed.stdout and b"not reached" in listed.stdout and b"ready" not in listed.stdout
            assert b"provider openai was not reached" in listed.stderr
            assert client.get("/v1/server").json()["models"]["state"] == "not_reached"
            told = server.run("llm", "test", "gpt-5.1")
            reason = f"check its address {provider.server.url}, which usually ends in /v1"
            assert told.returncode == 1 and reason in told.stderr.decode().replace("\n", " ")
            assert client.get("/v1/llm").json()["providers"][0]["unreached"] is True
            task = {"name": "a", "goal": "x", "image": "host", "entrypoint": "true", "llm": "gpt-5.1"}
            verdict = client.post("/v1/tasks/validate", json={"task": task}).raise_for_status().json()
            (notice,) = verdict["issues"]
            assert (notice["code"], notice["level"], verdict["ready"]) == ("PROVIDER_UNREACHED", "notice", True)
            assert notice["params"]["provider"] == "openai" and reason in notice["params"]["problem"]
            assert reason in notice["message"]


def test_lists_have_only_what_a_key_may_ask_for(tmp_path: Path) -> None:
    with (
        run_strict_provider("anthropic") as provider,
        serving(tmp_path, provider) as server,
        client_of(server) as client,
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


def test_a_script_is_named_without_the_archive(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    server = Server(data)
    server.env |= {"PADDOCK_LLM__ARCHIVE__ENABLED": "false", "PADDOCK_LLM__ENVIRONMENT": "false"}
    server.up()
    try:
        assert "demo, a scripted model; no real model was used" in server.text("llm", "test", "demo")
        assert server.json("llm", "test", "demo")["script"] == "demo"
    finally:
        assert server.down() == 0

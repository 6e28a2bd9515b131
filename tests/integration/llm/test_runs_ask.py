"""A whole server whose sandboxes belong to runs: scripts that answer one of them, and what each has asked."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from paddock.app import Paddock, build
from paddock.config import load
from paddock.config.schema import Config
from paddock.fleet.requests import CreateSandbox
from paddock.model.exchanges import Filters
from paddock.model.keys import Scope, Terms
from paddock.model.runs import Traffic
from paddock.model.sandbox import Sandbox
from paddock.sandbox.client import Command

from ..fleet.conftest import data

__all__ = ["data"]
pytestmark = pytest.mark.anyio
ME = "me"
HELLO = "turns: [{say: Hello there.}]"
ASK = """
import json, os, sys, urllib.error, urllib.request
body = json.dumps({"model": sys.argv[1], "messages": [{"role": "user", "content": "Hi."}]}).encode()
headers = {"Authorization": "Bearer " + os.environ.get("OPENAI_API_KEY", ""), "Content-Type": "application/json"}
url = os.environ.get("OPENAI_BASE_URL", "http://127.0.0.1:8421/v1")
try:
    request = urllib.request.Request(url + "/chat/completions", body, headers)
    print(json.load(urllib.request.urlopen(request, timeout=20))["choices"][0]["message"]["content"], end="")
except urllib.error.HTTPError as error:
    print(error.code, json.load(error)["error"]["message"], end="")
except OSError as error:
    print(type(error).__name__, end="")
"""


@asynccontextmanager
async def server(data: Path, **llm: Any) -> AsyncIterator[Paddock]:
    sandboxes = {"default_image": "host", "min_free_disk": 0}
    async with build(Config.model_validate({"data": data, "sandboxes": sandboxes, "llm": llm})) as paddock:
        yield paddock


async def box(paddock: Paddock, run: str, models: str | None = None) -> Sandbox:
    extensions = {"paddock.llm.run": run, **({"paddock.llm.models": models} if models else {})}
    return await paddock.fleet.create(ME, CreateSandbox(extensions=extensions))


async def ask(paddock: Paddock, sandbox: Sandbox, model: str) -> str:
    inside = await paddock.fleet.inside(ME, sandbox.id)
    result = await inside.run(Command(["python3", "-c", ASK, model]))
    return (result.stdout + result.stderr).decode()


async def test_a_run_is_answered_by_its_script_on_a_server_without_models(data: Path) -> None:
    async with server(data, demo=False) as paddock:
        gateway = paddock.gateway
        gateway.routes.scripted.add("run-1", HELLO, ME)
        gateway.traffics.start("run-1", ME)
        own = await box(paddock, "run-1", "script-run-1")
        changes = asyncio.create_task(gateway.traffics.changed("run-1", Traffic()))
        assert await ask(paddock, own, "script-run-1") == "Hello there."
        assert (await changes).under_way == 1
        told = gateway.traffics.of("run-1")
        assert (told.requests, told.failed, told.under_way, told.scripted, told.cost) == (1, 0, 0, True, 0.0)
        assert told.input_tokens > 0 and told.output_tokens > 0 and told.model == "script-run-1"
        await gateway.archive.flush()
        ((kept,), _) = await gateway.archive.list(ME, Filters(run="run-1"))
        assert (kept.provider_kind, kept.provider, kept.sandbox) == ("script", "script of a run", own.id)
        assert (await ask(paddock, own, "script-run-2")).startswith("404 This key may not ask for")
        assert gateway.traffics.of("run-1").last_error is not None
        # Another's script is not there, whatever the key allows.
        other, plain = await box(paddock, "run-2"), await paddock.fleet.create(ME, CreateSandbox())
        assert (await ask(paddock, other, "script-run-1")).startswith("404 There is no model 'script-run-1'")
        assert (
            "LLM" not in (await (await paddock.fleet.inside(ME, plain.id)).run(Command(["printenv"]))).stdout.decode()
        )
        assert gateway.traffics.of("run-1").requests == 2


async def test_a_script_answers_also_where_sandboxes_may_ask_for_little(data: Path) -> None:
    providers = {"up": {"kind": "openai", "base_url": "http://127.0.0.1:9/v1"}}
    async with server(data, providers=providers, models={"small": "up"}, sandbox_models=["small"]) as paddock:
        paddock.gateway.routes.scripted.add("run-1", HELLO, ME)
        assert await ask(paddock, await box(paddock, "run-1", "script-run-1"), "script-run-1") == "Hello there."


async def test_a_new_server_goes_on_where_the_last_one_was(data: Path) -> None:
    async with server(data) as paddock:
        paddock.gateway.routes.scripted.add("run-1", HELLO, ME)
        paddock.gateway.traffics.start("run-1", ME)
        sandbox = await box(paddock, "run-1", "script-run-1")
        await ask(paddock, sandbox, "script-run-1")
        before = paddock.gateway.traffics.of("run-1")
    async with server(data) as paddock:
        found = await paddock.gateway.traffics.open("run-1", ME)
        assert found.model_copy(update={"last_at": before.last_at}) == before
        assert (await ask(paddock, sandbox, "script-run-1")).startswith("503")  # Which programs ask again after.
        paddock.gateway.routes.scripted.add("run-1", HELLO, ME)
        assert await ask(paddock, sandbox, "script-run-1") == "Hello there."
        assert paddock.gateway.traffics.of("run-1").requests == 3


async def test_models_from_the_environment_are_said_to_be_from_there(data: Path) -> None:
    secret = "sk-ant-of-a-developer"
    environ = {"ANTHROPIC_API_KEY": secret, "ANTHROPIC_BASE_URL": "http://127.0.0.1:9"}
    config = load(environ=environ, cwd=data, flags={"data": data, "sandboxes.min_free_disk": 0}).config
    async with build(config) as paddock:
        _, key = await paddock.keys.create("reader", ME, [Scope.LLM_READ], terms=Terms())
        transport = httpx.ASGITransport(paddock.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            answer = await client.get("/v1/llm", headers={"Authorization": f"Bearer {key}"})
    told = answer.json()
    assert [(each["name"], each["foundIn"]) for each in told["providers"]] == [("anthropic", "ANTHROPIC_API_KEY")]
    assert [pattern["name"] for pattern in told["patterns"]] == ["*"]
    # The provider cannot be reached, so the names that are known without it are offered.
    assert {(model["provider"], model["pattern"]) for model in told["models"]} == {("anthropic", "*")}
    assert "Connection refused" in told["providers"][0]["listProblem"]
    assert secret not in json.dumps(told)

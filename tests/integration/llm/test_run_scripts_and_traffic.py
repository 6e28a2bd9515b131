"""Run scripts and traffic counts on a whole server with sandboxes of runs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from paddock.app.server import PaddockServer, build_server
from paddock.config import load_config
from paddock.config.schema import Config
from paddock.fleet.fleet_requests import SandboxRequest
from paddock.model.exchanges import ExchangeFilters
from paddock.model.keys import ApiKeyTerms, Scope
from paddock.model.runs import ModelUsage
from paddock.model.sandbox import Sandbox
from paddock.sandbox.daemon.client import SandboxCommand

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
async def server(data: Path, **llm: Any) -> AsyncIterator[PaddockServer]:
    sandboxes = {"default_image": "host", "min_free_disk": 0}
    async with build_server(Config.model_validate({"data": data, "sandboxes": sandboxes, "llm": llm})) as paddock:
        yield paddock


async def make_sandbox(paddock: PaddockServer, run: str, models: str | None = None) -> Sandbox:
    extensions = {"paddock.llm.run": run, **({"paddock.llm.models": models} if models else {})}
    return await paddock.fleet.create(ME, SandboxRequest(extensions=extensions))


async def ask(paddock: PaddockServer, sandbox: Sandbox, model: str) -> str:
    inside = await paddock.fleet.running_client(ME, sandbox.id)
    result = await inside.run(SandboxCommand(["python3", "-c", ASK, model]))
    return (result.stdout + result.stderr).decode()


async def test_run_script_answers_on_server_without_models(data: Path) -> None:
    async with server(data, demo=False) as paddock:
        gateway = paddock.gateway
        gateway.routes.run_scripts.add("run-1", HELLO, ME)
        gateway.run_traffic.start_counting("run-1", ME)
        own = await make_sandbox(paddock, "run-1", "script-run-1")
        changes = asyncio.create_task(gateway.run_traffic.wait_for_change("run-1", ModelUsage()))
        assert await ask(paddock, own, "script-run-1") == "Hello there."
        assert (await changes).under_way == 1
        traffic = gateway.run_traffic.traffic_of("run-1")
        assert (traffic.requests, traffic.failed, traffic.under_way, traffic.scripted, traffic.cost) == (
            1,
            0,
            0,
            True,
            0.0,
        )
        assert traffic.input_tokens > 0 and traffic.output_tokens > 0 and traffic.model == "script-run-1"
        await gateway.archive.flush()
        ((kept,), _) = await gateway.archive.list_exchanges(ME, ExchangeFilters(run="run-1"))
        assert (kept.provider_kind, kept.provider, kept.sandbox) == ("script", "script of a run", own.id)
        assert (await ask(paddock, own, "script-run-2")).startswith("404 This key may not use")
        assert gateway.run_traffic.traffic_of("run-1").last_error is not None
        # The script of another run is not available, even if the key allows its name.
        other, plain = await make_sandbox(paddock, "run-2"), await paddock.fleet.create(ME, SandboxRequest())
        assert (await ask(paddock, other, "script-run-1")).startswith("404 There is no model 'script-run-1'")
        assert (
            "LLM"
            not in (
                await (await paddock.fleet.running_client(ME, plain.id)).run(SandboxCommand(["printenv"]))
            ).stdout.decode()
        )
        assert gateway.run_traffic.traffic_of("run-1").requests == 2


async def test_run_script_answers_despite_restricted_sandbox_models(data: Path) -> None:
    providers = {"up": {"kind": "openai", "base_url": "http://127.0.0.1:9/v1"}}
    async with server(data, providers=providers, models={"small": "up"}, sandbox_models=["small"]) as paddock:
        paddock.gateway.routes.run_scripts.add("run-1", HELLO, ME)
        assert (
            await ask(paddock, await make_sandbox(paddock, "run-1", "script-run-1"), "script-run-1") == "Hello there."
        )


async def test_new_server_resumes_traffic_counts(data: Path) -> None:
    async with server(data) as paddock:
        paddock.gateway.routes.run_scripts.add("run-1", HELLO, ME)
        paddock.gateway.run_traffic.start_counting("run-1", ME)
        sandbox = await make_sandbox(paddock, "run-1", "script-run-1")
        await ask(paddock, sandbox, "script-run-1")
        before = paddock.gateway.run_traffic.traffic_of("run-1")
    async with server(data) as paddock:
        found = await paddock.gateway.run_traffic.resume_counting("run-1", ME)
        assert found.model_copy(update={"last_at": before.last_at}) == before
        assert (await ask(paddock, sandbox, "script-run-1")).startswith("503")  # Which programs ask again after.
        paddock.gateway.routes.run_scripts.add("run-1", HELLO, ME)
        assert await ask(paddock, sandbox, "script-run-1") == "Hello there."
        assert paddock.gateway.run_traffic.traffic_of("run-1").requests == 3


async def test_models_from_the_environment_name_their_origin(data: Path) -> None:
    secret = "sk-ant-of-a-developer"
    environ = {"ANTHROPIC_API_KEY": secret, "ANTHROPIC_BASE_URL": "http://127.0.0.1:9"}
    config = load_config(environ=environ, cwd=data, flags={"data": data, "sandboxes.min_free_disk": 0}).config
    async with build_server(config) as paddock:
        _, key = await paddock.keys.create("reader", ME, [Scope.LLM_READ], terms=ApiKeyTerms())
        transport = httpx.ASGITransport(paddock.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            answer = await client.get("/v1/llm", headers={"Authorization": f"Bearer {key}"})
    overview = answer.json()
    assert [(each["name"], each["foundIn"]) for each in overview["providers"]] == [("anthropic", "ANTHROPIC_API_KEY")]
    assert [pattern["name"] for pattern in overview["patterns"]] == ["*"]
    # The provider cannot be reached, so the names that are known without it are offered.
    assert {(model["provider"], model["pattern"]) for model in overview["models"]} == {("anthropic", "*")}
    assert "Connection refused" in overview["providers"][0]["listProblem"]
    assert secret not in json.dumps(overview)

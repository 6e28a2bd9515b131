"""Real sandboxes reach the proxy, each through its own socket and with its own key."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from paddock.auth.api_keys import ApiKeys
from paddock.config.schema import Config
from paddock.errors import InvalidInput, PaddockError, Unauthorized
from paddock.events.event_log import EventLog
from paddock.fleet.fleet import Fleet
from paddock.fleet.fleet_requests import SandboxRequest
from paddock.fleet.reconciler import Reconciler
from paddock.llm.gateway.sandbox_access import LLM_UPLINK_PORT, SandboxModelAccess
from paddock.llm.metering.key_authentication import KeyAuthenticator
from paddock.llm.wire.base import HttpRequest, ResponseWriter
from paddock.llm.wire.http_server import HttpServer
from paddock.model.keys import ApiKey, ApiKeyTerms, Scope
from paddock.model.sandbox import Sandbox, UplinkService
from paddock.sandbox.daemon.client import DaemonClient, SandboxCommand
from paddock.sandbox.images import ImageStore
from paddock.sandbox.local.backend import LocalBackend, LocalBackendSettings
from paddock.store.database import Store
from paddock.store.key_store import ApiKeyStore

from ..fleet.conftest import data, until

__all__ = ["data"]
pytestmark = pytest.mark.anyio
ME = "me"
LLM = {
    "providers": {"up": {"kind": "openai", "base_url": "http://127.0.0.1:9/v1"}},
    "models": {"big": "up", "small": "up", "tiny-1": "up"},
}
ASK = """
import os, sys, urllib.error, urllib.request
key = sys.argv[1] if len(sys.argv) > 1 else os.environ["OPENAI_API_KEY"]
url = os.environ.get("OPENAI_BASE_URL", "http://127.0.0.1:8421/v1")
request = urllib.request.Request(url + "/models", headers={"Authorization": "Bearer " + key})
try:
    print(urllib.request.urlopen(request, timeout=10).read().decode(), end="")
except urllib.error.HTTPError as error:
    print(error.code, end="")
except OSError as error:
    print(type(error).__name__, end="")
"""
ASK_FIRST = f"import sys; sys.stdout = open('/workspace/said', 'w')\n{ASK}\nsys.stdout.close()"


@dataclass
class Running:
    fleet: Fleet
    keys: ApiKeys
    callers: KeyAuthenticator
    backend: LocalBackend

    async def run(self, sandbox: Sandbox, *words: str) -> str:
        inside = await self.fleet.running_client(sandbox.tenant, sandbox.id)
        result = await inside.run(SandboxCommand(list(words)))
        return (result.stdout + result.stderr).decode()

    async def ask(self, sandbox: Sandbox, *key: str) -> Any:
        """The proxy's answer to a program in a sandbox: the caller's identity, a status or an error."""
        output = await self.run(sandbox, "python3", "-c", ASK, *key)
        return json.loads(output) if output.startswith("{") else output

    async def secret(self, sandbox: Sandbox) -> str:
        return (await self.run(sandbox, "printenv", "PADDOCK_LLM_KEY")).strip()

    async def key(self, sandbox: Sandbox) -> ApiKey:
        (key,) = await self.keys.list(sandbox=sandbox.id)
        return key

    async def revoked(self, sandbox: Sandbox) -> bool:
        return (await self.key(sandbox)).revoked_at is not None


@asynccontextmanager
async def running(data: Path, **settings: Any) -> AsyncIterator[Running]:
    """A running fleet with the lifecycle hook of the proxy; the proxy's handler only returns the caller."""
    sandboxes = {"default_image": "host", "min_free_disk": 0, "reconcile_every": 0.1, **settings.pop("sandboxes", {})}
    llm = {**LLM, **settings.pop("llm", {})}
    config = Config.model_validate({"data": data, "sandboxes": sandboxes, "llm": llm, **settings})
    backend = LocalBackend(LocalBackendSettings(data=data))
    store = await Store.open(data / "paddock.db")
    events = await EventLog.open(store)
    keys = ApiKeys(ApiKeyStore(store))
    callers = KeyAuthenticator(keys)

    async def answer_identity(request: HttpRequest, reply: ResponseWriter) -> None:
        shown = (request.header(b"authorization") or b"").decode().removeprefix("Bearer ")
        try:
            holder = await callers.identify(shown, request.tag)
        except PaddockError:
            return await reply.send(401, [], b"")
        identity = {"sandbox": holder.caller.sandbox, "tenant": holder.caller.tenant, "small": holder.allows("small")}
        return await reply.send(200, [], json.dumps(identity).encode())

    http_server = HttpServer(answer_identity, max_body=2**20, max_connections=1000)
    handles = SandboxModelAccess(config.llm, keys, http_server)
    images = ImageStore(data / "images")
    fleet = Fleet(backend=backend, images=images, store=store, events=events, config=config, hooks=[handles])
    reconciler = Reconciler(fleet)
    await reconciler.open()
    try:
        yield Running(fleet, keys, callers, backend)
    finally:
        await reconciler.close()
        await fleet.close()
        await handles.close()
        await http_server.close()
        events.close()
        await store.close()
        await backend.close()


def identity_of(sandbox: Sandbox) -> dict[str, Any]:
    return {"sandbox": sandbox.id, "tenant": sandbox.tenant, "small": True}


async def test_sandbox_uses_the_proxy_through_its_environment(data: Path) -> None:
    async with running(data) as machine:
        sandbox = await machine.fleet.create(ME, SandboxRequest())
        assert await machine.ask(sandbox) == identity_of(sandbox)
        lines = (await machine.run(sandbox, "printenv")).splitlines()
        env = dict(line.split("=", 1) for line in lines if "=" in line)
        secret, address = env["PADDOCK_LLM_KEY"], f"http://127.0.0.1:{LLM_UPLINK_PORT}"
        assert secret.startswith("pdk_")
        assert (
            env.items()
            >= {
                "PADDOCK_LLM_URL": address,
                "OPENAI_BASE_URL": f"{address}/v1",
                "OPENAI_API_KEY": secret,
                "ANTHROPIC_BASE_URL": address,
                "ANTHROPIC_API_KEY": secret,
                "GOOGLE_GEMINI_BASE_URL": address,
                "GEMINI_API_KEY": secret,
            }.items()
        )
        key = await machine.key(sandbox)
        assert (key.tenant, key.scopes, key.expires_at) == (ME, frozenset({Scope.LLM_USE}), sandbox.expires_at)
        assert key.limits.concurrency == 64


async def test_variables_set_by_the_owner_are_kept(data: Path) -> None:
    async with running(data) as machine:
        own = {"OPENAI_API_KEY": "sk-mine", "ANTHROPIC_AUTH_TOKEN": "mine", "PADDOCK_LLM_URL": "http://x"}
        sandbox = await machine.fleet.create(ME, SandboxRequest(env=own))
        env = (await machine.run(sandbox, "printenv")).splitlines()
        ours = {line.split("=")[0] for line in env if "8421" in line or "pdk_" in line}
        assert {"OPENAI_API_KEY=sk-mine", "ANTHROPIC_AUTH_TOKEN=mine", "PADDOCK_LLM_URL=http://x"} <= set(env)
        assert ours == {"GOOGLE_GEMINI_BASE_URL", "GEMINI_API_KEY"}


async def test_first_process_of_a_sandbox_can_use_the_proxy(data: Path) -> None:
    async with running(data) as machine:
        sandbox = await machine.fleet.create(ME, SandboxRequest(entrypoint=("python3", "-c", ASK_FIRST)))

        async def answered() -> bool:
            return sandbox.id in await machine.run(sandbox, "cat", "/workspace/said")

        await until(answered)


async def test_sandbox_key_does_not_work_outside(data: Path) -> None:
    async with running(data) as machine:
        one, other = [await machine.fleet.create(ME, SandboxRequest()) for _ in range(2)]
        stolen = await machine.secret(one)
        assert await machine.ask(other, stolen) == "401"
        with pytest.raises(Unauthorized):
            await machine.callers.identify(stolen, None)
        with pytest.raises(Unauthorized):
            await machine.keys.authenticate(stolen)
        _, of_a_person = await machine.keys.create("admin", ME, [Scope.ADMIN])
        assert await machine.ask(other, of_a_person) == "401"
        assert await machine.ask(other) == identity_of(other)


async def test_claimed_pool_sandbox_gets_key_and_socket(data: Path) -> None:
    async with running(data, pools=[{"name": "ready", "image": "host", "size": 2}]) as machine:
        fleet = machine.fleet

        async def pool_is_full() -> bool:
            return fleet.pools.ready_counts(ME, "ready") == (2, 0)

        await until(pool_is_full)
        waiting = fleet.pools.sandbox_ids()
        made = await fleet.create("ann", SandboxRequest(pool="ready", entrypoint=("python3", "-c", ASK_FIRST)))
        without = await fleet.create("bob", SandboxRequest(pool="ready", extensions={"paddock.llm": "off"}))
        assert {made.id, without.id} == waiting
        assert await machine.ask(made) == identity_of(made)

        async def answered() -> bool:
            return made.id in await machine.run(made, "cat", "/workspace/said")

        await until(answered)
        assert "LLM" not in await machine.run(without, "printenv")
        assert await machine.ask(without, await machine.secret(made)) not in (identity_of(made), identity_of(without))
        assert await machine.keys.list(sandbox=without.id) == []


async def test_broken_pool_sandbox_is_replaced_with_its_key(data: Path) -> None:
    async with running(data, pools=[{"name": "ready", "image": "host", "size": 1}]) as machine:
        fleet = machine.fleet

        async def pool_is_full() -> bool:
            return fleet.pools.ready_counts(ME, "ready") == (1, 0)

        await until(pool_is_full)
        (sandbox,) = fleet.pools._states["", "ready"].sandboxes
        async with DaemonClient(machine.backend.daemon_address(sandbox.record)) as inside:
            await inside.claim({}, None)  # The token can be claimed once only.
        made = await fleet.create(ME, SandboxRequest(pool="ready"))
        assert await machine.ask(made) == identity_of(made)


async def test_restarted_server_serves_existing_sandboxes(data: Path) -> None:
    async with running(data) as machine:
        sandbox = await machine.fleet.create(ME, SandboxRequest())
        uplinks = machine.backend.uplink_directory(sandbox.record)
    assert (uplinks / "llm.sock").is_socket()  # As one that was killed leaves it, too.
    async with running(data) as machine:
        assert await machine.ask(sandbox) == identity_of(sandbox)
        assert [path.name for path in uplinks.iterdir()] == ["llm.sock"]
        await machine.fleet.delete(ME, sandbox.id)
        assert await machine.revoked(sandbox)


async def test_key_is_revoked_with_its_sandbox(data: Path) -> None:
    async with running(data) as machine:
        fleet = machine.fleet
        deleted, killed = [await fleet.create(ME, SandboxRequest()) for _ in range(2)]
        expiring = await fleet.create(ME, SandboxRequest(timeout=1))
        secret = await machine.secret(deleted)
        await machine.callers.identify(secret, deleted.id)
        await fleet.delete(ME, deleted.id)
        with pytest.raises(Unauthorized, match="revoked"):
            await machine.callers.identify(secret, deleted.id)
        identity = machine.backend._identity(killed.id)
        assert identity is not None
        os.kill(identity.pid, signal.SIGKILL)
        await until(lambda: machine.revoked(killed))
        await until(lambda: machine.revoked(expiring))
        with pytest.raises(InvalidInput, match="NUL"):  # Found only when the sandbox is started.
            await fleet.create(ME, SandboxRequest(env={"A": "x\0y"}))
        assert await machine.keys.sandbox_ids() == []


async def test_keys_of_sandboxes_ended_while_server_was_down_are_revoked(data: Path) -> None:
    async with running(data) as machine:
        died, expired = [await machine.fleet.create(ME, SandboxRequest()) for _ in range(2)]
        await machine.fleet.sandboxes.update(expired.id, expires_at=datetime.now(UTC))
        await machine.keys.create("lost", ME, [Scope.LLM_USE], terms=ApiKeyTerms(sandbox="sb-lost"))
        identity = machine.backend._identity(died.id)
        assert identity is not None
    os.kill(identity.pid, signal.SIGKILL)
    async with running(data) as machine:
        assert await machine.revoked(died)
        (lost,) = await machine.keys.list(sandbox="sb-lost")
        assert lost.revoked_at is not None
        await until(lambda: machine.revoked(expired))


async def test_renewing_a_sandbox_extends_its_key(data: Path) -> None:
    async with running(data) as machine:
        sandbox = await machine.fleet.create(ME, SandboxRequest(timeout=100))
        later = datetime.now(UTC) + timedelta(hours=2)
        await machine.fleet.renew(ME, sandbox.id, later)
        assert (await machine.key(sandbox)).expires_at == later
        assert await machine.ask(sandbox) == identity_of(sandbox)


async def test_key_is_only_in_the_sandbox(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with running(data) as machine:
        sandbox = await machine.fleet.create(ME, SandboxRequest())
        secret = await machine.secret(sandbox)
        assert await machine.ask(sandbox) == identity_of(sandbox)
        assert secret not in (await machine.fleet.get(ME, sandbox.id)).model_dump_json()
        sandbox_events = await machine.fleet.events.read(f"sandbox/{sandbox.id}")
        assert sandbox_events and not any(secret in event.model_dump_json() for event in sandbox_events)
    for path in data.rglob("*"):
        if path.is_file() and not path.is_symlink():
            assert secret[12:].encode() not in path.read_bytes(), path
    assert secret not in "".join(capsys.readouterr())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
async def test_other_users_of_the_host_cannot_connect(data: Path) -> None:
    dial = "import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])"
    async with running(data) as machine:
        sandbox = await machine.fleet.create(ME, SandboxRequest())
        path = machine.backend.uplink_directory(sandbox.record) / "llm.sock"
        near = path.parents[2]  # Parents of the sandbox's directory may or may not be closed to other users.
        command = ["/usr/bin/python3", "-I", "-c", dial, str(path.relative_to(near))]
        for user, outcome in ((0, ""), (65_533, "PermissionError")):
            done = subprocess.run(command, cwd=near, user=user, group=user, extra_groups=[], stderr=subprocess.PIPE)
            assert outcome in done.stderr.decode() and (done.returncode == 0) == (not outcome), done.stderr


async def test_extensions_configure_model_access(data: Path) -> None:
    async with running(data, llm={"sandbox_models": ["small", "tiny-*"]}) as machine:
        fleet = machine.fleet
        model_extensions = {
            "paddock.llm.models": "tiny-*, small",
            "paddock.llm.budget-requests": "5",
            "paddock.llm.budget-cost": "0.5",
            "paddock.llm.user": "ann@example.org",
        }
        sandbox = await fleet.create(ME, SandboxRequest(extensions=model_extensions))
        key = await machine.key(sandbox)
        assert (key.models, key.budget.requests, key.budget.cost, key.budget.tokens, key.user) == (
            ("tiny-*", "small"),
            5,
            0.5,
            None,
            "ann@example.org",
        )
        narrow = await fleet.create(ME, SandboxRequest(extensions={"paddock.llm.models": "tiny-1"}))
        assert (await machine.ask(narrow))["small"] is False
        for name, value, problem in (
            ("paddock.llm", "maybe", "must be on or off"),
            ("paddock.llm.model", "small", "unknown paddock.llm.model"),
            ("paddock.llm.models", "big", "may not use big, only small, tiny-"),
            ("paddock.llm.models", "*", "may not use"),
            ("paddock.llm.models", "two words", "models: "),
            ("paddock.llm.budget-requests", "0", "budget-requests: "),
            ("paddock.llm.budget-tokens", "many", "budget-tokens: "),
            ("paddock.llm.budget-cost", "nan", "budget-cost: "),
            ("paddock.llm.run", "no spaces please", "run: "),
        ):
            with pytest.raises(InvalidInput, match=problem):
                await fleet.create(ME, SandboxRequest(extensions={name: value}))
        with pytest.raises(InvalidInput, match="those of the model proxy"):
            await fleet.create(ME, SandboxRequest(uplink_services=(UplinkService(name="mine", port=LLM_UPLINK_PORT),)))
        assert (await fleet.list(ME))[1] == 2


async def test_model_access_can_be_switched_off(data: Path) -> None:
    async with running(data) as machine:
        sandbox = await machine.fleet.create(ME, SandboxRequest(extensions={"paddock.llm": "off"}))
        assert "LLM" not in await machine.run(sandbox, "printenv")
        assert list(machine.backend.uplink_directory(sandbox.record).iterdir()) == []
        assert await machine.keys.sandbox_ids() == []
    async with running(data, llm={"sandboxes": False}) as machine:
        sandbox = await machine.fleet.create(ME, SandboxRequest())
        assert "LLM" not in await machine.run(sandbox, "printenv")

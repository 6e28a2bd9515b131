"""`paddock sandbox net` and the options `--network`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from paddock.model.network import ConnectionRecord, ConnectionRefusal
from paddock.store.connection_store import ConnectionStore
from paddock.store.database import Store
from tests.e2e.cli_driver import PaddockCliServer

TASK = {"name": "net-task", "goal": "Nothing.", "image": "host", "entrypoint": "true", "network": "packages"}


def a_connection(sandbox: str, number: int, *, allowed: bool = True) -> ConnectionRecord:
    return ConnectionRecord(
        id=f"net-{sandbox}-{number}",
        sandbox=sandbox,
        tenant="default",
        started_at=datetime.now(UTC) + timedelta(seconds=number),
        duration=1.5,
        name="pypi.org",
        port=443,
        sent=2048,
        received=3 * 2**20,
        allowed=allowed,
        refusal=None if allowed else ConnectionRefusal.NO_RULE,
        message=None if allowed else "pypi.org:443 is not allowed. Allow it with the rule `allow pypi.org:443`.",
    )


def store_connections(server: PaddockCliServer, records: Sequence[ConnectionRecord]) -> None:
    async def store() -> None:
        async with await Store.open(server.data / "paddock.db") as opened:
            await opened.write(ConnectionStore.insert_work(records))

    asyncio.run(store())


def test_policy_is_chosen_shown_and_changed(server: PaddockCliServer) -> None:
    options = ["--network", "packages", "--network", "deny *.example.com"]
    sandbox = server.output("sandbox", "create", "--image", "host", *options)
    assert "packages, deny *.example.com" in server.output("sandbox", "show", sandbox)
    changed = server.output("sandbox", "net", sandbox, "--allow", "pypi.org:443", "--remove", "*.example.com")
    assert changed.splitlines() == ["allow pypi.org:443", "allow packages"]
    assert server.json_output("sandbox", "net", sandbox, "--policy", "web")["policy"] == ["allow web"]
    assert server.output("sandbox", "net", sandbox, "--policy", "none") == "none"
    server.output("sandbox", "rm", sandbox)


def test_wrong_policies_have_clear_errors(server: PaddockCliServer, sandbox: str) -> None:
    for options, words in (
        (["--policy", "web", "--allow", "a.org"], b"cannot be combined"),
        (["--follow", "--deny", "a.org"], b"--follow and --denied list connections"),
        (["--allow", "a b"], b"must be 'allow TARGET' or 'deny TARGET'"),
    ):
        refused = server.run("sandbox", "net", sandbox, *options)
        assert refused.returncode != 0 and words in refused.stderr, refused.stderr


def test_connections_are_listed_and_followed(server: PaddockCliServer, own_sandbox: str) -> None:
    assert server.json_output("sandbox", "net", own_sandbox)["items"] == []
    store_connections(server, [a_connection(own_sandbox, 1), a_connection(own_sandbox, 2, allowed=False)])
    header, denied, allowed = server.output("sandbox", "net", own_sandbox).splitlines()
    assert header.split() == ["TIME", "TARGET", "DECISION", "SENT", "RECEIVED", "FOR", "REASON"]
    assert "pypi.org:443" in denied and "denied" in denied and "`allow pypi.org:443`" in denied
    assert "allowed" in allowed and "2.0 KiB" in allowed and "3.0 MiB" in allowed
    shown = server.json_output("sandbox", "net", own_sandbox, "--denied")
    assert [item["decision"] for item in shown["items"]] == ["denied"] and len(shown["totals"]) == 1
    following = server.start("sandbox", "net", own_sandbox, "--follow", "--json")
    assert following.stdout is not None
    assert [json.loads(following.stdout.readline())["decision"] for _ in range(2)] == ["allowed", "denied"]
    store_connections(server, [a_connection(own_sandbox, 3)])
    assert json.loads(following.stdout.readline())["id"] == f"net-{own_sandbox}-3"
    server.output("sandbox", "rm", own_sandbox)
    rest, _ = following.communicate(timeout=30)
    assert (following.returncode, rest) == (0, b"")
    # The records of a deleted sandbox stay for a while.
    assert len(server.json_output("sandbox", "net", own_sandbox)["items"]) == 3


def test_run_overrides_the_network_of_its_task(server: PaddockCliServer, tmp_path: Path) -> None:
    file = tmp_path / "task.json"
    file.write_text(json.dumps(TASK))
    for options, policy in (
        ((), ["allow packages"]),
        (("--network", "none"), None),
        (("--network", "web"), ["allow web"]),
    ):
        run = server.output("run", str(file), "--detach", *options)
        assert server.json_output("runs", "show", run)["task"].get("network") == policy
    refused = server.run("run", str(file), "--network", "exa*mple.com")
    assert refused.returncode != 0 and b"is not a host name" in refused.stderr


def test_chat_has_the_network_of_its_option(server: PaddockCliServer) -> None:
    def chat(message: str, *options: str) -> list[str] | None:
        server.output("chat", message, "-p", "--model", "demo", *options)
        policy: list[str] | None = json.loads(server.output("session", "list", "--json"))[0].get("network")
        return policy

    assert chat("Hello?", "--network", "packages") == ["allow packages"]
    resumed = ("--resume", "last")
    assert chat("And now?", *resumed, "--network", "web", "--network", "deny a.org") == ["allow web", "deny a.org"]
    assert chat("And then?", *resumed) == ["allow web", "deny a.org"]
    assert chat("And last?", *resumed, "--network", "default") is None
    refused = server.run("chat", "Hello?", "-p", *resumed, "--network", "default", "--network", "web")
    assert refused.returncode != 0 and b"stands alone" in refused.stderr

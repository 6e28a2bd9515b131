"""Sharing chats, runs and sandboxes with the tenant by the command line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.cli_driver import PaddockCli, PaddockCliServer

TASK = {"name": "shared-task", "goal": "Nothing.", "image": "host", "entrypoint": "true"}
GROUPS = {"session": "sessions", "runs": "runs", "sandbox": "sandboxes"}
"""Command groups, and the scopes and API paths of their objects."""


@pytest.fixture(scope="module")
def colleague(server: PaddockCliServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PaddockCli]:
    """The command with another key of the tenant."""
    scopes = [f"{scope}:write" for scope in GROUPS.values()]
    arguments = [word for scope in scopes for word in ("--scope", scope)]
    secret = server.json_output("key", "create", "colleague", *arguments)["secret"]
    other = PaddockCli(tmp_path_factory.mktemp("colleague") / "data")
    other.env |= {"PADDOCK_URL": server.url, "PADDOCK_API_KEY": secret}
    yield other
    server.run("key", "revoke", "colleague")


def create_object(server: PaddockCliServer, group: str, directory: Path) -> str:
    if group == "sandbox":
        return server.output("sandbox", "create", "--image", "host")
    if group == "runs":
        file = directory / "task.json"
        file.write_text(json.dumps(TASK))
        return server.output("run", str(file), "--detach")
    server.run("chat", "Hello?", "-p", "--model", "demo")
    return str(json.loads(server.output("session", "list", "--json"))[0]["id"])


@pytest.mark.parametrize("group", GROUPS)
def test_object_is_visible_to_tenant_only_while_shared(
    server: PaddockCliServer, colleague: PaddockCli, group: str, tmp_path: Path
) -> None:
    object_id = create_object(server, group, tmp_path)

    def is_visible() -> bool:
        return colleague.run(group, "show", object_id).returncode == 0

    try:
        assert not is_visible()
        refused = colleague.run(group, "share", object_id)
        assert refused.returncode != 0 and object_id.encode() in refused.stderr
        assert server.output(group, "share", object_id) == f"{object_id}  tenant"
        assert is_visible()
        assert object_id in colleague.output(group, "list")
        # Only the owner can unshare it.
        assert colleague.run(group, "unshare", object_id).returncode != 0 and is_visible()
        (unshared,) = server.json_output(group, "unshare", object_id)
        assert (unshared["id"], unshared["visibility"]) == (object_id, "private")
        assert not is_visible()
    finally:
        server.run(group, "rm", object_id)

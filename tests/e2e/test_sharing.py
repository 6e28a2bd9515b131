"""Sharing chats, runs and sandboxes with the tenant by the command line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.cli_driver import Paddock, Server

TASK = {"name": "shared-task", "goal": "Nothing.", "image": "host", "entrypoint": "true"}
GROUPS = {"session": "sessions", "runs": "runs", "sandbox": "sandboxes"}
"""Command groups, and the scopes and API paths of their objects."""


@pytest.fixture(scope="module")
def colleague(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Paddock]:
    """The command with another key of the tenant."""
    scopes = [f"{scope}:write" for scope in GROUPS.values()]
    words = [word for scope in scopes for word in ("--scope", scope)]
    secret = server.json("key", "create", "colleague", *words)["secret"]
    other = Paddock(tmp_path_factory.mktemp("colleague") / "data")
    other.env |= {"PADDOCK_URL": server.url, "PADDOCK_API_KEY": secret}
    yield other
    server.run("key", "revoke", "colleague")


def create_object(server: Server, group: str, directory: Path) -> str:
    if group == "sandbox":
        return server.text("sandbox", "create", "--image", "host")
    if group == "runs":
        file = directory / "task.json"
        file.write_text(json.dumps(TASK))
        return server.text("run", str(file), "--detach")
    server.run("chat", "Hello?", "-p", "--model", "demo")
    return str(json.loads(server.text("session", "list", "--json"))[0]["id"])


@pytest.mark.parametrize("group", GROUPS)
def test_what_is_shared_is_seen_by_others_and_then_no_more(
    server: Server, colleague: Paddock, group: str, tmp_path: Path
) -> None:
    made = create_object(server, group, tmp_path)

    def seen() -> bool:
        return colleague.run(group, "show", made).returncode == 0

    try:
        assert not seen()
        refused = colleague.run(group, "share", made)
        assert refused.returncode != 0 and made.encode() in refused.stderr
        assert server.text(group, "share", made) == f"{made}  tenant"
        assert seen()
        assert made in colleague.text(group, "list")
        # Only the owner takes it back.
        assert colleague.run(group, "unshare", made).returncode != 0 and seen()
        (told,) = server.json(group, "unshare", made)
        assert (told["id"], told["visibility"]) == (made, "private")
        assert not seen()
    finally:
        server.run(group, "rm", made)

"""Slash commands of `paddock chat`, against the real API."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from paddock.cli.chat.slash_commands import SLASH_COMMAND_HELP, run_slash_command
from paddock.cli.connection.reconnecting_client import ReconnectingClient
from paddock.cli.connection.server_client import ServerClient
from paddock.cli.output.errors import UsageError
from paddock.model.sessions import SessionUsage
from paddock.store.chat_sessions.session_store import SessionStore
from tests.integration.api.sessions.scripted_chat_server import ScriptedChatServer, run_scripted_chat_server


@pytest.fixture(scope="module")
def chat(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScriptedChatServer]:
    with run_scripted_chat_server(tmp_path_factory.mktemp("paddock")) as running:
        yield running


def run_command(chat: ScriptedChatServer, session: str, line: str) -> str | None:
    word, _, rest = line.partition(" ")

    async def note() -> str | None:
        async with ServerClient(chat.url, chat.key) as client:
            return await run_slash_command(ReconnectingClient(client), session, word, rest)

    return asyncio.run(note())


def test_model_command_shows_and_changes_the_model(chat: ScriptedChatServer) -> None:
    session = chat.create_session(model="first")
    assert "the model is first" in (run_command(chat, session, "/model") or "")
    assert "second" in (run_command(chat, session, "/model second") or "")
    with chat.client() as client:
        assert client.get(f"/v1/sessions/{session}").json()["model"] == "second"


def test_rules_command_shows_and_changes_rules(chat: ScriptedChatServer) -> None:
    rules = [{"tool": "delete_file", "action": "deny"}]
    session = chat.create_session(policy={"rules": rules, "allow_all": ["linux"]})
    assert (run_command(chat, session, "/rules") or "").split("\n")[:3] == [
        "1. deny   delete_file",
        "2. allow  all calls in sandboxes of kind linux",
        "Without a matching rule, commands and file changes need your approval, and everything else is allowed.",
    ]
    shown = run_command(chat, session, "/rules allow run_shell_command command='git status*' cwd=/workspace") or ""
    assert "1. allow  run_shell_command 'command=git status*' cwd=/workspace\n2. deny   delete_file" in shown
    # The same rule with another action replaces the rule.
    for line in ("ask run_shell_command command='git status*' cwd=/workspace", "remove 3", "allow all code"):
        run_command(chat, session, f"/rules {line}")
    with chat.client() as client:
        policy = client.get(f"/v1/sessions/{session}").json()["policy"]
    assert [(each["action"], each["tool"]) for each in policy["rules"]] == [
        ("ask", "run_shell_command"),
        ("deny", "delete_file"),
    ]
    assert policy["rules"][0]["arguments"] == {"command": "git status*", "cwd": "/workspace"}
    assert policy["allow_all"] == ["code"]
    assert "1. allow  all calls" in (run_command(chat, chat.create_session(), "/rules allow all") or "")
    assert (run_command(chat, chat.create_session(), "/rules") or "").startswith("This session has no rules.")


@pytest.mark.parametrize(
    "change", ["remove 7", "remove x", "allow", "ask all", "forbid ls", "deny ls =x", "deny ls x", "deny '"]
)
def test_invalid_rule_changes_are_explained(chat: ScriptedChatServer, change: str) -> None:
    session = chat.create_session()
    with pytest.raises(UsageError) as error:
        run_command(chat, session, f"/rules {change}")
    assert "/rules" in str(error.value.hint)
    with chat.client() as client:
        assert client.get(f"/v1/sessions/{session}").json()["policy"]["rules"] == []


def test_sandboxes_and_usage_commands_print_state(chat: ScriptedChatServer) -> None:
    session = chat.create_session(kinds=["code", "linux"], budget=1000)
    assert run_command(chat, session, "/sandboxes") == "code     not started yet\nlinux    not started yet"
    assert "unknown cost" in (run_command(chat, session, "/usage") or "")
    with chat.client() as client:
        sandbox = client.post("/v1/sandboxes", json={"image": {"uri": "host"}, "timeout": 300}).json()["id"]
    usage = SessionUsage(requests=2, input_tokens=300, output_tokens=40, cost=0.5)
    changes = {"sandboxes": {"code": sandbox, "linux": "sb-gone"}, "usage": usage}
    now = datetime.now(UTC)
    chat.run_in_server_loop(
        chat.paddock.store.write(lambda connection: SessionStore.update_session(connection, session, changes, now))
    )
    first, second = (run_command(chat, session, "/sandboxes") or "").split("\n")
    assert first.split() == ["code", sandbox, "Running"] and "gone" in second
    assert run_command(chat, session, "/usage") == (
        "2 requests; 300 tokens in, 40 out; $0.50; 340 of 1,000 tokens of the budget"
    )
    with chat.client() as client:
        assert client.delete(f"/v1/sandboxes/{sandbox}").status_code == 204


def test_help_lists_commands_and_unknown_ones_are_rejected(chat: ScriptedChatServer) -> None:
    session = chat.create_session()
    assert run_command(chat, session, "/nothing") is None
    assert all(f"  {word} " in SLASH_COMMAND_HELP for word in ("/model", "/rules", "/sandboxes", "/usage"))

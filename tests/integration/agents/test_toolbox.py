"""Tools of a session across its sandboxes, which are created when needed and may end at any time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from paddock.agents.tools.tool_names import build_sandbox_tool_specs, default_sandbox_tools
from paddock.errors import SandboxNotFound
from paddock.fleet.fleet_requests import SandboxRequest
from paddock.fleet.kinds import CODE
from paddock.model.owners import Visibility
from paddock.model.sandbox import Sandbox, SandboxState
from paddock.model.sessions import FileContent, SessionMessage, TextContent, ToolCall
from paddock.store.chat_sessions.session_store import SessionStore
from tests.integration.agents.sandbox_harness import TENANT, SandboxHarness, open_sandbox_harness, remove_everything
from tests.integration.fleet.conftest import until

pytestmark = pytest.mark.anyio


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[SandboxHarness]:
    async with open_sandbox_harness(tmp_path) as opened:
        yield opened
    await remove_everything(tmp_path)


async def test_duration_of_a_call_does_not_include_the_start_of_its_sandbox(
    harness: SandboxHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = harness.fleet.create

    async def create_slowly(*arguments: Any, **more: Any) -> Any:
        await asyncio.sleep(2)
        return await create(*arguments, **more)

    monkeypatch.setattr(harness.fleet, "create", create_slowly)
    result = await harness.call_tool(await harness.create_session(), "code_run_shell_command", command="true")
    assert not result.failed, result.text
    assert 0 < result.seconds < 2


async def test_sandbox_is_created_and_emitted_on_first_use(harness: SandboxHarness) -> None:
    session = await harness.create_session()
    assert (await harness.session_store.get(session.id)).sandboxes == {}
    result = await harness.call_tool(session, "code_run_shell_command", command="pwd; echo $PADDOCK_KIND")
    assert not result.failed, result.text
    assert "/workspace\ncode" in result.text
    assert result.seconds > 0
    sandbox_id = await harness.sandbox_id(session)
    sandbox = await harness.fleet.get(TENANT, sandbox_id)
    assert sandbox.metadata["session"] == session.id and sandbox.kind == "code"
    states = [
        (each["kind"], each["sandbox_id"], each["state"])
        for each in await harness.events_of(session, "session.sandbox")
    ]
    assert states == [("code", "", "starting"), ("code", sandbox_id, "ready")]


async def test_concurrent_first_calls_share_one_sandbox(harness: SandboxHarness) -> None:
    session = await harness.create_session()
    calls = [harness.call_tool(session, "code_run_shell_command", command="hostname") for _ in range(5)]
    results = await asyncio.gather(*calls)
    assert len({result.text for result in results}) == 1
    assert len((await harness.fleet.list(TENANT))[0]) == 1


async def test_session_shared_during_creation_shares_its_sandbox(
    harness: SandboxHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await harness.create_session(subject="ann", visibility=Visibility.PRIVATE)
    create, now = harness.fleet.create, datetime.now(UTC)

    async def share_and_create(tenant: str, request: SandboxRequest) -> Sandbox:
        changes = {"visibility": Visibility.TENANT}
        updated = await harness.store.write(
            lambda connection: SessionStore.update_session(connection, session.id, changes, now)
        )
        await harness.toolbox.share_sandboxes(updated)
        return await create(tenant, request)

    monkeypatch.setattr(harness.fleet, "create", share_and_create)
    sandbox = await harness.toolbox.get_sandbox(session, "code")
    assert (await harness.fleet.get(TENANT, sandbox.id)).visibility is Visibility.TENANT


@pytest.mark.parametrize(
    ("network", "expected"),
    [(("allow pypi.org",), ("allow files.example.com:8443", "allow pypi.org")), (None, None)],
    ids=["policy of the session", "policy of the kind"],
)
async def test_approved_network_access_changes_the_policy(
    harness: SandboxHarness, network: tuple[str, ...] | None, expected: tuple[str, ...] | None
) -> None:
    arguments = {"kind": "code", "host": "Files.Example.com", "port": 8443, "reason": "to download"}
    session = await harness.create_session(network=network)
    result = await harness.call_tool(session, "request_network_access", **arguments)
    assert not result.failed and "may connect to Files.Example.com:8443" in result.text
    sandbox = await harness.fleet.get(TENANT, await harness.sandbox_id(session))
    assert sandbox.network[0] == "allow files.example.com:8443"
    assert (await harness.session_store.get(session.id)).network == expected
    refused = await harness.call_tool(session, "request_network_access", **{**arguments, "host": "not a host"})
    assert refused.failed and "must be 'allow TARGET'" in refused.text


async def test_sandboxes_have_the_network_of_their_session(harness: SandboxHarness) -> None:
    session = await harness.create_session(network=("allow pypi.org",))
    sandbox = await harness.toolbox.get_sandbox(session, "code")
    assert sandbox.network == ("allow pypi.org",)
    changes, now = {"network": ()}, datetime.now(UTC)
    changed = await harness.store.write(
        lambda connection: SessionStore.update_session(connection, session.id, changes, now)
    )
    await harness.toolbox.change_network(changed)
    assert (await harness.fleet.get(TENANT, sandbox.id)).network == ()
    await harness.fleet.delete(TENANT, sandbox.id)
    await harness.toolbox.change_network(changed)  # A deleted sandbox is skipped.


async def test_session_without_network_restores_that_of_its_kinds(harness: SandboxHarness) -> None:
    session = await harness.create_session(network=("allow pypi.org",))
    default = (await harness.fleet.create(TENANT, SandboxRequest(kind="code"))).network
    sandbox = await harness.toolbox.get_sandbox(session, "code")
    changes, now = {"network": None}, datetime.now(UTC)
    changed = await harness.store.write(
        lambda connection: SessionStore.update_session(connection, session.id, changes, now)
    )
    assert changed.network is None
    await harness.toolbox.change_network(await harness.session_store.get(session.id))
    assert (await harness.fleet.get(TENANT, sandbox.id)).network == default != ("allow pypi.org",)


async def test_network_changed_during_creation_applies_to_the_new_sandbox(
    harness: SandboxHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await harness.create_session(network=("allow pypi.org",))
    create, now = harness.fleet.create, datetime.now(UTC)

    async def create_and_change(tenant: str, request: SandboxRequest) -> Sandbox:
        created = await create(tenant, request)
        await harness.store.write(
            lambda connection: SessionStore.update_session(connection, session.id, {"network": ()}, now)
        )
        return created

    monkeypatch.setattr(harness.fleet, "create", create_and_change)
    sandbox = await harness.toolbox.get_sandbox(session, "code")
    assert (await harness.fleet.get(TENANT, sandbox.id)).network == ()


async def test_sandboxes_of_two_kinds_work_concurrently_and_isolated(harness: SandboxHarness) -> None:
    session = await harness.create_session("code", "other")
    wait = "echo hello > mine; until [ -e go ]; do sleep 0.02; done; echo went"
    waiting = asyncio.create_task(harness.call_tool(session, "code_run_shell_command", command=wait, timeout=60))
    seen = await harness.call_tool(session, "other_run_shell_command", command="ls /workspace; echo end")
    assert seen.text.strip().startswith("end"), seen.text
    assert not waiting.done()

    async def has_started() -> bool:
        return "code" in (await harness.session_store.get(session.id)).sandboxes

    await until(has_started)
    await harness.call_tool(session, "code_write_file", path="/workspace/go", content="")
    assert "went" in (await waiting).text


async def test_tools_are_the_same_before_and_after_creation(harness: SandboxHarness) -> None:
    session = await harness.create_session()
    before = await harness.toolbox.list_tools(session)
    await harness.toolbox.get_sandbox(session, "code")
    assert await harness.toolbox.list_tools(session) == before
    session_tools = [spec for spec in before if spec.kind is None]
    assert list(before) == [*session_tools, *build_sandbox_tool_specs("code", default_sandbox_tools(CODE))]


async def test_written_file_is_emitted(harness: SandboxHarness) -> None:
    session = await harness.create_session()
    await harness.call_tool(session, "code_write_file", path="/workspace/a.txt", content="x")
    (event,) = await harness.events_of(session, "session.file")
    assert event == {"kind": "code", "sandbox_id": await harness.sandbox_id(session), "path": "/workspace/a.txt"}


async def test_large_output_is_cut_and_stored(harness: SandboxHarness) -> None:
    session = await harness.create_session()
    code = "open('/workspace/big', 'w').write('x' * 2**20)"
    await harness.call_tool(session, "code_run_shell_command", command=f'python3 -c "{code}"')
    result = await harness.call_tool(session, "code_read_file", path="/workspace/big", encoding="base64", bytes=2**20)
    assert not result.failed, result.text
    assert len(result.text) <= 20_000
    (stored,) = [part for part in result.content if isinstance(part, FileContent)]
    assert stored.size > 20_000 and stored.file in result.text
    back = await harness.call_tool(
        session, "session_file_to_sandbox", file=stored.file, to_kind="code", to_path="/workspace/back"
    )
    assert not back.failed, back.text
    counted = await harness.call_tool(session, "code_run_shell_command", command="wc -c < back")
    assert str(stored.size) in counted.text


async def test_command_in_killed_sandbox_is_not_run_again(harness: SandboxHarness) -> None:
    session = await harness.create_session()
    await harness.call_tool(session, "code_write_file", path="/workspace/keep", content="kept")
    await harness.call_tool(session, "code_write_file", path="/tmp/gone", content="lost")
    sandbox = await harness.sandbox_id(session)
    count = "echo once >> /workspace/count; sleep 60"
    running = asyncio.create_task(harness.call_tool(session, "code_run_shell_command", command=count))
    daemon = await harness.fleet.running_client(TENANT, sandbox)

    async def has_counted() -> bool:
        return (await daemon.run("cat /workspace/count")).exit_code == 0

    await until(has_counted)
    harness.kill_sandbox(sandbox)
    async with asyncio.timeout(20):
        result = await running
    assert result.failed and not result.refused
    assert "lost while code_run_shell_command was running" in result.text and "in part" in result.text
    assert (await harness.session_store.get(session.id)).sandboxes == {}
    states = [each["state"] for each in await harness.events_of(session, "session.sandbox")]
    assert states == ["starting", "ready", "broken"]
    result_after = await harness.call_tool(session, "code_run_shell_command", command="cat keep count; ls /tmp/gone")
    assert "kept" in result_after.text and result_after.text.count("once") == 1
    assert "No such file" in result_after.text
    assert "A new code sandbox was created" in result_after.text and "/workspace is unchanged" in result_after.text
    assert await harness.sandbox_id(session) != sandbox


async def test_read_only_call_is_repeated_in_new_sandbox(harness: SandboxHarness) -> None:
    session = await harness.create_session()
    await harness.call_tool(session, "code_run_shell_command", command="echo here > /workspace/a")
    sandbox = await harness.sandbox_id(session)
    specs = {spec.name: spec for spec in await harness.toolbox.list_tools(session)}
    # A command marked as read-only stands in for a slow read-only tool.
    read_only_spec = specs["code_run_shell_command"].model_copy(update={"effect": "none"})
    command = "if [ -e first ]; then cat a; else touch first; sleep 60; fi"
    running = asyncio.create_task(harness.run_tool(session, read_only_spec, {"command": command}))
    daemon = await harness.fleet.running_client(TENANT, sandbox)

    async def has_started() -> bool:
        return (await daemon.run("test -e /workspace/first")).exit_code == 0

    await until(has_started)
    harness.kill_sandbox(sandbox)
    async with asyncio.timeout(20):
        result = await running
    assert not result.failed, result.text
    assert "here" in result.text and "A new code sandbox was created" in result.text


async def test_deleted_sandbox_is_replaced_before_the_call(harness: SandboxHarness) -> None:
    session = await harness.create_session()
    await harness.call_tool(session, "code_write_file", path="/workspace/a", content="still here")
    sandbox = await harness.sandbox_id(session)
    await harness.fleet.delete(TENANT, sandbox)
    result = await harness.call_tool(session, "code_run_shell_command", command="cat a")
    assert not result.failed
    assert "still here" in result.text and "the sandbox was deleted" in result.text
    assert await harness.sandbox_id(session) != sandbox
    states = [each["state"] for each in await harness.events_of(session, "session.sandbox")]
    assert states == ["starting", "ready", "broken", "starting", "ready"]


async def test_paused_sandbox_is_resumed(harness: SandboxHarness) -> None:
    session = await harness.create_session()
    await harness.call_tool(session, "code_write_file", path="/tmp/a", content="still here")
    sandbox = await harness.sandbox_id(session)
    await harness.fleet.pause(TENANT, sandbox)
    result = await harness.call_tool(session, "code_read_file", path="/tmp/a")
    assert "still here" in result.text and "had been paused" in result.text
    assert await harness.sandbox_id(session) == sandbox


async def test_failed_creation_of_one_kind_does_not_affect_others(tmp_path: Path) -> None:
    kinds = {"code": {"image": "host"}, "other": {"image": "no-such-image"}}
    async with open_sandbox_harness(tmp_path, kinds=kinds) as harness:
        session = await harness.create_session("code", "other")
        failed, succeeded = await asyncio.gather(
            harness.call_tool(session, "other_read_file", path="/etc/hostname"),
            harness.call_tool(session, "code_run_shell_command", command="echo fine"),
        )
        assert failed.failed and "no-such-image" in failed.text
        assert "fine" in succeeded.text
        states = [each for each in await harness.events_of(session, "session.sandbox") if each["kind"] == "other"]
        assert [each["state"] for each in states] == ["starting", "broken"]
    await remove_everything(tmp_path)


async def test_invalid_tools_arguments_and_kinds_are_failed_results(harness: SandboxHarness) -> None:
    session = await harness.create_session()
    specs = {spec.name: spec for spec in await harness.toolbox.list_tools(session)}
    unknown = specs["code_read_file"].model_copy(update={"tool": "read_fil"})
    assert "did you mean read_file" in (await harness.run_tool(session, unknown, {"path": "/x"})).text
    assert (await harness.run_tool(session, specs["code_read_file"], {"pth": "/x"})).failed
    assert (await harness.run_tool(session, specs["code_read_file"], {"path": "/no/such"})).failed
    other = specs["code_read_file"].model_copy(update={"kind": "browser"})
    assert "may not use browser" in (await harness.run_tool(session, other, {"path": "/x"})).text
    assert (await harness.run_tool(session, specs["update_plan"], {"steps": "no"})).failed
    assert (await harness.run_tool(session, specs["ask_user"], {"question": "?"})).failed


async def test_timed_out_call_ends_and_sandbox_stays(tmp_path: Path) -> None:
    async with open_sandbox_harness(tmp_path, chat={"call_timeout": 1}) as harness:
        session = await harness.create_session()
        await harness.toolbox.get_sandbox(session, "code")
        sandbox = await harness.sandbox_id(session)
        result = await harness.call_tool(session, "code_run_shell_command", command="sleep 60")
        assert result.failed and "no answer within 1 seconds" in result.text
        assert await harness.sandbox_id(session) == sandbox
        assert "well" in (await harness.call_tool(session, "code_run_shell_command", command="echo well")).text
    await remove_everything(tmp_path)


async def test_use_renews_the_sandbox(harness: SandboxHarness) -> None:
    session = await harness.create_session()
    sandbox = (await harness.toolbox.get_sandbox(session, "code")).id
    soon = datetime.now(UTC) + timedelta(seconds=60)
    await harness.fleet.renew(TENANT, sandbox, soon)
    await harness.call_tool(session, "code_run_shell_command", command="true")
    renewed = (await harness.fleet.get(TENANT, sandbox)).expires_at
    assert renewed is not None and renewed > soon + timedelta(seconds=3600)
    await harness.call_tool(session, "code_run_shell_command", command="true")
    assert (await harness.fleet.get(TENANT, sandbox)).expires_at == renewed


async def test_files_are_copied_between_sandboxes(harness: SandboxHarness) -> None:
    session = await harness.create_session("code", "other")
    await harness.call_tool(session, "code_write_file", path="/workspace/a.txt", content="from code")
    copied = await harness.call_tool(
        session,
        "move_between_sandboxes",
        from_kind="code",
        from_path="/workspace/a.txt",
        to_kind="other",
        to_path="/workspace/in/b.txt",
    )
    assert not copied.failed, copied.text
    assert "from code" in (await harness.call_tool(session, "other_read_file", path="/workspace/in/b.txt")).text
    file_event = (await harness.events_of(session, "session.file"))[-1]
    assert (
        file_event["source"] == "code:/workspace/a.txt"
        and file_event["path"] == "/workspace/in/b.txt"
        and file_event["kind"] == "other"
    )
    missing = await harness.call_tool(
        session, "move_between_sandboxes", from_kind="code", from_path="/no", to_kind="other", to_path="/workspace/x"
    )
    assert missing.failed and "there is no" in missing.text


async def test_session_files_are_kept_and_written_to_sandboxes(harness: SandboxHarness) -> None:
    session = await harness.create_session()
    await harness.call_tool(session, "code_write_file", path="/workspace/report.csv", content="a,b\n1,2\n")
    result = await harness.call_tool(session, "keep_file", kind="code", path="/workspace/report.csv")
    (stored,) = [part for part in result.content if isinstance(part, FileContent)]
    assert stored.name == "report.csv" and await harness.files.read_file(session.id, stored.file) == b"a,b\n1,2\n"
    message = SessionMessage(
        id="m1", session=session.id, turn=1, role="user", content=(TextContent(text="?"), stored), at=session.created_at
    )
    await harness.store.write(lambda connection: harness.session_store.store_message(connection, message))
    target = {"to_kind": "code", "to_path": "/workspace/again.csv"}
    assert not (await harness.call_tool(session, "session_file_to_sandbox", file="report.csv", **target)).failed
    assert "a,b" in (await harness.call_tool(session, "code_read_file", path="/workspace/again.csv")).text
    assert (await harness.call_tool(session, "session_file_to_sandbox", file="other.csv", **target)).failed
    assert (await harness.call_tool(session, "keep_file", kind="code", path="/workspace")).failed


async def test_plan_is_stored_and_emitted(harness: SandboxHarness) -> None:
    session = await harness.create_session()
    steps = [{"title": "look", "state": "done"}, {"title": "leap"}]
    result = await harness.call_tool(session, "update_plan", steps=steps)
    assert "1 of 2" in result.text
    assert [(step.title, step.state) for step in (await harness.session_store.get(session.id)).plan] == [
        ("look", "done"),
        ("leap", "pending"),
    ]
    assert (await harness.events_of(session, "plan.changed"))[0]["steps"][1] == {"title": "leap", "state": "pending"}


async def test_terminal_is_opened_for_the_user(harness: SandboxHarness) -> None:
    session = await harness.create_session()
    result = await harness.call_tool(session, "start_terminal", kind="code", name="shell")
    assert not result.failed, result.text
    sandbox = await harness.sandbox_id(session)
    assert [each["name"] for each in await harness.live.terminals.list_terminals(TENANT, sandbox)] == ["shell"]
    assert await harness.events_of(session, "session.terminal") == [
        {"kind": "code", "sandbox_id": sandbox, "name": "shell", "state": "ready"}
    ]


async def test_tools_are_listed_for_one_kind(harness: SandboxHarness) -> None:
    session = await harness.create_session("code", "other")
    listed = await harness.call_tool(session, "list_tools", kind="other")
    assert "other_read_file:" in listed.text and "code_" not in listed.text


async def test_release_deletes_sandboxes_and_keeps_workspace(harness: SandboxHarness) -> None:
    session = await harness.create_session("code", "other")
    await harness.call_tool(session, "code_write_file", path="/workspace/a", content="still here")
    await harness.toolbox.get_sandbox(session, "other")
    await harness.toolbox.release_sandboxes(session, "idle")
    await harness.toolbox.release_sandboxes(session, "idle")
    assert (await harness.fleet.list(TENANT))[1] == 0
    assert (await harness.session_store.get(session.id)).sandboxes == {}
    released = [each for each in await harness.events_of(session, "session.sandbox") if each["state"] == "released"]
    assert sorted(each["kind"] for each in released) == ["code", "other"]
    assert "still here" in (await harness.call_tool(session, "code_read_file", path="/workspace/a")).text


async def test_deletion_removes_sandboxes_and_workspaces(harness: SandboxHarness) -> None:
    session = await harness.create_session("code")
    other_session = await harness.create_session("code", session_id="ses-12")
    for each in (session, other_session):
        await harness.call_tool(each, "code_write_file", path="/workspace/a", content=each.id)
    await harness.toolbox.delete_sandboxes(session)
    await harness.toolbox.delete_sandboxes(session)
    assert harness.fleet.volumes.list_volume_names(TENANT) == ["ses-12-code"]
    assert "ses-12" in (await harness.call_tool(other_session, "code_read_file", path="/workspace/a")).text


async def test_sessions_have_separate_sandboxes(harness: SandboxHarness) -> None:
    one, other = await harness.create_session(session_id="ses-a"), await harness.create_session(session_id="ses-b")
    await harness.call_tool(one, "code_write_file", path="/workspace/secret", content="x")
    seen = await harness.call_tool(other, "code_run_shell_command", command="find / -name secret 2>/dev/null; echo end")
    assert "/workspace/secret" not in seen.text
    assert await harness.sandbox_id(one) != await harness.sandbox_id(other)


async def test_sandbox_of_cancelled_call_serves_the_next_call(harness: SandboxHarness) -> None:
    session = await harness.create_session()
    specs = {spec.name: spec for spec in await harness.toolbox.list_tools(session)}
    first = asyncio.create_task(harness.run_tool(session, specs["code_read_file"], {"path": "/etc/hostname"}))

    async def starting() -> bool:
        return (await harness.fleet.list(TENANT))[1] == 1

    await until(starting)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert not (await harness.call_tool(session, "code_run_shell_command", command="true")).failed
    listed, count = await harness.fleet.list(TENANT)
    assert count == 1 and listed[0].state is SandboxState.RUNNING


async def test_sandbox_of_cancelled_call_is_released(harness: SandboxHarness) -> None:
    session = await harness.create_session()
    specs = {spec.name: spec for spec in await harness.toolbox.list_tools(session)}
    running = asyncio.create_task(harness.run_tool(session, specs["code_read_file"], {"path": "/etc/hostname"}))

    async def starting() -> bool:
        return bool(await harness.events_of(session, "session.sandbox"))

    await until(starting)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await harness.toolbox.release_sandboxes(session, "cancelled")
    assert (await harness.fleet.list(TENANT))[1] == 0
    assert (await harness.session_store.get(session.id)).sandboxes == {}


async def test_session_deleted_during_creation_leaves_no_sandbox(harness: SandboxHarness) -> None:
    session = await harness.create_session()
    specs = {spec.name: spec for spec in await harness.toolbox.list_tools(session)}
    call = ToolCall(id="c1", name="code_read_file", arguments={"path": "/etc/hostname"})
    running = asyncio.create_task(harness.toolbox.run_call(session, 1, call, specs["code_read_file"]))

    async def starting() -> bool:
        return (await harness.fleet.list(TENANT))[1] == 1

    await until(starting)
    await harness.store.write(lambda connection: harness.session_store.delete_session(connection, session.id))
    assert (await running).failed
    assert (await harness.fleet.list(TENANT))[1] == 0


async def test_same_sandbox_is_used_after_restart(tmp_path: Path) -> None:
    async with open_sandbox_harness(tmp_path) as harness:
        session = await harness.create_session()
        await harness.call_tool(session, "code_write_file", path="/tmp/a", content="still here")
        sandbox = await harness.sandbox_id(session)
    async with open_sandbox_harness(tmp_path) as harness:
        assert "still here" in (await harness.call_tool(session, "code_read_file", path="/tmp/a")).text
        assert await harness.sandbox_id(session) == sandbox
        # A server that crashed after creation may have left a sandbox that the session does not name.
        await harness.store.write(
            lambda connection: harness.session_store.update_session(
                connection, session.id, {"sandboxes": {}}, session.created_at
            )
        )
        assert "still here" in (await harness.call_tool(session, "code_read_file", path="/tmp/a")).text
        assert await harness.sandbox_id(session) == sandbox
        await harness.toolbox.release_sandboxes(session, "idle")
        with pytest.raises(SandboxNotFound):
            await harness.fleet.get(TENANT, sandbox)
    await remove_everything(tmp_path)

"""Tools of a session across its sandboxes, which come when they are needed and may go at any time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from paddock.agents.tools.tool_names import build_tool_specs, default_tools
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
async def bench(tmp_path: Path) -> AsyncIterator[SandboxHarness]:
    async with open_sandbox_harness(tmp_path) as made:
        yield made
    await remove_everything(tmp_path)


async def test_a_sandbox_is_made_on_first_use_and_told_of(bench: SandboxHarness) -> None:
    session = await bench.session()
    assert (await bench.book.get(session.id)).sandboxes == {}
    result = await bench.call(session, "code_run_shell_command", command="pwd; echo $PADDOCK_KIND")
    assert not result.failed, result.text
    assert "/workspace\ncode" in result.text
    assert result.seconds > 0
    handle = await bench.sandbox(session)
    sandbox = await bench.fleet.get(TENANT, handle)
    assert sandbox.metadata["session"] == session.id and sandbox.kind == "code"
    told = [(each["kind"], each["sandbox_id"], each["state"]) for each in await bench.told(session, "session.sandbox")]
    assert told == [("code", "", "starting"), ("code", handle, "ready")]


async def test_calls_that_come_first_together_share_one_sandbox(bench: SandboxHarness) -> None:
    session = await bench.session()
    calls = [bench.call(session, "code_run_shell_command", command="hostname") for _ in range(5)]
    results = await asyncio.gather(*calls)
    assert len({result.text for result in results}) == 1
    assert len((await bench.fleet.list(TENANT))[0]) == 1


async def test_a_session_shared_while_its_sandbox_is_made_shares_the_sandbox(
    bench: SandboxHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await bench.session(subject="ann", visibility=Visibility.PRIVATE)
    create, now = bench.fleet.create, datetime.now(UTC)

    async def shared_before(tenant: str, request: SandboxRequest) -> Sandbox:
        changes = {"visibility": Visibility.TENANT}
        altered = await bench.store.write(
            lambda connection: SessionStore.update_session(connection, session.id, changes, now)
        )
        await bench.toolbox.share_sandboxes(altered)
        return await create(tenant, request)

    monkeypatch.setattr(bench.fleet, "create", shared_before)
    sandbox = await bench.toolbox.get_sandbox(session, "code")
    assert (await bench.fleet.get(TENANT, sandbox.id)).visibility is Visibility.TENANT


async def test_two_kinds_work_side_by_side_and_apart(bench: SandboxHarness) -> None:
    session = await bench.session("code", "other")
    wait = "echo hello > mine; until [ -e go ]; do sleep 0.02; done; echo went"
    waiting = asyncio.create_task(bench.call(session, "code_run_shell_command", command=wait, timeout=60))
    seen = await bench.call(session, "other_run_shell_command", command="ls /workspace; echo end")
    assert seen.text.strip().startswith("end"), seen.text
    assert not waiting.done()

    async def begun() -> bool:
        return "code" in (await bench.book.get(session.id)).sandboxes

    await until(begun)
    await bench.call(session, "code_write_file", path="/workspace/go", content="")
    assert "went" in (await waiting).text


async def test_what_a_sandbox_offers_is_what_was_told_before_there_was_one(bench: SandboxHarness) -> None:
    session = await bench.session()
    before = await bench.toolbox.list_tools(session)
    await bench.toolbox.get_sandbox(session, "code")
    assert await bench.toolbox.list_tools(session) == before
    own = [spec for spec in before if spec.kind is None]
    assert list(before) == [*own, *build_tool_specs("code", default_tools(CODE))]


async def test_a_written_file_is_told_of(bench: SandboxHarness) -> None:
    session = await bench.session()
    await bench.call(session, "code_write_file", path="/workspace/a.txt", content="x")
    (told,) = await bench.told(session, "session.file")
    assert told == {"kind": "code", "sandbox_id": await bench.sandbox(session), "path": "/workspace/a.txt"}


async def test_a_megabyte_of_output_is_cut_and_kept(bench: SandboxHarness) -> None:
    session = await bench.session()
    code = "open('/workspace/big', 'w').write('x' * 2**20)"
    await bench.call(session, "code_run_shell_command", command=f'python3 -c "{code}"')
    result = await bench.call(session, "code_read_file", path="/workspace/big", encoding="base64", bytes=2**20)
    assert not result.failed, result.text
    assert len(result.text) <= 20_000
    (kept,) = [part for part in result.content if isinstance(part, FileContent)]
    assert kept.size > 20_000 and kept.file in result.text
    back = await bench.call(
        session, "session_file_to_sandbox", file=kept.file, to_kind="code", to_path="/workspace/back"
    )
    assert not back.failed, back.text
    counted = await bench.call(session, "code_run_shell_command", command="wc -c < back")
    assert str(kept.size) in counted.text


async def test_a_sandbox_killed_in_the_middle_of_a_command_is_told_of_and_not_run_again(bench: SandboxHarness) -> None:
    session = await bench.session()
    await bench.call(session, "code_write_file", path="/workspace/keep", content="kept")
    await bench.call(session, "code_write_file", path="/tmp/gone", content="lost")
    sandbox = await bench.sandbox(session)
    count = "echo once >> /workspace/count; sleep 60"
    running = asyncio.create_task(bench.call(session, "code_run_shell_command", command=count))
    inside = await bench.fleet.running_client(TENANT, sandbox)

    async def counted() -> bool:
        return (await inside.run("cat /workspace/count")).exit_code == 0

    await until(counted)
    bench.kill(sandbox)
    async with asyncio.timeout(20):
        result = await running
    assert result.failed and not result.refused
    assert "lost while code_run_shell_command was running" in result.text and "in part" in result.text
    assert (await bench.book.get(session.id)).sandboxes == {}
    states = [each["state"] for each in await bench.told(session, "session.sandbox")]
    assert states == ["starting", "ready", "broken"]
    looked = await bench.call(session, "code_run_shell_command", command="cat keep count; ls /tmp/gone")
    assert "kept" in looked.text and looked.text.count("once") == 1
    assert "No such file" in looked.text
    assert "A new code sandbox was created" in looked.text and "/workspace is unchanged" in looked.text
    assert await bench.sandbox(session) != sandbox


async def test_a_sandbox_killed_while_something_only_looks_is_replaced_and_asked_again(bench: SandboxHarness) -> None:
    session = await bench.session()
    await bench.call(session, "code_run_shell_command", command="echo here > /workspace/a")
    sandbox = await bench.sandbox(session)
    specs = {spec.name: spec for spec in await bench.toolbox.list_tools(session)}
    # A command that says of itself that it only looks stands for a slow one that does.
    looks = specs["code_run_shell_command"].model_copy(update={"effect": "none"})
    command = "if [ -e first ]; then cat a; else touch first; sleep 60; fi"
    running = asyncio.create_task(bench.run(session, looks, {"command": command}))
    inside = await bench.fleet.running_client(TENANT, sandbox)

    async def begun() -> bool:
        return (await inside.run("test -e /workspace/first")).exit_code == 0

    await until(begun)
    bench.kill(sandbox)
    async with asyncio.timeout(20):
        result = await running
    assert not result.failed, result.text
    assert "here" in result.text and "A new code sandbox was created" in result.text


async def test_a_sandbox_that_is_gone_before_a_call_is_replaced_and_the_call_is_run(bench: SandboxHarness) -> None:
    session = await bench.session()
    await bench.call(session, "code_write_file", path="/workspace/a", content="still here")
    sandbox = await bench.sandbox(session)
    await bench.fleet.delete(TENANT, sandbox)
    result = await bench.call(session, "code_run_shell_command", command="cat a")
    assert not result.failed
    assert "still here" in result.text and "the sandbox was deleted" in result.text
    assert await bench.sandbox(session) != sandbox
    states = [each["state"] for each in await bench.told(session, "session.sandbox")]
    assert states == ["starting", "ready", "broken", "starting", "ready"]


async def test_a_paused_sandbox_goes_on(bench: SandboxHarness) -> None:
    session = await bench.session()
    await bench.call(session, "code_write_file", path="/tmp/a", content="still here")
    sandbox = await bench.sandbox(session)
    await bench.fleet.pause(TENANT, sandbox)
    result = await bench.call(session, "code_read_file", path="/tmp/a")
    assert "still here" in result.text and "had been paused" in result.text
    assert await bench.sandbox(session) == sandbox


async def test_one_kind_that_cannot_be_made_does_not_trouble_the_others(tmp_path: Path) -> None:
    kinds = {"code": {"image": "host"}, "other": {"image": "no-such-image"}}
    async with open_sandbox_harness(tmp_path, kinds=kinds) as bench:
        session = await bench.session("code", "other")
        bad, good = await asyncio.gather(
            bench.call(session, "other_read_file", path="/etc/hostname"),
            bench.call(session, "code_run_shell_command", command="echo fine"),
        )
        assert bad.failed and "no-such-image" in bad.text
        assert "fine" in good.text
        told = [each for each in await bench.told(session, "session.sandbox") if each["kind"] == "other"]
        assert [each["state"] for each in told] == ["starting", "broken"]
    await remove_everything(tmp_path)


async def test_wrong_tools_arguments_and_kinds_are_results(bench: SandboxHarness) -> None:
    session = await bench.session()
    specs = {spec.name: spec for spec in await bench.toolbox.list_tools(session)}
    unknown = specs["code_read_file"].model_copy(update={"tool": "read_fil"})
    assert "did you mean read_file" in (await bench.run(session, unknown, {"path": "/x"})).text
    assert (await bench.run(session, specs["code_read_file"], {"pth": "/x"})).failed
    assert (await bench.run(session, specs["code_read_file"], {"path": "/no/such"})).failed
    other = specs["code_read_file"].model_copy(update={"kind": "browser"})
    assert "may not use browser" in (await bench.run(session, other, {"path": "/x"})).text
    assert (await bench.run(session, specs["update_plan"], {"steps": "no"})).failed
    assert (await bench.run(session, specs["ask_user"], {"question": "?"})).failed


async def test_a_call_that_takes_too_long_ends_and_the_sandbox_stays(tmp_path: Path) -> None:
    async with open_sandbox_harness(tmp_path, chat={"call_timeout": 1}) as bench:
        session = await bench.session()
        await bench.toolbox.get_sandbox(session, "code")
        sandbox = await bench.sandbox(session)
        result = await bench.call(session, "code_run_shell_command", command="sleep 60")
        assert result.failed and "no answer within 1 seconds" in result.text
        assert await bench.sandbox(session) == sandbox
        assert "well" in (await bench.call(session, "code_run_shell_command", command="echo well")).text
    await remove_everything(tmp_path)


async def test_use_prolongs_the_life_of_a_sandbox(bench: SandboxHarness) -> None:
    session = await bench.session()
    sandbox = (await bench.toolbox.get_sandbox(session, "code")).id
    soon = datetime.now(UTC) + timedelta(seconds=60)
    await bench.fleet.renew(TENANT, sandbox, soon)
    await bench.call(session, "code_run_shell_command", command="true")
    renewed = (await bench.fleet.get(TENANT, sandbox)).expires_at
    assert renewed is not None and renewed > soon + timedelta(seconds=3600)
    await bench.call(session, "code_run_shell_command", command="true")
    assert (await bench.fleet.get(TENANT, sandbox)).expires_at == renewed


async def test_files_move_between_sandboxes(bench: SandboxHarness) -> None:
    session = await bench.session("code", "other")
    await bench.call(session, "code_write_file", path="/workspace/a.txt", content="from code")
    moved = await bench.call(
        session,
        "move_between_sandboxes",
        from_kind="code",
        from_path="/workspace/a.txt",
        to_kind="other",
        to_path="/workspace/in/b.txt",
    )
    assert not moved.failed, moved.text
    assert "from code" in (await bench.call(session, "other_read_file", path="/workspace/in/b.txt")).text
    told = (await bench.told(session, "session.file"))[-1]
    assert (
        told["source"] == "code:/workspace/a.txt" and told["path"] == "/workspace/in/b.txt" and told["kind"] == "other"
    )
    missing = await bench.call(
        session, "move_between_sandboxes", from_kind="code", from_path="/no", to_kind="other", to_path="/workspace/x"
    )
    assert missing.failed and "there is no" in missing.text


async def test_a_file_is_kept_for_the_user_and_attachments_come_in_by_name(bench: SandboxHarness) -> None:
    session = await bench.session()
    await bench.call(session, "code_write_file", path="/workspace/report.csv", content="a,b\n1,2\n")
    result = await bench.call(session, "keep_file", kind="code", path="/workspace/report.csv")
    (kept,) = [part for part in result.content if isinstance(part, FileContent)]
    assert kept.name == "report.csv" and await bench.files.read_file(session.id, kept.file) == b"a,b\n1,2\n"
    message = SessionMessage(
        id="m1", session=session.id, turn=1, role="user", content=(TextContent(text="?"), kept), at=session.created_at
    )
    await bench.store.write(lambda connection: bench.book.store_message(connection, message))
    into = {"to_kind": "code", "to_path": "/workspace/again.csv"}
    assert not (await bench.call(session, "session_file_to_sandbox", file="report.csv", **into)).failed
    assert "a,b" in (await bench.call(session, "code_read_file", path="/workspace/again.csv")).text
    assert (await bench.call(session, "session_file_to_sandbox", file="other.csv", **into)).failed
    assert (await bench.call(session, "keep_file", kind="code", path="/workspace")).failed


async def test_a_plan_is_kept_and_told_together(bench: SandboxHarness) -> None:
    session = await bench.session()
    steps = [{"title": "look", "state": "done"}, {"title": "leap"}]
    result = await bench.call(session, "update_plan", steps=steps)
    assert "1 of 2" in result.text
    assert [(step.title, step.state) for step in (await bench.book.get(session.id)).plan] == [
        ("look", "done"),
        ("leap", "pending"),
    ]
    assert (await bench.told(session, "plan.changed"))[0]["steps"][1] == {"title": "leap", "state": "pending"}


async def test_a_terminal_is_opened_for_the_user(bench: SandboxHarness) -> None:
    session = await bench.session()
    result = await bench.call(session, "start_terminal", kind="code", name="shell")
    assert not result.failed, result.text
    sandbox = await bench.sandbox(session)
    assert [each["name"] for each in await bench.live.terminals.list_terminals(TENANT, sandbox)] == ["shell"]
    assert await bench.told(session, "session.terminal") == [
        {"kind": "code", "sandbox_id": sandbox, "name": "shell", "state": "ready"}
    ]


async def test_tools_are_listed_for_one_kind(bench: SandboxHarness) -> None:
    session = await bench.session("code", "other")
    listed = await bench.call(session, "list_tools", kind="other")
    assert "other_read_file:" in listed.text and "code_" not in listed.text


async def test_release_deletes_sandboxes_once_and_the_workspace_stays(bench: SandboxHarness) -> None:
    session = await bench.session("code", "other")
    await bench.call(session, "code_write_file", path="/workspace/a", content="still here")
    await bench.toolbox.get_sandbox(session, "other")
    await bench.toolbox.release_sandboxes(session, "idle")
    await bench.toolbox.release_sandboxes(session, "idle")
    assert (await bench.fleet.list(TENANT))[1] == 0
    assert (await bench.book.get(session.id)).sandboxes == {}
    released = [each for each in await bench.told(session, "session.sandbox") if each["state"] == "released"]
    assert sorted(each["kind"] for each in released) == ["code", "other"]
    assert "still here" in (await bench.call(session, "code_read_file", path="/workspace/a")).text


async def test_what_is_forgotten_leaves_nothing(bench: SandboxHarness) -> None:
    session = await bench.session("code")
    neighbour = await bench.session("code", session_id="ses-12")
    for each in (session, neighbour):
        await bench.call(each, "code_write_file", path="/workspace/a", content=each.id)
    await bench.toolbox.delete_sandboxes(session)
    await bench.toolbox.delete_sandboxes(session)
    assert bench.fleet.volumes.list_volume_names(TENANT) == ["ses-12-code"]
    assert "ses-12" in (await bench.call(neighbour, "code_read_file", path="/workspace/a")).text


async def test_sessions_do_not_see_each_other(bench: SandboxHarness) -> None:
    one, other = await bench.session(session_id="ses-a"), await bench.session(session_id="ses-b")
    await bench.call(one, "code_write_file", path="/workspace/secret", content="x")
    seen = await bench.call(other, "code_run_shell_command", command="find / -name secret 2>/dev/null; echo end")
    assert "/workspace/secret" not in seen.text
    assert await bench.sandbox(one) != await bench.sandbox(other)


async def test_a_cancelled_call_leaves_the_sandbox_to_the_next_one(bench: SandboxHarness) -> None:
    session = await bench.session()
    specs = {spec.name: spec for spec in await bench.toolbox.list_tools(session)}
    first = asyncio.create_task(bench.run(session, specs["code_read_file"], {"path": "/etc/hostname"}))

    async def starting() -> bool:
        return (await bench.fleet.list(TENANT))[1] == 1

    await until(starting)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert not (await bench.call(session, "code_run_shell_command", command="true")).failed
    listed, count = await bench.fleet.list(TENANT)
    assert count == 1 and listed[0].state is SandboxState.RUNNING


async def test_what_a_cancelled_call_began_is_released_too(bench: SandboxHarness) -> None:
    session = await bench.session()
    specs = {spec.name: spec for spec in await bench.toolbox.list_tools(session)}
    running = asyncio.create_task(bench.run(session, specs["code_read_file"], {"path": "/etc/hostname"}))

    async def starting() -> bool:
        return bool(await bench.told(session, "session.sandbox"))

    await until(starting)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await bench.toolbox.release_sandboxes(session, "cancelled")
    assert (await bench.fleet.list(TENANT))[1] == 0
    assert (await bench.book.get(session.id)).sandboxes == {}


async def test_a_session_deleted_meanwhile_leaves_no_sandbox(bench: SandboxHarness) -> None:
    session = await bench.session()
    specs = {spec.name: spec for spec in await bench.toolbox.list_tools(session)}
    call = ToolCall(id="c1", name="code_read_file", arguments={"path": "/etc/hostname"})
    running = asyncio.create_task(bench.toolbox.run_call(session, 1, call, specs["code_read_file"]))

    async def starting() -> bool:
        return (await bench.fleet.list(TENANT))[1] == 1

    await until(starting)
    await bench.store.write(lambda connection: bench.book.delete_session(connection, session.id))
    assert (await running).failed
    assert (await bench.fleet.list(TENANT))[1] == 0


async def test_after_a_restart_the_same_sandbox_is_used(tmp_path: Path) -> None:
    async with open_sandbox_harness(tmp_path) as bench:
        session = await bench.session()
        await bench.call(session, "code_write_file", path="/tmp/a", content="still here")
        sandbox = await bench.sandbox(session)
    async with open_sandbox_harness(tmp_path) as bench:
        assert "still here" in (await bench.call(session, "code_read_file", path="/tmp/a")).text
        assert await bench.sandbox(session) == sandbox
        # A server that died before it could say so has made one that is not in the books.
        await bench.store.write(
            lambda connection: bench.book.update_session(connection, session.id, {"sandboxes": {}}, session.created_at)
        )
        assert "still here" in (await bench.call(session, "code_read_file", path="/tmp/a")).text
        assert await bench.sandbox(session) == sandbox
        await bench.toolbox.release_sandboxes(session, "idle")
        with pytest.raises(SandboxNotFound):
            await bench.fleet.get(TENANT, sandbox)
    await remove_everything(tmp_path)

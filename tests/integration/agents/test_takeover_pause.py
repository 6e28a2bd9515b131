"""Agents pause during takeovers, and get a note about what the person did."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from paddock.live.terminal.scrollback import STDIN
from paddock.model.sessions import FileContent, Session, SessionMessage, SessionState
from tests.integration.agents.sandbox_harness import TENANT, SandboxHarness, open_sandbox_harness, remove_everything
from tests.integration.fleet.conftest import until

pytestmark = pytest.mark.anyio
ADA = "viewer-ada"


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[SandboxHarness]:
    async with open_sandbox_harness(tmp_path) as opened:
        yield opened
    await remove_everything(tmp_path)


async def create_running_session(harness: SandboxHarness, *kinds: str) -> Session:
    """Create a session in its first turn, with its sandboxes."""
    session = await harness.create_session(*kinds, state=SessionState.RUNNING, turn=1)
    for kind in session.kinds:
        await harness.toolbox.get_sandbox(session, kind)
    return session


async def session_state(harness: SandboxHarness, session: Session) -> str:
    return (await harness.session_store.get(session.id)).state.value


async def start_pause(harness: SandboxHarness, session: Session) -> asyncio.Task[None]:
    """Start to wait for release, and return the task once the session is parked."""
    pause_task = asyncio.create_task(harness.takeover_pause.wait_for_release(session))

    async def is_parked() -> bool:
        return await session_state(harness, session) == "parked"

    await until(is_parked)
    assert not pause_task.done()
    return pause_task


async def list_notes(harness: SandboxHarness, session: Session) -> list[SessionMessage]:
    return [message for message in await harness.session_store.list_messages(session.id) if message.role == "note"]


async def take_input(harness: SandboxHarness, sandbox: str, viewer: str = ADA, name: str = "Ada") -> None:
    await harness.live.leases.take_input(TENANT, sandbox, viewer, name)


async def test_agent_does_not_pause_without_takeover(harness: SandboxHarness) -> None:
    session = await create_running_session(harness)
    before = len(await harness.list_events(session))
    async with asyncio.timeout(5):
        await harness.takeover_pause.wait_for_release(session)
    assert len(await harness.list_events(session)) == before
    assert await list_notes(harness, session) == []


async def test_agent_pauses_until_hand_back_and_gets_note(harness: SandboxHarness) -> None:
    session = await create_running_session(harness)
    sandbox = await harness.sandbox_id(session)
    await take_input(harness, sandbox)
    pause_task = await start_pause(harness, session)
    terminal = await harness.live.terminals.open_terminal(TENANT, sandbox, viewer=ADA)
    await terminal.handle_message(bytes((STDIN,)) + b"echo geheim\r")
    terminal.close()
    await harness.live.leases.release_input(TENANT, sandbox, ADA)
    async with asyncio.timeout(20):
        await pause_task
    assert await session_state(harness, session) == "running"
    (note,) = await list_notes(harness, session)
    assert note.turn == 1 and note.number == 1
    assert "Ada had mouse and keyboard of the code sandbox" in note.text
    assert "11 characters typed" in note.text and "terminal main (1 line)" in note.text
    assert "geheim" not in note.text
    events = [(event.type.value, event.data.get("state")) for event in await harness.list_events(session)][2:]
    assert events == [
        ("session.desktop", "taken"),
        ("session.state", "parked"),
        ("session.desktop", "handed_back"),
        ("session.state", "running"),
        ("message.received", None),
    ]
    async with asyncio.timeout(5):
        await harness.takeover_pause.wait_for_release(session)
    assert len(await list_notes(harness, session)) == 1


async def test_concurrent_waiters_get_one_note(harness: SandboxHarness) -> None:
    session = await create_running_session(harness)
    sandbox = await harness.sandbox_id(session)
    await take_input(harness, sandbox)
    pause_task = [
        await start_pause(harness, session),
        asyncio.create_task(harness.takeover_pause.wait_for_release(session)),
    ]
    await harness.live.leases.release_input(TENANT, sandbox, ADA)
    async with asyncio.timeout(20):
        await asyncio.gather(*pause_task)
    assert len(await list_notes(harness, session)) == 1


async def test_agent_pauses_for_all_sandboxes_of_session(harness: SandboxHarness) -> None:
    session = await create_running_session(harness, "code", "other")
    one, other = await harness.sandbox_id(session, "code"), await harness.sandbox_id(session, "other")
    await take_input(harness, one)
    pause_task = await start_pause(harness, session)
    await take_input(harness, other, "viewer-bob", "Bob")
    await harness.live.leases.release_input(TENANT, one, ADA)

    async def takeovers_emitted() -> bool:
        events = {(each["by"], each["state"]) for each in await harness.events_of(session, "session.desktop")}
        return events == {("Ada", "taken"), ("Ada", "handed_back"), ("Bob", "taken")}

    await until(takeovers_emitted)
    assert not pause_task.done()
    await harness.live.leases.release_input(TENANT, other, "viewer-bob")
    async with asyncio.timeout(20):
        await pause_task
    (note,) = await list_notes(harness, session)
    assert "Ada had" in note.text and "Bob had" in note.text


async def test_hand_back_during_event_write_is_in_the_note(
    harness: SandboxHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await create_running_session(harness, "code", "other")
    one, other = await harness.sandbox_id(session, "code"), await harness.sandbox_id(session, "other")
    await take_input(harness, one)
    pause_task = await start_pause(harness, session)
    await take_input(harness, other, "viewer-bob", "Bob")

    async def takeovers_emitted() -> bool:
        return len(await harness.events_of(session, "session.desktop")) == 2

    await until(takeovers_emitted)
    write, written = harness.events.write_with_events, asyncio.Event()

    async def write_and_release(*arguments: Any) -> Any:
        result = await write(*arguments)
        monkeypatch.undo()
        await harness.live.leases.release_input(TENANT, other, "viewer-bob")
        written.set()
        return result

    monkeypatch.setattr(harness.events, "write_with_events", write_and_release)
    await harness.live.leases.release_input(TENANT, one, ADA)
    async with asyncio.timeout(20):
        await written.wait()
        await pause_task
    (note,) = await list_notes(harness, session)
    assert "Ada had" in note.text and "Bob had" in note.text


async def test_finished_takeover_of_busy_agent_is_noted(harness: SandboxHarness) -> None:
    session = await create_running_session(harness)
    sandbox = await harness.sandbox_id(session)
    await take_input(harness, sandbox)
    await harness.live.leases.release_input(TENANT, sandbox, ADA)
    async with asyncio.timeout(20):
        await harness.takeover_pause.wait_for_release(session)
    (note,) = await list_notes(harness, session)
    assert "nothing was clicked or typed" in note.text
    assert [each["state"] for each in await harness.events_of(session, "session.desktop")] == ["taken", "handed_back"]
    assert await session_state(harness, session) == "running"


@pytest.mark.parametrize(
    ("state_before", "state_during"), [(SessionState.RUNNING, "parked"), (SessionState.IDLE, "idle")]
)
async def test_takeover_and_hand_back_are_emitted_at_once(
    harness: SandboxHarness, state_before: SessionState, state_during: str
) -> None:
    session = await create_running_session(harness)
    await harness.store.write(
        lambda connection: harness.session_store.update_session(
            connection, session.id, {"state": state_before}, session.created_at
        )
    )
    sandbox = await harness.sandbox_id(session)

    async def wait_for_states(*states: str) -> None:
        async def states_emitted() -> bool:
            return [each["state"] for each in await harness.events_of(session, "session.desktop")] == [*states]

        await until(states_emitted)

    await take_input(harness, sandbox)
    await wait_for_states("taken")
    assert await session_state(harness, session) == state_during
    terminal = await harness.live.terminals.open_terminal(TENANT, sandbox, viewer=ADA)
    await terminal.handle_message(bytes((STDIN,)) + b"echo geheim\r")
    terminal.close()
    await harness.live.leases.release_input(TENANT, sandbox, ADA)
    await wait_for_states("taken", "handed_back")
    assert await session_state(harness, session) == state_before.value and await list_notes(harness, session) == []
    async with asyncio.timeout(20):
        await harness.takeover_pause.wait_for_release(session)
    (note,) = await list_notes(harness, session)
    assert "11 characters typed" in note.text
    assert not any("geheim" in event.model_dump_json() for event in await harness.list_events(session))


async def test_takeover_note_survives_restart(tmp_path: Path) -> None:
    async with open_sandbox_harness(tmp_path) as harness:
        session = await create_running_session(harness)
        sandbox = await harness.sandbox_id(session)
        await take_input(harness, sandbox)
        await harness.live.leases.release_input(TENANT, sandbox, ADA)

        async def hand_back_emitted() -> bool:
            return len(await harness.events_of(session, "session.desktop")) == 2

        await until(hand_back_emitted)
    async with open_sandbox_harness(tmp_path) as harness:
        for _ in range(2):
            async with asyncio.timeout(20):
                await harness.takeover_pause.wait_for_release(session)
        (note,) = await list_notes(harness, session)
        assert "Ada had" in note.text
    await remove_everything(tmp_path)


async def test_unused_takeover_counts_as_handed_back(harness: SandboxHarness) -> None:
    session = await create_running_session(harness)
    harness.live.leases._attach_within = 0.2
    await take_input(harness, await harness.sandbox_id(session))
    async with asyncio.timeout(20):
        await harness.takeover_pause.wait_for_release(session)
    assert len(await list_notes(harness, session)) == 1
    assert await session_state(harness, session) == "running"


async def test_takeover_keeps_session_waiting_for_approval(harness: SandboxHarness) -> None:
    session = await create_running_session(harness)
    sandbox = await harness.sandbox_id(session)
    await harness.store.write(
        lambda connection: harness.session_store.update_session(
            connection, session.id, {"state": "waiting"}, session.created_at
        )
    )
    await take_input(harness, sandbox)
    pause_task = asyncio.create_task(harness.takeover_pause.wait_for_release(session))

    async def takeover_emitted() -> bool:
        return bool(await harness.events_of(session, "session.desktop"))

    await until(takeover_emitted)
    assert await session_state(harness, session) == "waiting"
    await harness.live.leases.release_input(TENANT, sandbox, ADA)
    async with asyncio.timeout(20):
        await pause_task
    assert await session_state(harness, session) == "waiting"


async def test_turn_after_cancelled_pause_gets_the_note(harness: SandboxHarness) -> None:
    session = await create_running_session(harness)
    sandbox = await harness.sandbox_id(session)
    await take_input(harness, sandbox)
    pause_task = await start_pause(harness, session)
    pause_task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await pause_task
    await harness.store.write(
        lambda connection: harness.session_store.update_session(
            connection, session.id, {"state": "running", "turn": 2}, session.created_at
        )
    )
    pause_task = await start_pause(harness, session)
    await harness.live.leases.release_input(TENANT, sandbox, ADA)
    async with asyncio.timeout(20):
        await pause_task
    (note,) = await list_notes(harness, session)
    assert note.turn == 2


async def test_lost_lease_counts_as_handed_back_after_restart(tmp_path: Path) -> None:
    async with open_sandbox_harness(tmp_path) as harness:
        session = await create_running_session(harness)
        await take_input(harness, await harness.sandbox_id(session))
        pause_task = await start_pause(harness, session)
        pause_task.cancel()
        await asyncio.gather(pause_task, return_exceptions=True)
    async with open_sandbox_harness(tmp_path) as harness:
        assert await session_state(harness, session) == "parked"
        async with asyncio.timeout(20):
            await harness.takeover_pause.wait_for_release(session)
        assert await session_state(harness, session) == "running"
        (note,) = await list_notes(harness, session)
        assert "Ada had" in note.text and "server was restarted" in note.text
        async with asyncio.timeout(5):
            await harness.takeover_pause.wait_for_release(session)
        assert len(await list_notes(harness, session)) == 1
    await remove_everything(tmp_path)


async def test_deleted_session_does_not_pause(harness: SandboxHarness) -> None:
    session = await create_running_session(harness)
    await harness.store.write(lambda connection: harness.session_store.delete_session(connection, session.id))
    async with asyncio.timeout(5):
        await harness.takeover_pause.wait_for_release(session)


async def test_controlled_or_watched_sandbox_is_attended(harness: SandboxHarness) -> None:
    session = await create_running_session(harness)
    session, sandbox = await harness.session_store.get(session.id), await harness.sandbox_id(session)
    assert not await harness.toolbox.is_attended(session)
    await take_input(harness, sandbox)
    assert await harness.toolbox.is_attended(session)
    await harness.live.leases.release_input(TENANT, sandbox, ADA)
    assert not await harness.toolbox.is_attended(session)
    terminal = await harness.live.terminals.open_terminal(TENANT, sandbox, viewer="viewer-bob")
    assert await harness.toolbox.is_attended(session)
    terminal.close()
    assert not await harness.toolbox.is_attended(session)


async def test_non_input_tools_work_during_takeover(harness: SandboxHarness) -> None:
    session = await create_running_session(harness)
    await take_input(harness, await harness.sandbox_id(session))
    result = await harness.call_tool(session, "code_run_shell_command", command="echo fine")
    assert "fine" in result.text
    assert not [part for part in result.content if isinstance(part, FileContent)]

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
async def bench(tmp_path: Path) -> AsyncIterator[SandboxHarness]:
    async with open_sandbox_harness(tmp_path) as made:
        yield made
    await remove_everything(tmp_path)


async def working(bench: SandboxHarness, *kinds: str) -> Session:
    """A session in the middle of its first turn, with its sandboxes."""
    session = await bench.session(*kinds, state=SessionState.RUNNING, turn=1)
    for kind in session.kinds:
        await bench.toolbox.get_sandbox(session, kind)
    return session


async def state(bench: SandboxHarness, session: Session) -> str:
    return (await bench.book.get(session.id)).state.value


async def parked(bench: SandboxHarness, session: Session) -> asyncio.Task[None]:
    """The agent, which waits."""
    waiting = asyncio.create_task(bench.parking.wait_for_release(session))

    async def there() -> bool:
        return await state(bench, session) == "parked"

    await until(there)
    assert not waiting.done()
    return waiting


async def notes(bench: SandboxHarness, session: Session) -> list[SessionMessage]:
    return [message for message in await bench.book.list_messages(session.id) if message.role == "note"]


async def take(bench: SandboxHarness, sandbox: str, viewer: str = ADA, name: str = "Ada") -> None:
    await bench.live.leases.take_input(TENANT, sandbox, viewer, name)


async def test_nothing_is_waited_for_and_nothing_told_when_nobody_has_taken_over(bench: SandboxHarness) -> None:
    session = await working(bench)
    before = len(await bench.all_told(session))
    async with asyncio.timeout(5):
        await bench.parking.wait_for_release(session)
    assert len(await bench.all_told(session)) == before
    assert await notes(bench, session) == []


async def test_the_agent_waits_until_the_input_is_handed_back_and_is_told(bench: SandboxHarness) -> None:
    session = await working(bench)
    sandbox = await bench.sandbox(session)
    await take(bench, sandbox)
    waiting = await parked(bench, session)
    seat = await bench.live.terminals.open_terminal(TENANT, sandbox, viewer=ADA)
    await seat.handle_message(bytes((STDIN,)) + b"echo geheim\r")
    seat.close()
    await bench.live.leases.release_input(TENANT, sandbox, ADA)
    async with asyncio.timeout(20):
        await waiting
    assert await state(bench, session) == "running"
    (note,) = await notes(bench, session)
    assert note.turn == 1 and note.number == 1
    assert "Ada had mouse and keyboard of the code sandbox" in note.text
    assert "11 characters typed" in note.text and "terminal main (1 line)" in note.text
    assert "geheim" not in note.text
    told = [(event.type.value, event.data.get("state")) for event in await bench.all_told(session)][2:]
    assert told == [
        ("session.desktop", "taken"),
        ("session.state", "parked"),
        ("session.desktop", "handed_back"),
        ("session.state", "running"),
        ("message.received", None),
    ]
    async with asyncio.timeout(5):
        await bench.parking.wait_for_release(session)
    assert len(await notes(bench, session)) == 1


async def test_several_who_wait_are_told_once(bench: SandboxHarness) -> None:
    session = await working(bench)
    sandbox = await bench.sandbox(session)
    await take(bench, sandbox)
    waiting = [await parked(bench, session), asyncio.create_task(bench.parking.wait_for_release(session))]
    await bench.live.leases.release_input(TENANT, sandbox, ADA)
    async with asyncio.timeout(20):
        await asyncio.gather(*waiting)
    assert len(await notes(bench, session)) == 1


async def test_all_sandboxes_of_the_session_count(bench: SandboxHarness) -> None:
    session = await working(bench, "code", "other")
    one, other = await bench.sandbox(session, "code"), await bench.sandbox(session, "other")
    await take(bench, one)
    waiting = await parked(bench, session)
    await take(bench, other, "viewer-bob", "Bob")
    await bench.live.leases.release_input(TENANT, one, ADA)

    async def second_told() -> bool:
        told = {(each["by"], each["state"]) for each in await bench.told(session, "session.desktop")}
        return told == {("Ada", "taken"), ("Ada", "handed_back"), ("Bob", "taken")}

    await until(second_told)
    assert not waiting.done()
    await bench.live.leases.release_input(TENANT, other, "viewer-bob")
    async with asyncio.timeout(20):
        await waiting
    (note,) = await notes(bench, session)
    assert "Ada had" in note.text and "Bob had" in note.text


async def test_who_hands_back_while_that_they_took_over_is_written_down_is_in_the_note(
    bench: SandboxHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await working(bench, "code", "other")
    one, other = await bench.sandbox(session, "code"), await bench.sandbox(session, "other")
    await take(bench, one)
    waiting = await parked(bench, session)
    await take(bench, other, "viewer-bob", "Bob")

    async def both_told() -> bool:
        return len(await bench.told(session, "session.desktop")) == 2

    await until(both_told)
    write, written = bench.events.write_with_events, asyncio.Event()

    async def write_and_release(*arguments: Any) -> Any:
        result = await write(*arguments)
        monkeypatch.undo()
        await bench.live.leases.release_input(TENANT, other, "viewer-bob")
        written.set()
        return result

    monkeypatch.setattr(bench.events, "write_with_events", write_and_release)
    await bench.live.leases.release_input(TENANT, one, ADA)
    async with asyncio.timeout(20):
        await written.wait()
        await waiting
    (note,) = await notes(bench, session)
    assert "Ada had" in note.text and "Bob had" in note.text


async def test_who_took_over_and_handed_back_while_the_agent_was_busy_is_told_of(bench: SandboxHarness) -> None:
    session = await working(bench)
    sandbox = await bench.sandbox(session)
    await take(bench, sandbox)
    await bench.live.leases.release_input(TENANT, sandbox, ADA)
    async with asyncio.timeout(20):
        await bench.parking.wait_for_release(session)
    (note,) = await notes(bench, session)
    assert "nothing was clicked or typed" in note.text
    assert [each["state"] for each in await bench.told(session, "session.desktop")] == ["taken", "handed_back"]
    assert await state(bench, session) == "running"


@pytest.mark.parametrize(("before", "meanwhile"), [(SessionState.RUNNING, "parked"), (SessionState.IDLE, "idle")])
async def test_taking_and_handing_back_are_told_at_once_whatever_the_agent_does(
    bench: SandboxHarness, before: SessionState, meanwhile: str
) -> None:
    session = await working(bench)
    await bench.store.write(
        lambda connection: bench.book.update_session(connection, session.id, {"state": before}, session.created_at)
    )
    sandbox = await bench.sandbox(session)

    async def told(*states: str) -> None:
        async def all_of_them() -> bool:
            return [each["state"] for each in await bench.told(session, "session.desktop")] == [*states]

        await until(all_of_them)

    await take(bench, sandbox)
    await told("taken")
    assert await state(bench, session) == meanwhile
    seat = await bench.live.terminals.open_terminal(TENANT, sandbox, viewer=ADA)
    await seat.handle_message(bytes((STDIN,)) + b"echo geheim\r")
    seat.close()
    await bench.live.leases.release_input(TENANT, sandbox, ADA)
    await told("taken", "handed_back")
    assert await state(bench, session) == before.value and await notes(bench, session) == []
    async with asyncio.timeout(20):
        await bench.parking.wait_for_release(session)
    (note,) = await notes(bench, session)
    assert "11 characters typed" in note.text
    assert not any("geheim" in event.model_dump_json() for event in await bench.all_told(session))


async def test_the_note_is_not_lost_with_the_server_that_told_of_the_return(tmp_path: Path) -> None:
    async with open_sandbox_harness(tmp_path) as bench:
        session = await working(bench)
        sandbox = await bench.sandbox(session)
        await take(bench, sandbox)
        await bench.live.leases.release_input(TENANT, sandbox, ADA)

        async def back() -> bool:
            return len(await bench.told(session, "session.desktop")) == 2

        await until(back)
    async with open_sandbox_harness(tmp_path) as bench:
        for _ in range(2):
            async with asyncio.timeout(20):
                await bench.parking.wait_for_release(session)
        (note,) = await notes(bench, session)
        assert "Ada had" in note.text
    await remove_everything(tmp_path)


async def test_a_person_who_never_comes_hands_back_by_that(bench: SandboxHarness) -> None:
    session = await working(bench)
    bench.live.leases._attach_within = 0.2
    await take(bench, await bench.sandbox(session))
    async with asyncio.timeout(20):
        await bench.parking.wait_for_release(session)
    assert len(await notes(bench, session)) == 1
    assert await state(bench, session) == "running"


async def test_a_session_that_waits_for_decisions_goes_on_waiting_for_them(bench: SandboxHarness) -> None:
    session = await working(bench)
    sandbox = await bench.sandbox(session)
    await bench.store.write(
        lambda connection: bench.book.update_session(connection, session.id, {"state": "waiting"}, session.created_at)
    )
    await take(bench, sandbox)
    waiting = asyncio.create_task(bench.parking.wait_for_release(session))

    async def told() -> bool:
        return bool(await bench.told(session, "session.desktop"))

    await until(told)
    assert await state(bench, session) == "waiting"
    await bench.live.leases.release_input(TENANT, sandbox, ADA)
    async with asyncio.timeout(20):
        await waiting
    assert await state(bench, session) == "waiting"


async def test_a_turn_cancelled_while_it_is_parked_lets_go_and_the_next_is_told(bench: SandboxHarness) -> None:
    session = await working(bench)
    sandbox = await bench.sandbox(session)
    await take(bench, sandbox)
    waiting = await parked(bench, session)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await bench.store.write(
        lambda connection: bench.book.update_session(
            connection, session.id, {"state": "running", "turn": 2}, session.created_at
        )
    )
    waiting = await parked(bench, session)
    await bench.live.leases.release_input(TENANT, sandbox, ADA)
    async with asyncio.timeout(20):
        await waiting
    (note,) = await notes(bench, session)
    assert note.turn == 2


async def test_after_a_restart_a_lease_that_is_gone_counts_as_handed_back(tmp_path: Path) -> None:
    async with open_sandbox_harness(tmp_path) as bench:
        session = await working(bench)
        await take(bench, await bench.sandbox(session))
        waiting = await parked(bench, session)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
    async with open_sandbox_harness(tmp_path) as bench:
        assert await state(bench, session) == "parked"
        async with asyncio.timeout(20):
            await bench.parking.wait_for_release(session)
        assert await state(bench, session) == "running"
        (note,) = await notes(bench, session)
        assert "Ada had" in note.text and "server was restarted" in note.text
        async with asyncio.timeout(5):
            await bench.parking.wait_for_release(session)
        assert len(await notes(bench, session)) == 1
    await remove_everything(tmp_path)


async def test_a_session_that_is_deleted_is_not_waited_for(bench: SandboxHarness) -> None:
    session = await working(bench)
    await bench.store.write(lambda connection: bench.book.delete_session(connection, session.id))
    async with asyncio.timeout(5):
        await bench.parking.wait_for_release(session)


async def test_a_sandbox_that_somebody_has_or_watches_is_attended(bench: SandboxHarness) -> None:
    session = await working(bench)
    session, sandbox = await bench.book.get(session.id), await bench.sandbox(session)
    assert not await bench.toolbox.is_attended(session)
    await take(bench, sandbox)
    assert await bench.toolbox.is_attended(session)
    await bench.live.leases.release_input(TENANT, sandbox, ADA)
    assert not await bench.toolbox.is_attended(session)
    seat = await bench.live.terminals.open_terminal(TENANT, sandbox, viewer="viewer-bob")
    assert await bench.toolbox.is_attended(session)
    seat.close()
    assert not await bench.toolbox.is_attended(session)


async def test_tools_that_only_look_go_on_while_a_person_has_the_input(bench: SandboxHarness) -> None:
    session = await working(bench)
    await take(bench, await bench.sandbox(session))
    result = await bench.call(session, "code_run_shell_command", command="echo fine")
    assert "fine" in result.text
    assert not [part for part in result.content if isinstance(part, FileContent)]

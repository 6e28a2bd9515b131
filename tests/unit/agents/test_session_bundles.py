"""Session bundles: an import restores the export, and hostile bundles leave nothing behind."""

from __future__ import annotations

import asyncio
import base64
import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from paddock.agents.engines.base import ApprovalNeeded, Turn, TurnInput, TurnOutcome, TurnPaused
from paddock.agents.sessions import session_bundles
from paddock.agents.sessions.session_service import MessageRequest
from paddock.errors import InvalidInput, PaddockError, QuotaExceeded, SessionNotFound, TooLarge
from paddock.model.session_events import CallOutput, MessageDelta, MessageStarted
from paddock.model.sessions import ApprovalState, Policy, PolicyAction, PolicyRule, Session, SessionState, ToolCall
from tests.unit.agents.session_harness import (
    PNG,
    TENANT,
    ScriptedEngine,
    SessionHarness,
    open_session_harness,
    reply_done,
    write_reply,
)

pytestmark = pytest.mark.anyio
LOOK, DO = ToolCall(id="call-1", name="code_look"), ToolCall(id="call-2", name="code_do")
POLICY = Policy(
    rules=(PolicyRule(tool="code_rm", action=PolicyAction.DENY), PolicyRule(tool="code_x", action=PolicyAction.ALLOW)),
    allow_all=("linux",),
)


async def pause_midway(turn: Turn, turn_input: TurnInput) -> TurnOutcome:
    await turn.unread_messages(())
    await write_reply(turn, "I look and do", (LOOK, DO))
    await turn.call_tool(LOOK)
    await turn.emit(CallOutput(call_id=LOOK.id, text="so far"))
    with pytest.raises(ApprovalNeeded):
        await turn.call_tool(DO, wait=False)
    await turn.emit(MessageStarted(message_id="msg-half", turn=1, step=2))
    await turn.emit(MessageDelta(message_id="msg-half", text="I have not"))
    return TurnPaused()


async def chunks_of(data: bytes, size: int = 1000) -> AsyncIterator[bytes]:
    for begin in range(0, len(data), size):
        yield data[begin : begin + size]


async def export_bundle(harness: SessionHarness, session: Session) -> bytes:
    return b"".join([piece async for piece in harness.sessions.export_bundle(session.tenant, session.id)])


async def import_bundle(harness: SessionHarness, data: bytes, tenant: str = TENANT) -> Session:
    return await harness.sessions.import_bundle(tenant, chunks_of(data), "bob")


def unpack(data: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as archive:
        found = {member.name: archive.extractfile(member) for member in archive.getmembers()}
        return {name: file.read() for name, file in found.items() if file is not None}


def pack(parts: Mapping[str, bytes], change: Callable[[tarfile.TarInfo], None] = lambda info: None) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", format=tarfile.USTAR_FORMAT) as archive:
        for name, data in parts.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            change(info)
            archive.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


async def create_busy_session(harness: SessionHarness) -> Session:
    session = await harness.create_session(title="Busy", policy=POLICY, instructions="Be brief.", budget=5000)
    parts = [{"type": "text", "text": "pelican"}, {"type": "file", "data": base64.b64encode(PNG).decode()}]
    await harness.sessions.send_message(TENANT, session.id, MessageRequest.model_validate({"content": parts}), "ann")
    await harness.wait_for_turn_end(session, "waiting")
    return session


async def test_import_restores_session_without_open_work(tmp_path: Path) -> None:
    engine = ScriptedEngine(pause_midway, reply_done)
    async with open_session_harness(tmp_path / "one", engine) as harness:
        session = await create_busy_session(harness)
        data = await export_bundle(harness, session)
        messages_before = [message.model_dump() for message in await harness.sessions.list_messages(TENANT, session.id)]
        events_before = await harness.list_events(session)
        # The exporting server can import it too: ids already in use are replaced.
        imported_here = await import_bundle(harness, data)
        assert imported_here.id != session.id and (await harness.load_session(session)).state is SessionState.WAITING
        assert len(engine.inputs) == 1
    assert set(unpack(data)) >= set(session_bundles.PART_NAMES)
    async with open_session_harness(tmp_path / "two", ScriptedEngine(reply_done)) as harness:
        imported_elsewhere = await import_bundle(harness, data, "other")
        assert imported_elsewhere.origin is not None and imported_elsewhere.origin.session == session.id
        assert (
            imported_elsewhere.tenant,
            imported_elsewhere.created_by,
            imported_elsewhere.state,
            imported_elsewhere.turn,
        ) == ("other", "bob", SessionState.IDLE, 1)
        assert (imported_elsewhere.title, imported_elsewhere.instructions, imported_elsewhere.budget) == (
            "Busy",
            "Be brief.",
            5000,
        )
        assert imported_elsewhere.policy == Policy(rules=(POLICY.rules[0],))
        messages_after = [
            message.model_dump() for message in await harness.sessions.list_messages("other", imported_elsewhere.id)
        ]
        assert [message | {"session": session.id} for message in messages_after] == messages_before
        assert await harness.files.read_file(imported_elsewhere.id, hashlib.sha256(PNG).hexdigest()) == PNG
        assert [hit.session for hit in await harness.sessions.search_messages("other", "pelican")] == [
            imported_elsewhere.id
        ]
        (approval,) = await harness.calls.list_approvals("other", session=imported_elsewhere.id)
        assert approval.state is ApprovalState.WITHDRAWN and approval.tenant == "other"
        events = await harness.list_events(imported_elsewhere)
        event_count = len(events_before)
        assert [(event.type, event.at, event.number) for event in events[:event_count]] == [
            (event.type, event.at, event.number) for event in events_before
        ]
        assert [event.type.value for event in events[event_count:]] == [
            "message.ended",
            "approval.decided",
            "call.result",
            "turn.ended",
            "session.state",
        ]
        assert events[event_count].data["text"] == "I have not"
        assert [event.data["text"] for event in events if event.type == "call.output"] == ["so far"]
        assert {event.tenant for event in events} == {"other"} and session.id not in json.dumps(
            [dict(event.data) for event in events]
        )
        # It accepts messages, and can be exported again.
        await harness.sessions.send_message("other", imported_elsewhere.id, MessageRequest(text="and?"), "bob")
        await harness.wait_for_turn_end(imported_elsewhere, turn=2)
        exported_again = unpack(await export_bundle(harness, imported_elsewhere))
        assert len(exported_again["calls.jsonl"].splitlines()) == 2 and harness.toolbox.calls_run == []


@pytest.mark.parametrize(("network", "imported"), [(("allow open",), None), ((), ()), (None, None)])
async def test_imported_bundle_does_not_open_the_network(
    tmp_path: Path, network: tuple[str, ...] | None, imported: tuple[str, ...] | None
) -> None:
    async with open_session_harness(tmp_path, ScriptedEngine(reply_done)) as harness:
        session = await harness.create_session(network=network)
        assert (await import_bundle(harness, await export_bundle(harness, session))).network == imported


async def test_interrupted_import_is_removed_at_next_start(tmp_path: Path) -> None:
    async with open_session_harness(tmp_path, ScriptedEngine(pause_midway)) as harness:
        data = await export_bundle(harness, await create_busy_session(harness))
        parts = unpack(data)
        parts["events.jsonl"] += b"{}\n"
        with pytest.raises(InvalidInput, match=r"line \d+ of events.jsonl"):
            await import_bundle(harness, pack(parts))
        session_ids = {session.id for session in await harness.sessions.list(TENANT)}
        assert {path.name for path in (harness.config.data / "sessions").iterdir()} == session_ids
        assert len(await harness.sessions.search_messages(TENANT, "pelican")) == 1
        assert len({event.stream for event in await harness.events.read(limit=1000)}) == 1
        (harness.config.data / "sessions" / ".import-ses-dead").mkdir()
    async with open_session_harness(tmp_path, ScriptedEngine(reply_done)) as harness:
        assert not (harness.config.data / "sessions" / ".import-ses-dead").exists()


def change_first_line(parts: dict[str, bytes], name: str, change: Callable[[dict[str, Any]], Any]) -> dict[str, bytes]:
    lines = [json.loads(line) for line in parts[name].splitlines()]
    change(lines[0])
    return parts | {name: b"".join(json.dumps(line).encode() + b"\n" for line in lines)}


def make_link(info: tarfile.TarInfo) -> None:
    if info.name == "events.jsonl":
        info.type, info.linkname, info.size = tarfile.SYMTYPE, "/etc/passwd", 0


HOSTILE_BUNDLES: dict[str, Callable[[dict[str, bytes], bytes], bytes]] = {
    "no gzip": lambda parts, bundle: gzip.decompress(bundle),
    "nothing": lambda parts, bundle: b"",
    "half of it": lambda parts, bundle: bundle[: len(bundle) // 2],
    "cut in a member": lambda parts, bundle: gzip.compress(gzip.decompress(bundle)[:700]),
    "damaged": lambda parts, bundle: gzip.compress(b"x" * 5000),
    "no session": lambda parts, bundle: pack({k: v for k, v in parts.items() if k != "session.json"}),
    "a path that leads out": lambda parts, bundle: pack(parts | {"../evil": b"x"}),
    "a path from the root": lambda parts, bundle: pack(parts | {"/etc/evil": b"x"}),
    "a file below files": lambda parts, bundle: pack(parts | {f"files/{'0' * 64}/x": b"x"}),
    "a file that is another": lambda parts, bundle: pack(parts | {f"files/{'0' * 64}": b"x"}),
    "a link": lambda parts, bundle: pack(parts, make_link),
    "the same twice": lambda parts, bundle: gzip.compress(
        gzip.decompress(pack({"session.json": b"{}"}))[:1024] + gzip.decompress(bundle)
    ),
    "a file that is missing": lambda parts, bundle: pack({k: v for k, v in parts.items() if "files/" not in k}),
    "a newer one": lambda parts, bundle: pack(change_first_line(parts, "session.json", lambda d: d.update(version=99))),
    "no object": lambda parts, bundle: pack(parts | {"session.json": b"[1]"}),
    "a deep one": lambda parts, bundle: pack(parts | {"session.json": b"[" * 100_000}),
    "an id that is a path": lambda parts, bundle: pack(
        change_first_line(parts, "messages.jsonl", lambda d: d.update(id="../x"))
    ),
    "a turn that is none": lambda parts, bundle: pack(
        change_first_line(parts, "messages.jsonl", lambda d: d.update(turn=10**12))
    ),
    "a role that is none": lambda parts, bundle: pack(
        change_first_line(parts, "messages.jsonl", lambda d: d.update(role="root"))
    ),
    "an event of a sandbox": lambda parts, bundle: pack(
        change_first_line(parts, "events.jsonl", lambda d: d.update(type="sandbox.created"))
    ),
    "an event that ends it": lambda parts, bundle: pack(
        change_first_line(parts, "events.jsonl", lambda d: d.update(type="session.deleted", data={}))
    ),
    "a call twice": lambda parts, bundle: pack(parts | {"calls.jsonl": parts["calls.jsonl"] * 2}),
    "an approval twice": lambda parts, bundle: pack(parts | {"approvals.jsonl": parts["approvals.jsonl"] * 2}),
}


async def test_hostile_bundles_are_refused_and_leave_nothing(tmp_path: Path) -> None:
    async with open_session_harness(tmp_path, ScriptedEngine(pause_midway)) as harness:
        session = await create_busy_session(harness)
        bundle = await export_bundle(harness, session)
        for description, corrupt in HOSTILE_BUNDLES.items():
            with pytest.raises(InvalidInput) as raised:
                await import_bundle(harness, corrupt(unpack(bundle), bundle))
            assert len(raised.value.message) < 400, description
            assert [path.name for path in (harness.config.data / "sessions").iterdir()] == [session.id], description
        assert len(await harness.sessions.list(TENANT)) == 1
        assert len(await harness.sessions.search_messages(TENANT, "pelican")) == 1


async def test_too_large_bundles_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_session_harness(tmp_path, ScriptedEngine(reply_done), sessions=1, file_size=1024) as harness:
        session = await harness.create_session()
        bundle = await export_bundle(harness, session)
        with pytest.raises(QuotaExceeded):
            await import_bundle(harness, bundle)
        big = bytes(2000)
        for parts in ({f"files/{hashlib.sha256(big).hexdigest()}": big}, {"events.jsonl": bytes(40 * 2**20)}):
            monkeypatch.setattr(session_bundles, "MAX_PART_BYTES", 30 * 2**20)
            with pytest.raises(TooLarge):
                await import_bundle(harness, pack(unpack(bundle) | parts))
        monkeypatch.setattr(session_bundles, "MAX_BUNDLE_BYTES", 2048)
        with pytest.raises(TooLarge):
            await import_bundle(harness, bundle)
        monkeypatch.setattr(session_bundles, "MAX_UPLOAD_BYTES", 100)
        with pytest.raises(TooLarge):
            await import_bundle(harness, bundle)
        with pytest.raises(SessionNotFound):
            await export_bundle(harness, session.model_copy(update={"tenant": "other"}))


async def test_import_replaces_unavailable_agent_model_and_kinds(tmp_path: Path) -> None:
    async with open_session_harness(tmp_path, ScriptedEngine(reply_done)) as harness:
        parts = unpack(await export_bundle(harness, await harness.create_session()))
        unavailable = {"agent": "nobody", "engine": "none", "model": "huge", "kinds": ["code", "moon"]}
        session = await import_bundle(
            harness, pack(change_first_line(parts, "session.json", lambda d: d["session"].update(unavailable)))
        )
        assert (session.agent, session.engine, session.model, session.kinds) == (
            "planned",
            "planned",
            "small",
            ("code",),
        )


async def test_aborted_export_leaves_no_files(tmp_path: Path) -> None:
    async with open_session_harness(tmp_path, ScriptedEngine(pause_midway)) as harness:
        session = await create_busy_session(harness)
        sessions_directory = harness.config.data / "sessions"
        export = harness.sessions.export_bundle(TENANT, session.id)
        assert await anext(export) is not None and await anext(export) is not None
        assert len(list(sessions_directory.iterdir())) == 2
        await export.aclose()
        assert [path.name for path in sessions_directory.iterdir()] == [session.id]
        (sessions_directory / ".export-left").touch()
    async with open_session_harness(tmp_path, ScriptedEngine(reply_done)):
        assert [path.name for path in sessions_directory.iterdir()] == [session.id]


async def test_export_of_session_deleted_meanwhile_fails_and_leaves_nothing(tmp_path: Path) -> None:
    async with open_session_harness(tmp_path, ScriptedEngine(pause_midway)) as harness:
        session = await create_busy_session(harness)
        export = harness.sessions.export_bundle(TENANT, session.id)
        assert await anext(export) is not None
        await harness.sessions.delete(TENANT, session.id)
        with pytest.raises((SessionNotFound, FileNotFoundError)):
            _ = [piece async for piece in export]
        assert list((harness.config.data / "sessions").iterdir()) == []


async def test_aborted_import_leaves_no_files(tmp_path: Path) -> None:
    async with open_session_harness(tmp_path, ScriptedEngine(reply_done)) as harness:
        bundle = await export_bundle(harness, await harness.create_session())

        async def send_and_fail() -> AsyncIterator[bytes]:
            yield bundle[:10]
            raise InvalidInput("the bundle broke off")

        async def send_and_stall() -> AsyncIterator[bytes]:
            yield bundle[:10]
            await asyncio.Event().wait()

        with pytest.raises(PaddockError):
            await harness.sessions.import_bundle(TENANT, send_and_fail(), "bob")
        export = asyncio.create_task(harness.sessions.import_bundle(TENANT, send_and_stall(), "bob"))
        async with asyncio.timeout(5):
            while not list((harness.config.data / "sessions").glob(".import-*/upload")):
                await asyncio.sleep(0.01)
        export.cancel()
        await asyncio.gather(export, return_exceptions=True)
        assert not list((harness.config.data / "sessions").glob(".import-*"))

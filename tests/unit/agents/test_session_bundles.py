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
from paddock.agents.sessions import bundles
from paddock.agents.sessions.service import MessageRequest
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


async def at_work(turn: Turn, given: TurnInput) -> TurnOutcome:
    await turn.unread_messages(())
    await write_reply(turn, "I look and do", (LOOK, DO))
    await turn.call_tool(LOOK)
    await turn.emit(CallOutput(call_id=LOOK.id, text="so far"))
    with pytest.raises(ApprovalNeeded):
        await turn.call_tool(DO, wait=False)
    await turn.emit(MessageStarted(message_id="msg-half", turn=1, step=2))
    await turn.emit(MessageDelta(message_id="msg-half", text="I have not"))
    return TurnPaused()


async def pieces(data: bytes, size: int = 1000) -> AsyncIterator[bytes]:
    for begin in range(0, len(data), size):
        yield data[begin : begin + size]


async def exported(at: SessionHarness, session: Session) -> bytes:
    return b"".join([piece async for piece in at.sessions.export_bundle(session.tenant, session.id)])


async def imported(at: SessionHarness, data: bytes, tenant: str = TENANT) -> Session:
    return await at.sessions.import_bundle(tenant, pieces(data), "bob")


def opened(data: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as archive:
        found = {member.name: archive.extractfile(member) for member in archive.getmembers()}
        return {name: file.read() for name, file in found.items() if file is not None}


def packed(parts: Mapping[str, bytes], change: Callable[[tarfile.TarInfo], None] = lambda info: None) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", format=tarfile.USTAR_FORMAT) as archive:
        for name, data in parts.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            change(info)
            archive.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


async def a_busy_session(at: SessionHarness) -> Session:
    session = await at.begin(title="Busy", policy=POLICY, instructions="Be brief.", budget=5000)
    parts = [{"type": "text", "text": "pelican"}, {"type": "file", "data": base64.b64encode(PNG).decode()}]
    await at.sessions.send_message(TENANT, session.id, MessageRequest.model_validate({"content": parts}), "ann")
    await at.ended(session, "waiting")
    return session


async def test_a_session_comes_back_with_nothing_under_way(tmp_path: Path) -> None:
    engine = ScriptedEngine(at_work, reply_done)
    async with open_session_harness(tmp_path / "one", engine) as at:
        session = await a_busy_session(at)
        data = await exported(at, session)
        before = [message.model_dump() for message in await at.sessions.list_messages(TENANT, session.id)]
        told = await at.told(session)
        # Ours as well as another server: ids that were taken are made anew.
        here = await imported(at, data)
        assert here.id != session.id and (await at.now(session)).state is SessionState.WAITING
        assert len(engine.given) == 1
    assert set(opened(data)) >= set(bundles.PART_NAMES)
    async with open_session_harness(tmp_path / "two", ScriptedEngine(reply_done)) as at:
        there = await imported(at, data, "other")
        assert there.origin is not None and there.origin.session == session.id
        assert (there.tenant, there.created_by, there.state, there.turn) == ("other", "bob", SessionState.IDLE, 1)
        assert (there.title, there.instructions, there.budget) == ("Busy", "Be brief.", 5000)
        assert there.policy == Policy(rules=(POLICY.rules[0],))
        after = [message.model_dump() for message in await at.sessions.list_messages("other", there.id)]
        assert [message | {"session": session.id} for message in after] == before
        assert await at.files.read_file(there.id, hashlib.sha256(PNG).hexdigest()) == PNG
        assert [hit.session for hit in await at.sessions.search_messages("other", "pelican")] == [there.id]
        (approval,) = await at.calls.list_approvals("other", session=there.id)
        assert approval.state is ApprovalState.WITHDRAWN and approval.tenant == "other"
        events = await at.told(there)
        same = len(told)
        assert [(event.type, event.at, event.number) for event in events[:same]] == [
            (event.type, event.at, event.number) for event in told
        ]
        assert [event.type.value for event in events[same:]] == [
            "message.ended",
            "approval.decided",
            "call.result",
            "turn.ended",
            "session.state",
        ]
        assert events[same].data["text"] == "I have not"
        assert [event.data["text"] for event in events if event.type == "call.output"] == ["so far"]
        assert {event.tenant for event in events} == {"other"} and session.id not in json.dumps(
            [dict(event.data) for event in events]
        )
        # It can be talked to, and is as good as the first when it is exported once more.
        await at.sessions.send_message("other", there.id, MessageRequest(text="and?"), "bob")
        await at.ended(there, turn=2)
        again = opened(await exported(at, there))
        assert len(again["calls.jsonl"].splitlines()) == 2 and at.toolbox.ran == []


async def test_an_import_that_a_server_died_over_leaves_nothing(tmp_path: Path) -> None:
    async with open_session_harness(tmp_path, ScriptedEngine(at_work)) as at:
        data = await exported(at, await a_busy_session(at))
        parts = opened(data)
        parts["events.jsonl"] += b"{}\n"
        with pytest.raises(InvalidInput, match=r"line \d+ of events.jsonl"):
            await imported(at, packed(parts))
        known = {session.id for session in await at.sessions.list(TENANT)}
        assert {path.name for path in (at.config.data / "sessions").iterdir()} == known
        assert len(await at.sessions.search_messages(TENANT, "pelican")) == 1
        assert len({event.stream for event in await at.events.read(limit=1000)}) == 1
        (at.config.data / "sessions" / ".import-ses-dead").mkdir()
    async with open_session_harness(tmp_path, ScriptedEngine(reply_done)) as at:
        assert not (at.config.data / "sessions" / ".import-ses-dead").exists()


def changed(parts: dict[str, bytes], name: str, change: Callable[[dict[str, Any]], Any]) -> dict[str, bytes]:
    lines = [json.loads(line) for line in parts[name].splitlines()]
    change(lines[0])
    return parts | {name: b"".join(json.dumps(line).encode() + b"\n" for line in lines)}


def a_link(info: tarfile.TarInfo) -> None:
    if info.name == "events.jsonl":
        info.type, info.linkname, info.size = tarfile.SYMTYPE, "/etc/passwd", 0


HOSTILE: dict[str, Callable[[dict[str, bytes], bytes], bytes]] = {
    "no gzip": lambda parts, whole: gzip.decompress(whole),
    "nothing": lambda parts, whole: b"",
    "half of it": lambda parts, whole: whole[: len(whole) // 2],
    "cut in a member": lambda parts, whole: gzip.compress(gzip.decompress(whole)[:700]),
    "damaged": lambda parts, whole: gzip.compress(b"x" * 5000),
    "no session": lambda parts, whole: packed({k: v for k, v in parts.items() if k != "session.json"}),
    "a path that leads out": lambda parts, whole: packed(parts | {"../evil": b"x"}),
    "a path from the root": lambda parts, whole: packed(parts | {"/etc/evil": b"x"}),
    "a file below files": lambda parts, whole: packed(parts | {f"files/{'0' * 64}/x": b"x"}),
    "a file that is another": lambda parts, whole: packed(parts | {f"files/{'0' * 64}": b"x"}),
    "a link": lambda parts, whole: packed(parts, a_link),
    "the same twice": lambda parts, whole: gzip.compress(
        gzip.decompress(packed({"session.json": b"{}"}))[:1024] + gzip.decompress(whole)
    ),
    "a file that is missing": lambda parts, whole: packed({k: v for k, v in parts.items() if "files/" not in k}),
    "a newer one": lambda parts, whole: packed(changed(parts, "session.json", lambda d: d.update(version=99))),
    "no object": lambda parts, whole: packed(parts | {"session.json": b"[1]"}),
    "a deep one": lambda parts, whole: packed(parts | {"session.json": b"[" * 100_000}),
    "an id that is a path": lambda parts, whole: packed(
        changed(parts, "messages.jsonl", lambda d: d.update(id="../x"))
    ),
    "a turn that is none": lambda parts, whole: packed(
        changed(parts, "messages.jsonl", lambda d: d.update(turn=10**12))
    ),
    "a role that is none": lambda parts, whole: packed(
        changed(parts, "messages.jsonl", lambda d: d.update(role="root"))
    ),
    "an event of a sandbox": lambda parts, whole: packed(
        changed(parts, "events.jsonl", lambda d: d.update(type="sandbox.created"))
    ),
    "an event that ends it": lambda parts, whole: packed(
        changed(parts, "events.jsonl", lambda d: d.update(type="session.deleted", data={}))
    ),
    "a call twice": lambda parts, whole: packed(parts | {"calls.jsonl": parts["calls.jsonl"] * 2}),
    "an approval twice": lambda parts, whole: packed(parts | {"approvals.jsonl": parts["approvals.jsonl"] * 2}),
}


async def test_hostile_bundles_are_refused_and_leave_nothing(tmp_path: Path) -> None:
    async with open_session_harness(tmp_path, ScriptedEngine(at_work)) as at:
        session = await a_busy_session(at)
        whole = await exported(at, session)
        for about, make in HOSTILE.items():
            with pytest.raises(InvalidInput) as refused:
                await imported(at, make(opened(whole), whole))
            assert len(refused.value.message) < 400, about
            assert [path.name for path in (at.config.data / "sessions").iterdir()] == [session.id], about
        assert len(await at.sessions.list(TENANT)) == 1
        assert len(await at.sessions.search_messages(TENANT, "pelican")) == 1


async def test_bundles_that_are_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_session_harness(tmp_path, ScriptedEngine(reply_done), sessions=1, file_size=1024) as at:
        session = await at.begin()
        whole = await exported(at, session)
        with pytest.raises(QuotaExceeded):
            await imported(at, whole)
        big = bytes(2000)
        for parts in ({f"files/{hashlib.sha256(big).hexdigest()}": big}, {"events.jsonl": bytes(40 * 2**20)}):
            monkeypatch.setattr(bundles, "MAX_PART_BYTES", 30 * 2**20)
            with pytest.raises(TooLarge):
                await imported(at, packed(opened(whole) | parts))
        monkeypatch.setattr(bundles, "MAX_BUNDLE_BYTES", 2048)
        with pytest.raises(TooLarge):
            await imported(at, whole)
        monkeypatch.setattr(bundles, "MAX_UPLOAD_BYTES", 100)
        with pytest.raises(TooLarge):
            await imported(at, whole)
        with pytest.raises(SessionNotFound):
            await exported(at, session.model_copy(update={"tenant": "other"}))


async def test_what_this_server_has_not_is_replaced(tmp_path: Path) -> None:
    async with open_session_harness(tmp_path, ScriptedEngine(reply_done)) as at:
        parts = opened(await exported(at, await at.begin()))
        elsewhere = {"agent": "nobody", "engine": "none", "model": "huge", "kinds": ["code", "moon"]}
        session = await imported(at, packed(changed(parts, "session.json", lambda d: d["session"].update(elsewhere))))
        assert (session.agent, session.engine, session.model, session.kinds) == (
            "planned",
            "planned",
            "small",
            ("code",),
        )


async def test_who_stops_reading_leaves_nothing(tmp_path: Path) -> None:
    async with open_session_harness(tmp_path, ScriptedEngine(at_work)) as at:
        session = await a_busy_session(at)
        home = at.config.data / "sessions"
        reading = at.sessions.export_bundle(TENANT, session.id)
        assert await anext(reading) is not None and await anext(reading) is not None
        assert len(list(home.iterdir())) == 2
        await reading.aclose()
        assert [path.name for path in home.iterdir()] == [session.id]
        (home / ".export-left").touch()
    async with open_session_harness(tmp_path, ScriptedEngine(reply_done)):
        assert [path.name for path in home.iterdir()] == [session.id]


async def test_what_is_deleted_while_it_is_read_is_no_bundle_and_leaves_nothing(tmp_path: Path) -> None:
    async with open_session_harness(tmp_path, ScriptedEngine(at_work)) as at:
        session = await a_busy_session(at)
        reading = at.sessions.export_bundle(TENANT, session.id)
        assert await anext(reading) is not None
        await at.sessions.delete(TENANT, session.id)
        with pytest.raises((SessionNotFound, FileNotFoundError)):
            _ = [piece async for piece in reading]
        assert list((at.config.data / "sessions").iterdir()) == []


async def test_who_stops_sending_leaves_nothing(tmp_path: Path) -> None:
    async with open_session_harness(tmp_path, ScriptedEngine(reply_done)) as at:
        whole = await exported(at, await at.begin())

        async def breaking() -> AsyncIterator[bytes]:
            yield whole[:10]
            raise InvalidInput("the bundle broke off")

        async def stalling() -> AsyncIterator[bytes]:
            yield whole[:10]
            await asyncio.Event().wait()

        with pytest.raises(PaddockError):
            await at.sessions.import_bundle(TENANT, breaking(), "bob")
        reading = asyncio.create_task(at.sessions.import_bundle(TENANT, stalling(), "bob"))
        async with asyncio.timeout(5):
            while not list((at.config.data / "sessions").glob(".import-*/upload")):
                await asyncio.sleep(0.01)
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        assert not list((at.config.data / "sessions").glob(".import-*"))

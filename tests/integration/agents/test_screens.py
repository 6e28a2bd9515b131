"""Sessions with screens: screenshots, desktops and takeovers."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from paddock.agents.tools.tool_names import build_sandbox_tool_specs, default_sandbox_tools
from paddock.fleet.kinds import LINUX
from paddock.model.sessions import FileContent, Session, SessionState
from tests.integration.agents.sandbox_harness import (
    HOST_KINDS,
    TENANT,
    SandboxHarness,
    open_sandbox_harness,
    remove_everything,
)
from tests.integration.fleet.conftest import until
from tests.support.screen_images import share_screen_images

pytestmark = pytest.mark.anyio
ADA = "viewer-ada"
PNG = b"\x89PNG"


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[SandboxHarness]:
    share_screen_images(tmp_path, "desktop")
    async with open_sandbox_harness(tmp_path, live={"input_wait": 0.1}, kinds=HOST_KINDS) as opened:
        yield opened
    await remove_everything(tmp_path)


@pytest.fixture
async def session(harness: SandboxHarness) -> Session:
    created = await harness.create_session("linux", "code", state=SessionState.RUNNING, turn=1)
    await harness.toolbox.get_sandbox(created, "linux")
    return created


def frame(payload: bytes) -> bytes:
    """Return a WebSocket frame of a client."""
    return bytes((0x82, 0x80 | len(payload), 0, 0, 0, 0)) + payload


async def test_screenshot_is_stored_and_emitted(harness: SandboxHarness, session: Session) -> None:
    tools = await harness.toolbox.list_tools(session)
    assert [spec for spec in tools if spec.kind == "linux"] == build_sandbox_tool_specs(
        "linux", default_sandbox_tools(LINUX)
    )
    result = await harness.call_tool(session, "linux_screenshot", format="png")
    (image,) = [part for part in result.content if isinstance(part, FileContent)]
    assert image.type == "image" and image.mime == "image/png"
    assert (await harness.files.read_file(session.id, image.file)).startswith(PNG)
    await harness.call_tool(session, "linux_move_mouse", x=10, y=10)
    await harness.call_tool(session, "linux_list_directory", path="/")
    sandbox = await harness.sandbox_id(session, "linux")
    assert await harness.events_of(session, "session.screen") == [
        {"kind": "linux", "sandbox_id": sandbox, "cause": "linux_screenshot"},
        {"kind": "linux", "sandbox_id": sandbox, "cause": "linux_move_mouse"},
    ]


async def test_screenshot_is_saved_to_another_sandbox(harness: SandboxHarness, session: Session) -> None:
    arguments = {"from_kind": "linux", "to_kind": "code", "to_path": "/workspace/screen.png"}
    result = await harness.call_tool(session, "screenshot_to_sandbox", **arguments)
    assert not result.failed, result.text
    assert "PNG" in (await harness.call_tool(session, "code_run_shell_command", command="head -c 4 screen.png")).text
    event = (await harness.events_of(session, "session.file"))[-1]
    assert event["source"] == "linux:screen" and event["path"] == "/workspace/screen.png"


async def test_desktop_is_stopped_and_started(harness: SandboxHarness, session: Session) -> None:
    assert not (await harness.call_tool(session, "stop_desktop", kind="linux")).failed
    assert (await harness.call_tool(session, "linux_screenshot")).failed
    assert not (await harness.call_tool(session, "start_desktop", kind="linux")).failed
    assert not (await harness.call_tool(session, "linux_screenshot")).failed
    assert [each["state"] for each in await harness.events_of(session, "session.desktop")] == ["stopped", "started"]
    assert "no screen" in (await harness.call_tool(session, "start_desktop", kind="code")).text


async def test_takeover_note_has_actions_and_new_screenshot(harness: SandboxHarness, session: Session) -> None:
    sandbox = await harness.sandbox_id(session, "linux")
    await harness.live.leases.take_input(TENANT, sandbox, ADA, "Ada")
    result = await harness.call_tool(session, "linux_click_mouse", x=10, y=10)
    assert result.failed and "Nothing was done: Ada has control" in result.text
    pause_task = asyncio.create_task(harness.takeover_pause.wait_for_release(session))
    server_socket, client_socket = socket.socketpair()
    server_socket.setblocking(False)
    async with harness.live.desktops.open_display(TENANT, sandbox) as view:
        viewer_task = asyncio.create_task(harness.live.desktops.serve_viewer(server_socket, view, ADA))
        rfb_messages = [b"RFB 003.008\n", b"\1", b"\1"]
        rfb_messages += [struct.pack(">BBHH", 5, mask, 200, 200) for mask in (0, 1, 0)]
        rfb_messages += [struct.pack(">BBxxI", 4, down, ord(each)) for each in "pw" for down in (1, 0)]
        client_socket.sendall(b"".join(map(frame, rfb_messages)))

        async def characters_counted() -> bool:
            return harness.live.leases.takeovers._current[sandbox].characters == 2

        await until(characters_counted)
        await harness.live.leases.release_input(TENANT, sandbox, ADA)
        client_socket.close()
        async with asyncio.timeout(20):
            await viewer_task
    async with asyncio.timeout(30):
        await pause_task
    (note,) = [message for message in await harness.session_store.list_messages(session.id) if message.role == "note"]
    assert "1 mouse click; 2 characters typed (not shown here)" in note.text
    assert "It looks like this now:" in note.text
    (image,) = [part for part in note.content if isinstance(part, FileContent)]
    assert image.type == "image"
    assert (await harness.files.read_file(session.id, image.file)).startswith(PNG)
